/* One text out of an XML answer, by the names that lead to it. Enough for what AWS's older services
 * answer with; no document is built and nothing is copied.
 *
 * Elements must be closed in order and nest at most XML_MAX_DEPTH deep. Attributes, comments and
 * processing instructions are stepped over. Document types and CDATA are refused, and so is a found
 * text with entities in it.
 *
 * Any thread. */
#ifndef BERTH_CODEC_XML_H
#define BERTH_CODEC_XML_H

#include "base/err.h"

#define XML_MAX_DEPTH 16

/* 1 and a view of the text of the first element at `path` ("Answer/Result/Id"), 0 when there is
 * none, ERR_INVALID when the bytes up to there make no sense. */
int xml_find(const char *text, size_t len, const char *path, const char **ret, size_t *ret_len,
             struct err *err);

#endif
