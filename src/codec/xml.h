/* One text out of an XML answer, by the name of its element: what AWS's older services answer with.
 * No document is built and nothing is copied, because the texts are keys and tokens
 * (docs/decisions/0016-libraries.md).
 *
 * Markup in a text is always escaped, so "<Name>" in the answer is the element's tag. An answer
 * that has it twice is refused, wherever the second one is: in a comment, too. So is a text with
 * entities or other elements in it.
 *
 * Any thread. */
#pragma once

#include "base/err.h"

#define XML_NAME_MAX 64

/* 1 and a view of the text of the element `name`, which has no attributes; 0 when there is none;
 * ERR_INVALID. */
int xml_find(const char *text, size_t len, const char *name, const char **ret, size_t *ret_len,
             struct err *err);
