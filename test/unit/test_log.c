#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/mman.h>

#include "base/log.h"

/* Standard error goes to memory while a test writes lines, and back before anything is asserted. */
static int saved_stderr, memory;

static void capture(void)
{
        memory = memfd_create("log", MFD_CLOEXEC);
        saved_stderr = dup(STDERR_FILENO);
        dup2(memory, STDERR_FILENO);
}

static char *captured(void)
{
        static char text[1 << 20];
        ssize_t n;

        dup2(saved_stderr, STDERR_FILENO);
        close(saved_stderr);
        n = pread(memory, text, sizeof(text) - 1, 0);
        close(memory);
        text[n > 0 ? n : 0] = '\0';
        return text;
}

static size_t count_lines(const char *text)
{
        size_t n = 0;

        for (; *text; text++)
                n += *text == '\n' ? 1 : 0;
        return n;
}

static int setup(void **state)
{
        (void)state;
        log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
        return 0;
}

static void test_text_line(void **state)
{
        const char *text;

        (void)state;
        capture();
        log_info("lease released", LOG_S("lease", "abc"), LOG_I("ms", 3), LOG_S("why", "a b"),
                 LOG_S("none", (const char *)NULL));
        text = captured();
        assert_memory_equal(text, "ts=", 3);
        assert_string_equal(
                strstr(text, " level"),
                " level=info msg=\"lease released\" lease=abc ms=3 why=\"a b\" none=\"\"\n");
}

static void test_json_line(void **state)
{
        const char *text;
        json_t *v;

        (void)state;
        log_init(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
        capture();
        log_warn("a \"b\"\n", LOG_S("x", "\x01\xff\xc2\x85"), LOG_I("n", -5));
        text = captured();
        v = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(v);
        assert_string_equal(json_string_value(json_object_get(v, "msg")), "a \"b\"\n");
        assert_string_equal(json_string_value(json_object_get(v, "level")), "warn");
        assert_string_equal(json_string_value(json_object_get(v, "x")), "\x01\xef\xbf\xbd\xc2\x85");
        assert_int_equal(json_integer_value(json_object_get(v, "n")), -5);
        json_decref(v);
}

static void test_levels(void **state)
{
        const char *text;

        (void)state;
        capture();
        log_debug("hidden");
        log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
        log_warn("hidden");
        log_error("shown");
        text = captured();
        assert_int_equal(count_lines(text), 1);
        assert_non_null(strstr(text, "msg=shown"));
}

/* Everything that some reader could take for the end of a line, in every place a caller fills. */
static void test_nothing_starts_a_new_line(void **state)
{
        static const char *const ends[] = { "\n",      "\r",       "\r\n",         "\v",
                                            "\f",      "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9",
                                            "\x1b[2K", "\x1c",     "\x7f" };

        (void)state;
        for (int json = 0; json < 2; json++) {
                log_init(LOG_LEVEL_INFO, json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT);
                for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
                        struct log_site site = { 0 };
                        char value[32], *text;
                        size_t n;

                        snprintf(value, sizeof(value), "a%slevel=error", ends[i]);
                        capture();
                        log_write(&site, LOG_LEVEL_INFO, value, &LOG_S("k", value), 1);
                        text = captured();
                        n = strlen(text);
                        assert_int_equal(count_lines(text), 1);
                        assert_int_equal(text[n - 1], '\n');
                        text[n - 1] = '\0';
                        assert_null(strstr(text, ends[i]));
                        assert_null(strstr(text, " level=error")); /* nor a field of its own */
                }
        }
}

static void test_a_site_writes_a_burst_and_counts_the_rest(void **state)
{
        struct log_site site = { 0 };
        struct log_site other = { 0 };
        const char *text;

        (void)state;
        capture();
        for (int i = 0; i < LOG_BURST; i++)
                log_write(&site, LOG_LEVEL_INFO, "flood", NULL, 0);
        text = captured();
        assert_int_equal(count_lines(text), LOG_BURST); /* at the limit */

        capture();
        for (int i = 0; i < 7; i++)
                log_write(&site, LOG_LEVEL_INFO, "flood", NULL, 0); /* past it */
        log_write(&other, LOG_LEVEL_INFO, "other", NULL, 0);        /* not its neighbour */
        text = captured();
        assert_int_equal(count_lines(text), 1);
        assert_non_null(strstr(text, "msg=other"));

        /* The next window: instead of waiting for it, move this one into the past. */
        atomic_fetch_sub(&site.window_start_ms, LOG_WINDOW_MS);
        capture();
        log_write(&site, LOG_LEVEL_INFO, "flood", NULL, 0);
        log_write(&site, LOG_LEVEL_INFO, "flood", NULL, 0);
        text = captured();
        assert_int_equal(count_lines(text), 2);
        assert_non_null(strstr(text, "msg=flood suppressed=7\n"));
        assert_null(strstr(strchr(text, '\n'), "suppressed"));
}

/* A line is complete, however much is passed. */
static void test_long_values_are_cut(void **state)
{
        static char value[LOG_VALUE_MAX * 4];
        struct log_field fields[8];
        const char *text;
        json_t *v;

        (void)state;
        memset(value, 'x', sizeof(value) - 1);
        value[LOG_VALUE_MAX - 1] = '\0'; /* the most that a quoted value holds */
        capture();
        log_info(value);
        text = captured();
        assert_non_null(strstr(text, value));
        assert_null(strstr(text, "\xe2\x80\xa6"));
        value[LOG_VALUE_MAX - 1] = 'x';
        value[LOG_VALUE_MAX] = '\0';
        capture();
        log_info(value);
        text = captured();
        assert_null(strstr(text, value));
        assert_non_null(strstr(text, "x\xe2\x80\xa6\"\n"));

        memset(value, '\x01', sizeof(value) - 1);
        for (size_t i = 0; i < ARRAY_LEN(fields); i++)
                fields[i] = LOG_S("k", value);
        fields[7] = LOG_I("last", 7);
        log_init(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
        for (int i = 0; i < 2; i++) {
                struct log_site site = { .suppressed = 2000000000 };

                capture();
                log_write(&site, LOG_LEVEL_INFO, value, fields, ARRAY_LEN(fields));
                text = captured();
                assert_true(strlen(text) <= LOG_LINE_MAX);
                v = json_loads(text, 0, NULL);
                assert_non_null(v);
                assert_int_equal(json_integer_value(json_object_get(v, "last")), 7);
                assert_int_equal(json_integer_value(json_object_get(v, "suppressed")), 2000000000);
                json_decref(v);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(test_text_line, setup),
                cmocka_unit_test_setup(test_json_line, setup),
                cmocka_unit_test_setup(test_levels, setup),
                cmocka_unit_test_setup(test_nothing_starts_a_new_line, setup),
                cmocka_unit_test_setup(test_a_site_writes_a_burst_and_counts_the_rest, setup),
                cmocka_unit_test_setup(test_long_values_are_cut, setup),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
