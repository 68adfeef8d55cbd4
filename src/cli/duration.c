/* Reading and writing lengths of time. */
#include "cli/duration.h"

#include <inttypes.h>
#include <stdio.h>

/* A bare number is refused rather than guessed at: `--ttl 30` meant as minutes and read as
 * milliseconds would end a lease under its holder. */

#define MS_PER_S   INT64_C(1000)
#define MS_PER_MIN (60 * MS_PER_S)
#define MS_PER_H   (60 * MS_PER_MIN)
#define MS_PER_DAY (24 * MS_PER_H)

static const struct unit {
        const char *name;
        int64_t ms;
} units[] = {
        { "d", MS_PER_DAY }, { "h", MS_PER_H }, { "m", MS_PER_MIN }, { "s", MS_PER_S }, { "ms", 1 },
};

static const struct unit *find_unit(const char *name)
{
        for (size_t i = 0; i < ARRAY_LEN(units); i++)
                if (streq(units[i].name, name))
                        return &units[i];
        return NULL;
}

static int wrong_duration(const char *what, const char *text, const char *why, struct err *err)
{
        return err_set(err, ERR_USAGE, "%s: '%s' %s (use 500ms, 30s, 5m, 2h or 1d)", what, text,
                       why);
}

int duration_parse(const char *what, const char *text, int64_t *ret_ms, struct err *err)
{
        const char *at = text;
        int64_t number = 0, ms;

        for (; *at >= '0' && *at <= '9'; at++)
                if (__builtin_mul_overflow(number, 10, &number) ||
                    __builtin_add_overflow(number, *at - '0', &number))
                        return wrong_duration(what, text, "is too long", err);
        if (at == text)
                return wrong_duration(what, text, "is not a duration", err);
        if (*at == '\0')
                return wrong_duration(what, text, "has no unit", err);
        const struct unit *unit = find_unit(at);
        if (!unit)
                return wrong_duration(what, text, "is not a duration", err);
        if (__builtin_mul_overflow(number, unit->ms, &ms))
                return wrong_duration(what, text, "is too long", err);
        if (ms == 0)
                return wrong_duration(what, text, "is no time at all", err);
        *ret_ms = ms;
        return 0;
}

void duration_format(int64_t ms, char *ret)
{
        size_t i = 0;

        if (ms < MS_PER_S) {
                (void)snprintf(ret, DURATION_TEXT_LEN, ms > 0 ? "<1s" : "0s");
                return;
        }
        while (ms < units[i].ms)
                i++;
        /* Seconds are the last unit shown, so the second part is left out for them. */
        if (units[i].ms > MS_PER_S && ms % units[i].ms >= units[i + 1].ms)
                (void)snprintf(ret, DURATION_TEXT_LEN, "%" PRId64 "%s %" PRId64 "%s",
                               ms / units[i].ms, units[i].name, ms % units[i].ms / units[i + 1].ms,
                               units[i + 1].name);
        else
                (void)snprintf(ret, DURATION_TEXT_LEN, "%" PRId64 "%s", ms / units[i].ms,
                               units[i].name);
}
