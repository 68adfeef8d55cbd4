#include "test.h"

#include "base/clock.h"
#include "codec/cron.h"

static int64_t at(const char *text)
{
        char iso[32];
        int64_t us;

        snprintf(iso, sizeof(iso), "%s:00.000Z", text);
        assert_true(clock_parse_iso(iso, &us));
        return us;
}

static void check_next(const char *line, const char *after, const char *wanted)
{
        CLEAN(err_done) struct err err = { 0 };
        char text[ISO_TIME_LEN + 1];
        struct cron cron;

        if (cron_parse(line, &cron, &err) < 0)
                fail_msg("%s: %s", line, err.msg);
        clock_iso(cron_next(&cron, at(after)), text);
        text[16] = '\0';
        if (!streq(text, wanted))
                fail_msg("%s after %s: %s, not %s", line, after, text, wanted);
        assert_int_equal(cron_last(&cron, at(wanted)), at(wanted));
        assert_int_equal(cron_last(&cron, at(wanted) + 59 * US_PER_S), at(wanted));
        assert_true(cron_last(&cron, at(wanted) - 1) <= at(after));
}

static void test_times(void **state)
{
        (void)state;
        check_next("* * * * *", "2026-11-15T14:30", "2026-11-15T14:31");
        check_next("*/15 * * * *", "2026-11-15T14:45", "2026-11-15T15:00");
        check_next("5/20 * * * *", "2026-11-15T14:30", "2026-11-15T14:45");
        check_next("30 9 * * mon-fri", "2026-11-13T09:30", "2026-11-16T09:30");
        check_next("0 0 * * 7", "2026-11-15T00:00", "2026-11-22T00:00");
        check_next("0 0 1,15 * *", "2026-11-15T00:00", "2026-12-01T00:00");
        check_next("0 0 13 * fri", "2026-11-06T00:00", "2026-11-13T00:00");
        check_next("0 0 13 * fri", "2026-11-13T00:00", "2026-11-20T00:00");
        check_next("0 0 */2 * fri", "2026-11-13T00:00", "2026-11-27T00:00");
        check_next("59 23 31 dec *", "2026-11-15T00:00", "2026-12-31T23:59");
        check_next("0 12 29 2 *", "2026-11-15T00:00", "2028-02-29T12:00");
        check_next("0 12 29 2 *", "2096-11-15T00:00", "2104-02-29T12:00");
        check_next("0 22-23,1 * * *", "2026-12-31T23:00", "2027-01-01T01:00");
        check_next("  @Hourly", "2026-11-15T14:00", "2026-11-15T15:00");
        check_next("@daily", "2026-11-15T14:00", "2026-11-16T00:00");
        check_next("@yearly", "2026-11-15T14:00", "2027-01-01T00:00");
}

static void test_never(void **state)
{
        struct cron cron;

        (void)state;
        assert_int_equal(cron_parse("0 0 30 feb *", &cron, NULL), 0);
        assert_int_equal(cron_next(&cron, at("2026-11-15T14:00")), 0);
        assert_int_equal(cron_last(&cron, at("2026-11-15T14:00")), 0);
}

static void test_refused(void **state)
{
        static const struct {
                const char *line, *names;
        } table[] = {
                { "", "minute" },
                { "* * * *", "day of the week" },
                { "* * * * * *", "five fields" },
                { "60 * * * *", "minute" },
                { "* 24 * * *", "hour" },
                { "* * 0 * *", "day" },
                { "* * 32 * *", "day" },
                { "* * * 13 *", "month" },
                { "* * * january *", "month" },
                { "* * * * 8", "day of the week" },
                { "*/0 * * * *", "minute" },
                { "5-1 * * * *", "minute" },
                { "1,,2 * * * *", "minute" },
                { "1- * * * *", "minute" },
                { "-1 * * * *", "minute" },
                { "9999999999 * * * *", "minute" },
                { "@reboot", "minute" },
        };
        char longest[CRON_TEXT_MAX + 2];
        struct cron cron;

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                CLEAN(err_done) struct err err = { 0 };

                if (cron_parse(table[i].line, &cron, &err) != ERR_INVALID)
                        fail_msg("%s was taken", table[i].line);
                if (!strstr(err.msg, table[i].names))
                        fail_msg("%s: %s", table[i].line, err.msg);
        }
        memset(longest, ' ', sizeof(longest));
        memcpy(longest, "* * * * *", 9);
        longest[CRON_TEXT_MAX] = '\0';
        assert_int_equal(cron_parse(longest, &cron, NULL), 0);
        longest[CRON_TEXT_MAX] = ' ';
        longest[CRON_TEXT_MAX + 1] = '\0';
        assert_int_equal(cron_parse(longest, &cron, NULL), ERR_INVALID);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_times),
                cmocka_unit_test(test_never),
                cmocka_unit_test(test_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
