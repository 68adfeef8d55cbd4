/* Cron lines: minute, hour, day of the month, month, day of the week, in UTC.
 *
 *     30 9 * * mon-fri      half past nine on working days
 *     0,30 8-18/2 1 * *     names of months and days, lists, ranges and steps, as in crontab(5)
 *     @hourly               also @daily, @midnight, @weekly, @monthly, @yearly, @annually
 *
 * When both days are given (neither begins with `*`), either is enough. Any thread. */
#pragma once

#include "base/err.h"

#define CRON_TEXT_MAX 256

struct cron {
        uint64_t minutes;
        uint32_t hours, days; /* bit 1 is the first of the month */
        uint16_t months;      /* bit 1 is January */
        uint8_t weekdays;     /* bit 0 is Sunday */
        bool any_day, any_weekday;
};

/* ERR_INVALID with a text that says which field is wrong. */
int cron_parse(const char *text, struct cron *ret, struct err *err);

/* The first time after `us`, or the last one at or before it: a whole minute, in microseconds. 0
 * when there is none within ten years. */
int64_t cron_next(const struct cron *cron, int64_t us);
int64_t cron_last(const struct cron *cron, int64_t us);
