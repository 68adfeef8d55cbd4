/* UTF-8, one character at a time. Overlong forms, surrogates and code points past U+10FFFF are
 * invalid. Invalid bytes are skipped in the steps that every browser uses: the longest run that
 * could have begun a character, at least one byte, so one U+FFFD stands for one mistake.
 *
 * Any thread. */
#pragma once

#include "base/util.h"

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Look at the character that starts at s; n is at least 1. Returns whether it is valid. *ret_len is
 * its length, or how many bytes to skip when it is not. ret_point may be NULL; it is written only
 * for a valid character. */
bool utf8_next(const char *s, size_t n, size_t *ret_len, uint32_t *ret_point);

bool utf8_is_valid(const char *s, size_t n);

/* How many bytes at the end may be the beginning of a character that goes on: 0 to 3. */
size_t utf8_unfinished(const char *s, size_t n);

/* Write a code point that is neither a surrogate nor past U+10FFFF; returns the length, 1 to 4. */
size_t utf8_bytes(uint32_t point, char ret[4]);
