/* Numbers as JavaScript writes and reads them: both are visible in what clients compare.
 *
 * Any thread. The process stays in the C locale, whose decimal point is a point. */
#pragma once

#include "base/util.h"

#define JSNUM_TEXT_MAX 32

/* Number.MAX_SAFE_INTEGER. */
#define JSNUM_MAX_SAFE INT64_C(9007199254740991)

/* String(v): the fewest digits that read back as v; 1e21 and 1e-7 forms past 21 digits and below
 * 0.000001; -0 is 0; NaN, Infinity, -Infinity. Returns the length. */
size_t jsnum_format(double v, char ret[JSNUM_TEXT_MAX]);
size_t jsnum_format_int(int64_t v, char ret[JSNUM_TEXT_MAX]);

/* Number.isInteger(v). */
bool jsnum_is_integer(double v);

/* Number(text): white space around is dropped, "" is 0, 0x, 0o and 0b are understood; any other
 * text is NaN. */
double jsnum_parse(const char *text, size_t len);

/* text.trim(): a view into the same bytes. */
const char *js_trim(const char *text, size_t len, size_t *ret_len);
