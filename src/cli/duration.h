/* Lengths of time as people type them: 500ms, 30s, 5m, 2h, 1d. Any thread. */
#pragma once

#include "base/err.h"

/* One whole number and one unit. Zero, a missing unit and what does not fit are ERR_USAGE with a
 * text that shows the form; `what` names the option in it. */
int duration_parse(const char *what, const char *text, int64_t *ret_ms, struct err *err);

/* The largest two units: "2d 3h", "45s", "0s". `ret` holds at least DURATION_TEXT_LEN bytes. */
#define DURATION_TEXT_LEN 48
void duration_format(int64_t ms, char *ret);
