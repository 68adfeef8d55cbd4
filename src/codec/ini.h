/* Looking a setting up in a file of the kind that AWS's tools share (~/.aws/config and
 * credentials).
 *
 *     # comment, also with ;
 *     [profile work]
 *     region = eu-west-1
 *     s3 =
 *       max_queue_size = 100          indented: belongs to the setting above, not looked at
 *
 * The text stays where it is, because it may hold keys: the result is a view into it. Names are
 * compared byte by byte, blanks in a section's name count as one. When something is set twice the
 * last one counts, as it does for AWS's tools.
 *
 * Any thread. */
#pragma once

#include "base/err.h"

#define INI_MAX_BYTES ((size_t)256 << 10)

/* 1 and the value, trimmed and possibly empty; 0 when there is none. The whole text is looked at:
 * ERR_INVALID with the number of a line that is neither a section, a setting nor a comment (the
 * text repeats nothing of it), ERR_TOO_LARGE past INI_MAX_BYTES. */
int ini_find(const char *text, size_t len, const char *section, const char *key,
             const char **ret_value, size_t *ret_len, struct err *err);
