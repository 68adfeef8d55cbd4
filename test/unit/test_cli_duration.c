#include "test.h"

#include "cli/duration.h"

static void check_good(const char *text, int64_t expected)
{
        CLEAN(err_done) struct err err = { 0 };
        int64_t ms = -1;

        assert_int_equal(duration_parse("--ttl", text, &ms, &err), 0);
        assert_true(ms == expected);
}

static void check_bad(const char *text, const char *part)
{
        CLEAN(err_done) struct err err = { 0 };
        int64_t ms = -1;

        assert_int_equal(duration_parse("--ttl", text, &ms, &err), ERR_USAGE);
        assert_non_null(strstr(err.msg, part));
        assert_non_null(strstr(err.msg, "--ttl"));
        assert_true(ms == -1);
}

static void test_units(void **state UNUSED)
{
        check_good("1ms", 1);
        check_good("500ms", 500);
        check_good("30s", 30 * 1000);
        check_good("5m", 5 * 60 * 1000);
        check_good("2h", 2 * 60 * 60 * 1000);
        check_good("1d", 24 * 60 * 60 * 1000);
        check_good("007s", 7000);
}

static void test_wrong(void **state UNUSED)
{
        check_bad("", "is not a duration");
        check_bad("s", "is not a duration");
        check_bad("30", "has no unit");
        check_bad("-5m", "is not a duration");
        check_bad("+5m", "is not a duration");
        check_bad(" 5m", "is not a duration");
        check_bad("5 m", "is not a duration");
        check_bad("5M", "is not a duration");
        check_bad("1.5h", "is not a duration");
        check_bad("1h30m", "is not a duration");
        check_bad("0s", "no time");
}

static void test_limits(void **state UNUSED)
{
        check_good("9223372036854775807ms", INT64_MAX);
        check_bad("9223372036854775808ms", "too long");
        check_good("106751991167d", INT64_C(106751991167) * 86400000);
        check_bad("106751991168d", "too long");
        check_bad("99999999999999999999999999s", "too long");
}

static void check_format(int64_t ms, const char *expected)
{
        char text[DURATION_TEXT_LEN];

        duration_format(ms, text);
        assert_string_equal(text, expected);
}

static void test_format(void **state UNUSED)
{
        check_format(0, "0s");
        check_format(999, "<1s");
        check_format(1000, "1s");
        check_format(59999, "59s");
        check_format(60000, "1m");
        check_format(61000, "1m 1s");
        check_format(3600000, "1h");
        check_format(2 * 86400000 + 3 * 3600000 + 5, "2d 3h");
        check_format(INT64_MAX, "106751991167d 7h");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_units),
                cmocka_unit_test(test_wrong),
                cmocka_unit_test(test_limits),
                cmocka_unit_test(test_format),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
