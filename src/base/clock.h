/* Time. Instants that are stored or shown are microseconds since 1970 UTC; waits and deadlines are
 * milliseconds of the monotonic clock, which no operator can set back.
 *
 * clock_now_us() never returns the same value twice in one process and never goes back, so rows
 * that this process wrote order by their time alone. Any thread. */
#pragma once

#include "base/util.h"

#define US_PER_MS    INT64_C(1000)
#define US_PER_S     INT64_C(1000000)
#define ISO_TIME_LEN 24 /* 2026-05-10T10:00:00.000Z */

int64_t clock_now_us(void);
/* The wall clock as the kernel says it, which may jump. */
int64_t clock_wall_us(void);
/* The clock for deadlines that are stored: wall time as of the last clock_steady_add(), carried on
 * by the monotonic clock. When an operator sets the wall clock this clock goes on as before, until
 * the code that shifts the stored deadlines shifts this clock with them. */
int64_t clock_steady_us(void);
/* How far the wall clock is ahead of the steady clock; and shift the steady clock by that
 * amount. */
int64_t clock_steady_lag_us(void);
void clock_steady_add(int64_t us);
/* Monotonic, counts time asleep. */
int64_t clock_mono_ms(void);
int64_t clock_mono_us(void);

/* ISO 8601 with milliseconds and Z. Instants outside the years 0000 to 9999 are shown as the
 * nearest one inside. */
void clock_iso(int64_t us, char ret[ISO_TIME_LEN + 1]);

/* Accepts YYYY-MM-DDTHH:MM:SS[.fraction](Z|+hh:mm|-hh:mm), of days that the calendar has. */
bool clock_parse_iso(const char *text, int64_t *ret_us);
