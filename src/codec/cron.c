/* Reads cron lines, and finds the next and the last minute that a line names. */
#include "codec/cron.h"

#include <ctype.h>
#include <strings.h>

#define DAY_MIN   1440
#define YEARS_MAX 10
#define MINUTE_US INT64_C(60000000)

struct field {
        const char *name;
        unsigned min, max;
        const char *const *names; /* of the values from min on; NULL: none */
};

static const char *const months[] = { "jan", "feb", "mar", "apr", "may", "jun", "jul",
                                      "aug", "sep", "oct", "nov", "dec", NULL };
static const char *const weekdays[] = { "sun", "mon", "tue", "wed", "thu", "fri", "sat", NULL };

enum { MINUTE, HOUR, DAY, MONTH, WEEKDAY, FIELDS };

static const struct field fields[FIELDS] = {
        { "minute", 0, 59, NULL },
        { "hour", 0, 23, NULL },
        { "day", 1, 31, NULL },
        { "month", 1, 12, months },
        { "day of the week", 0, 7, weekdays },
};

/* -- Reading ---------------------------------------------------------------------------------- */

static int read_number(const char **at, unsigned *ret)
{
        unsigned n = 0, digits = 0;

        for (; isdigit((unsigned char)**at) && digits < 3; (*at)++, digits++)
                n = 10 * n + (unsigned)(**at - '0');
        *ret = n;
        return digits > 0 && !isdigit((unsigned char)**at) ? 0 : -1;
}

static int read_value(const struct field *f, const char **at, unsigned *ret)
{
        for (unsigned i = 0; f->names && f->names[i]; i++) {
                if (strncasecmp(*at, f->names[i], 3) == 0) {
                        *at += 3;
                        *ret = f->min + i;
                        return 0;
                }
        }
        return read_number(at, ret);
}

/* `*`, a value or a range, each with a step or without. */
static int read_item(const struct field *f, const char **at, uint64_t *bits)
{
        unsigned first = f->min, last = f->max, step = 1;
        bool open = **at == '*';

        if (open)
                (*at)++;
        else if (read_value(f, at, &first) < 0)
                return -1;
        else if (**at == '-') {
                (*at)++;
                if (read_value(f, at, &last) < 0)
                        return -1;
                open = true;
        }
        if (**at == '/') {
                (*at)++;
                if (read_number(at, &step) < 0 || step == 0)
                        return -1;
        } else if (!open) {
                last = first;
        }
        if (first < f->min || last > f->max || first > last)
                return -1;
        for (unsigned n = first; n <= last && n < 64; n += step) /* 64: said for analysers */
                *bits |= UINT64_C(1) << n;
        return 0;
}

static int read_list(const struct field *f, const char **at, uint64_t *ret)
{
        *ret = 0;
        for (;;) {
                if (read_item(f, at, ret) < 0)
                        return -1;
                if (**at != ',')
                        return **at == '\0' || isspace((unsigned char)**at) ? 0 : -1;
                (*at)++;
        }
}

static void skip_space(const char **at)
{
        while (isspace((unsigned char)**at))
                (*at)++;
}

static const char *expand_shorthand(const char *text)
{
        static const struct {
                const char *name, *line;
        } known[] = { { "@yearly", "0 0 1 1 *" },  { "@annually", "0 0 1 1 *" },
                      { "@monthly", "0 0 1 * *" }, { "@weekly", "0 0 * * 0" },
                      { "@daily", "0 0 * * *" },   { "@midnight", "0 0 * * *" },
                      { "@hourly", "0 * * * *" } };

        for (size_t i = 0; i < ARRAY_LEN(known); i++)
                if (strcasecmp(text, known[i].name) == 0)
                        return known[i].line;
        return text;
}

int cron_parse(const char *text, struct cron *ret, struct err *err)
{
        uint64_t bits[FIELDS];
        bool any[FIELDS];

        if (strlen(text) > CRON_TEXT_MAX)
                return err_set(err, ERR_INVALID, "A cron line has at most %d characters",
                               CRON_TEXT_MAX);
        skip_space(&text);
        const char *at = expand_shorthand(text);
        for (size_t i = 0; i < FIELDS; i++) {
                skip_space(&at);
                any[i] = *at == '*';
                if (read_list(&fields[i], &at, &bits[i]) < 0)
                        return err_set(err, ERR_INVALID,
                                       "The %s of the cron line is not understood", fields[i].name);
        }
        skip_space(&at);
        if (*at)
                return err_set(err, ERR_INVALID, "A cron line has five fields");
        *ret = (struct cron){
                .minutes = bits[MINUTE],
                .hours = (uint32_t)bits[HOUR],
                .days = (uint32_t)bits[DAY],
                .months = (uint16_t)bits[MONTH],
                .weekdays =
                        (uint8_t)((bits[WEEKDAY] | bits[WEEKDAY] >> 7) & 0x7f), /* 7 is Sunday */
                .any_day = any[DAY],
                .any_weekday = any[WEEKDAY],
        };
        return 0;
}

/* -- Times ------------------------------------------------------------------------------------ */

struct date {
        int64_t year;
        int month, day;
};

/* Days since 1970 to a date of the Gregorian calendar; years begin in March here, so that leap days
 * come last. */
static struct date date_of(int64_t days)
{
        int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097;
        int64_t doe = z - era * 146097;
        int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
        int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
        int month = (int)(mp < 10 ? mp + 3 : mp - 9);

        return (struct date){ yoe + era * 400 + (month <= 2), month,
                              (int)(doy - (153 * mp + 2) / 5 + 1) };
}

static bool is_day(const struct cron *c, int64_t days)
{
        struct date d = date_of(days);
        int weekday = (int)(((days + 4) % 7 + 7) % 7); /* 1970 began on a Thursday */
        bool day = c->days >> d.day & 1, of_week = c->weekdays >> weekday & 1;

        if (!(c->months >> d.month & 1))
                return false;
        return c->any_day || c->any_weekday ? day && of_week : day || of_week;
}

static bool is_minute(const struct cron *c, int64_t minute)
{
        return (c->hours >> (minute / 60) & 1) && (c->minutes >> (minute % 60) & 1);
}

static int64_t floor_div(int64_t a, int64_t b)
{
        return a / b - (a % b < 0);
}

/* Walk day by day, then minute by minute, in one direction. */
static int64_t find(const struct cron *c, int64_t from_minute, int step)
{
        int64_t day = floor_div(from_minute, DAY_MIN), minute = from_minute - day * DAY_MIN;

        for (int n = 0; n <= YEARS_MAX * 366; n++) {
                if (is_day(c, day))
                        for (; minute >= 0 && minute < DAY_MIN; minute += step)
                                if (is_minute(c, minute))
                                        return (day * DAY_MIN + minute) * MINUTE_US;
                day += step;
                minute = step > 0 ? 0 : DAY_MIN - 1;
        }
        return 0;
}

int64_t cron_next(const struct cron *c, int64_t us)
{
        return find(c, floor_div(us, MINUTE_US) + 1, 1);
}

int64_t cron_last(const struct cron *c, int64_t us)
{
        return find(c, floor_div(us, MINUTE_US), -1);
}
