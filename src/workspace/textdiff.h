/* The difference of two texts by lines, as a unified diff. The shortest one where it is not too far
 * (Myers); a stretch that has little in common is replaced as a whole. Time and memory are bounded
 * by the limits below whatever the texts are. Any thread. */
#pragma once

#include "base/buf.h"

#define TEXTDIFF_MAX_BYTES  ((size_t)4 << 20) /* of a text; more is not compared by lines */
#define TEXTDIFF_MAX_OUTPUT ((size_t)1 << 20) /* of one difference; the rest is left out */
#define TEXTDIFF_CONTEXT    3

struct textdiff_side {
        const char *text;
        size_t len;
};

/* Whether it can be shown by lines: not too long, and no NUL in it. */
bool textdiff_is_text(const struct textdiff_side *s);

/* Appends the hunks; nothing when the two are equal. Both must be text. 1: there is a difference.
 */
int textdiff(const struct textdiff_side *was, const struct textdiff_side *now, struct buf *out);
