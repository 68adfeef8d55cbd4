#include "test.h"

#include "base/buf.h"
#include "codec/ini.h"

static const char file[] = "# written by hand\n"
                           "[default]\n"
                           "aws_access_key_id = AKID1\r\n"
                           "aws_secret_access_key=abc/def+=  \n"
                           "\n"
                           "; another\n"
                           "[profile   work]\n"
                           "region =eu-west-1\n"
                           "s3 =\n"
                           "  region = elsewhere\n"
                           "\taddressing_style = path\n"
                           "empty =\n"
                           "[default]\n"
                           "aws_access_key_id = AKID2\n";

static void assert_found(const char *section, const char *key, const char *expected)
{
        const char *value = NULL;
        size_t n = 0;

        assert_int_equal(ini_find(file, strlen(file), section, key, &value, &n, NULL), 1);
        assert_int_equal(n, strlen(expected));
        assert_memory_equal(value, expected, n);
}

static void test_values(void **state)
{
        (void)state;
        assert_found("default", "aws_access_key_id", "AKID2"); /* the last one counts */
        assert_found("default", "aws_secret_access_key", "abc/def+=");
        assert_found("profile work", "region", "eu-west-1");
        assert_found("profile work", "empty", "");
        assert_found("profile work", "s3", "");
}

static void assert_absent(const char *section, const char *key)
{
        const char *value = NULL;
        size_t n = 0;

        assert_int_equal(ini_find(file, strlen(file), section, key, &value, &n, NULL), 0);
        assert_null(value);
}

static void test_absent(void **state)
{
        (void)state;
        assert_absent("default", "region");
        assert_absent("work", "region");
        assert_absent("profile", "region");
        assert_absent("profile work ", "region");
        assert_absent("profile work", "addressing_style");
        assert_absent("profile work", "aws_access_key_id");
}

static void assert_refused(const char *text, size_t len, int code, const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };
        const char *value;
        size_t n;

        assert_int_equal(ini_find(text, len, "a", "b", &value, &n, &e), code);
        assert_string_equal(e.msg, expected);
}

static void test_refused(void **state)
{
        CLEAN(buf_done) struct buf large = BUF_INIT;

        (void)state;
        assert_refused("[a]\nnothing\n", 12, ERR_INVALID,
                       "line 2: neither [section] nor name = value");
        assert_refused("[a\n", 3, ERR_INVALID, "line 1: neither [section] nor name = value");
        assert_refused("=x", 2, ERR_INVALID, "line 1: neither [section] nor name = value");
        assert_refused("a\0=x", 4, ERR_INVALID, "line 1: neither [section] nor name = value");
        while (!buf_failed(&large) && large.len < INI_MAX_BYTES)
                buf_putc(&large, '\n');
        buf_putc(&large, '\n');
        assert_refused(large.data, large.len, ERR_TOO_LARGE, "larger than 256 KiB");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_values),
                cmocka_unit_test(test_absent),
                cmocka_unit_test(test_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
