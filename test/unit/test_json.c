#include "test.h"

#include <math.h>
#include <stdio.h>

#include "codec/jsnum.h"
#include "codec/json.h"

static json_t *parsed(const char *text)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *v = NULL;

        if (json_parse(text, strlen(text), &v, &e) < 0)
                fail_msg("%s: %s", text, e.msg);
        return v;
}

/* Read, written: what comes out. */
static const char *passed_through(const char *text)
{
        static char out[4096];
        json_t *v = parsed(text);
        char *written = json_to_text(v);

        assert_true((size_t)snprintf(out, sizeof(out), "%s", written) < sizeof(out));
        free(written);
        json_decref(v);
        return out;
}

static void assert_refused_n(const char *text, size_t len, const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *v = NULL;

        assert_int_equal(json_parse(text, len, &v, &e), ERR_INVALID);
        assert_string_equal(e.msg, expected);
        assert_null(v);
}

static void assert_refused(const char *text, const char *expected)
{
        assert_refused_n(text, strlen(text), expected);
}

static void test_documents_pass_unchanged(void **state)
{
        static const char *const same[] = {
                "{}",   "[]",    "null",   "true",
                "\"\"", "false", "[[[]]]", "{\"b\":1,\"a\":[null,true,{\"c\":\"d\"}],\"2\":0}",
                "17",   "-1",    "0.5",    "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f/\"",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(same); i++)
                assert_string_equal(passed_through(same[i]), same[i]);
        assert_string_equal(passed_through(" [ 1 ,\n\t2 ] "), "[1,2]");
}

static void test_refusals_say_where_and_what(void **state)
{
        (void)state;
        assert_refused("", "Malformed JSON: the text is empty");
        assert_refused("{", "Malformed JSON: the text ends too early (line 1, column 1)");
        assert_refused("[1,]", "Malformed JSON: unexpected token (line 1, column 4)");
        assert_refused("\n [1 2]", "Malformed JSON: ']' expected (line 2, column 5)");
        assert_refused("1 2", "Malformed JSON: something follows the end of the document "
                              "(line 1, column 3)");
        assert_refused("{\"a\":1,\"a\":1}",
                       "Malformed JSON: a key occurs twice in an object (line 1, column 10)");
        assert_refused_n("{\"b\":null\0}", 11, "Malformed JSON: a NUL byte (line 1, column 10)");
        assert_refused("[\"\\u0000\"]", "Malformed JSON: strings must not contain the character "
                                        "U+0000 (line 1, column 9)");
        assert_refused("{\"\\u0000\":1}", "Malformed JSON: strings must not contain the character "
                                          "U+0000 (line 1, column 9)");
        assert_refused("[1e400]", "Malformed JSON: a number is out of range (line 1, column 6)");
        assert_refused("[\"\xff\"]", "Malformed JSON: not valid UTF-8 (line 1, column 2)");
        assert_refused("[\"\xed\xa0\x80\"]", "Malformed JSON: not valid UTF-8 (line 1, column 2)");
        assert_refused("[\"a\nb\"]", "Malformed JSON: unexpected newline (line 1, column 3)");
        assert_refused("\"\\ud800\"", "Malformed JSON: invalid Unicode (line 1, column 8)");
        assert_refused("'a'", "Malformed JSON: invalid token (line 1, column 1)");
        assert_refused("\xef\xbb\xbf{}", "Malformed JSON: invalid token (line 1, column 1)");
        assert_refused_n("[1]\0", 4, "Malformed JSON: a NUL byte (line 1, column 4)");
}

static void test_refusals_do_not_repeat_the_input(void **state)
{
        static const char *const texts[] = {
                "{\"k\":hunter2}", "{\"k\":\"hunter2\" 1}", "{\"hunter2\":1,\"hunter2\":2}",
                "\"hunter2",       "[\"hunter2\\u12\"]",    "[\"hunter2\x01\"]",
                "\"hunter2\"x",    "[\"hunter2\\q\"]",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
                CLEAN(err_done) struct err e = { 0 };
                json_t *v;

                assert_int_equal(json_parse(texts[i], strlen(texts[i]), &v, &e), ERR_INVALID);
                assert_null(strstr(e.msg, "hunter2"));
        }
}

static json_t *passed_as_string(const char *inner)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        buf_appendf(&b, "\"%s\"", inner);
        return parsed(buf_str(&b));
}

static void put_times(struct buf *b, size_t times, const char *text)
{
        buf_clear(b);
        while (times-- > 0)
                buf_puts(b, text);
}

static void test_depth_at_the_limit_and_past_it(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        (void)state;
        put_times(&b, JSON_MAX_DEPTH, "[");
        for (int i = 0; i < JSON_MAX_DEPTH; i++)
                buf_putc(&b, ']');
        json_decref(parsed(buf_str(&b)));
        put_times(&b, JSON_MAX_DEPTH + 1, "[");
        assert_refused(buf_str(&b),
                       "Malformed JSON: nested deeper than 128 levels (line 1, column 129)");
        put_times(&b, JSON_MAX_DEPTH + 1, "\n{\"\xc3\xa9\":");
        assert_refused(buf_str(&b),
                       "Malformed JSON: nested deeper than 128 levels (line 130, column 1)");

        /* Brackets in strings and beside each other are no depth. */
        put_times(&b, 300, "[");
        json_decref(passed_as_string(buf_str(&b)));
        put_times(&b, 300, "\\\"[{");
        json_decref(passed_as_string(buf_str(&b)));
        put_times(&b, 300, "[],{},");
        buf_puts(&b, "0]");
        b.data[0] = '[';
        b.data[1] = '1';
        json_decref(parsed(buf_str(&b)));
}

static void test_whole_numbers_are_integers(void **state)
{
        json_t *v = parsed("[1.0, 1e2, -0.0, 0.0, 9007199254740992.0, 9007199254740994.0, 0.5,"
                           " {\"a\":{\"b\":2.0}}, 9007199254740993, -9007199254740993, 12e-1]");

        (void)state;
        assert_true(json_is_integer(json_array_get(v, 0)));
        assert_int_equal(json_integer_value(json_array_get(v, 1)), 100);
        assert_true(json_is_integer(json_array_get(v, 2)));
        assert_true(json_is_integer(json_array_get(v, 3)));
        assert_int_equal(json_integer_value(json_array_get(v, 4)), INT64_C(9007199254740992));
        assert_true(json_is_real(json_array_get(v, 5))); /* one past the limit */
        assert_true(json_is_real(json_array_get(v, 6)));
        assert_int_equal(json_integer_value(
                                 json_object_get(json_object_get(json_array_get(v, 7), "a"), "b")),
                         2);
        /* As JavaScript would read it: rounded to the double next to it. */
        assert_int_equal(json_integer_value(json_array_get(v, 8)), INT64_C(9007199254740992));
        assert_int_equal(json_integer_value(json_array_get(v, 9)), INT64_C(-9007199254740992));
        assert_true(json_is_real(json_array_get(v, 10)));
        json_decref(v);
        v = parsed("3.0");
        assert_true(json_is_integer(v));
        json_decref(v);
}

static void test_numbers_are_written_as_javascript_does(void **state)
{
        static const struct {
                const char *in, *out;
        } cases[] = {
                { "0", "0" },
                { "-0", "0" },
                { "-0.0", "0" },
                { "0.1", "0.1" },
                { "0.30000000000000004", "0.30000000000000004" },
                { "123456789012345680000", "123456789012345680000" },
                { "1e20", "100000000000000000000" },
                { "999999999999999900000", "999999999999999900000" },
                { "1e21", "1e+21" },
                { "-1.5e21", "-1.5e+21" },
                { "0.000001", "0.000001" },
                { "0.0000012", "0.0000012" },
                { "0.0000001", "1e-7" },
                { "1.25e-7", "1.25e-7" },
                { "5e-324", "5e-324" },
                { "2.2250738585072014e-308", "2.2250738585072014e-308" },
                { "1.7976931348623157e308", "1.7976931348623157e+308" },
                { "5.684341886080802e-14", "5.684341886080802e-14" }, /* 2^-44, an uneven one */
                { "9007199254740993", "9007199254740992" },
                { "9223372036854775807", "9223372036854776000" },
                { "100000000000000000001", "100000000000000000000" },
                { "123.456", "123.456" },
                { "-1.5", "-1.5" },
                { "4.35", "4.35" },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                assert_string_equal(passed_through(cases[i].in), cases[i].out);
                assert_string_equal(passed_through(cases[i].out), cases[i].out);
        }
}

static void test_strings_are_escaped_as_javascript_does(void **state)
{
        (void)state;
        assert_string_equal(passed_through("\"\\u0001\\u001f\\b\\t\\n\\f\\r\\u000b\\\"\\\\\\/\""),
                            "\"\\u0001\\u001f\\b\\t\\n\\f\\r\\u000b\\\"\\\\/\"");
        /* Line ends of older JavaScript: escaped, the one difference. */
        assert_string_equal(passed_through("\"a\xe2\x80\xa8 b\xe2\x80\xa9\""),
                            "\"a\\u2028 b\\u2029\"");
        assert_string_equal(passed_through("\"\xe2\x80\xa7\xe2\x80\xaa\""),
                            "\"\xe2\x80\xa7\xe2\x80\xaa\"");
        assert_string_equal(passed_through("\"\\ud83d\\ude00\""), "\"\xf0\x9f\x98\x80\"");
        assert_string_equal(passed_through("{\"a\\nb\":1}"), "{\"a\\nb\":1}");
}

static void test_writer(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        json_t *v = parsed("{\"x\":[1]}");
        struct jw w;

        (void)state;
        jw_init(&w, &b);
        jw_object(&w);
        jw_kstring(&w, "s", "a\"b");
        jw_kstring(&w, "n", NULL);
        jw_kint(&w, "min", INT64_MIN);
        jw_kint(&w, "max", INT64_MAX);
        jw_kbool(&w, "t", true);
        jw_knull(&w, "null");
        jw_ktime(&w, "at", INT64_C(1778407200123456));
        jw_ktime(&w, "never", 0);
        jw_kraw(&w, "raw", "[1,2]");
        jw_kraw(&w, "noraw", NULL);
        jw_kvalue(&w, "v", v);
        jw_kvalue(&w, "nov", NULL);
        jw_key(&w, "list");
        jw_array(&w);
        jw_array(&w);
        jw_array_end(&w);
        jw_object(&w);
        jw_object_end(&w);
        jw_int(&w, 0);
        jw_bool(&w, false);
        jw_string_n(&w, "abcdef", 3);
        jw_string_n(&w, "a\0\1b", 4);
        jw_array_end(&w);
        jw_object_end(&w);
        assert_string_equal(
                buf_str(&b),
                "{\"s\":\"a\\\"b\",\"n\":null,\"min\":-9223372036854775808,"
                "\"max\":9223372036854775807,\"t\":true,\"null\":null,"
                "\"at\":\"2026-05-10T10:00:00.123Z\",\"never\":null,\"raw\":[1,2],\"noraw\":null,"
                "\"v\":{\"x\":[1]},\"nov\":null,\"list\":[[],{},0,false,\"abc\","
                "\"a\\u0000\\u0001b\"]}");
        json_decref(v);
}

/* One replacement for each run that could have begun a character, as browsers do it. */
static void test_writer_replaces_invalid_utf8(void **state)
{
#define R "\xef\xbf\xbd"
        static const struct {
                const char *in, *out;
        } cases[] = {
                { "a\xff"
                  "b",
                  "\"a" R "b\"" },
                { "\x80\x80", "\"" R R "\"" },
                { "\xc3", "\"" R "\"" },
                { "\xe2\x82", "\"" R "\"" },
                { "\xe2\x82"
                  "a",
                  "\"" R "a\"" },
                { "\xe2\x80", "\"" R "\"" },
                { "\xf0\x9f\x98", "\"" R "\"" },
                { "\xc0\xaf", "\"" R R "\"" },             /* overlong */
                { "\xe0\x80\xaf", "\"" R R R "\"" },       /* overlong */
                { "\xed\xa0\x80", "\"" R R R "\"" },       /* surrogate */
                { "\xf4\x90\x80\x80", "\"" R R R R "\"" }, /* past U+10FFFF */
                { "\xf4\x8f\xbf\xbf", "\"\xf4\x8f\xbf\xbf\"" },
                { "\xed\x9f\xbf\xee\x80\x80", "\"\xed\x9f\xbf\xee\x80\x80\"" },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                CLEAN(buf_done) struct buf b = BUF_INIT;
                struct jw w;

                jw_init(&w, &b);
                jw_string(&w, cases[i].in);
                assert_string_equal(buf_str(&b), cases[i].out);
                json_decref(parsed(buf_str(&b)));
        }
#undef R
}

static void test_writer_on_a_full_buffer(void **state)
{
        CLEAN(buf_done) struct buf b;
        struct jw w;

        (void)state;
        buf_init(&b, 6);
        jw_init(&w, &b);
        jw_string(&w, "abcd"); /* exactly full */
        assert_false(buf_failed(&b));
        jw_string(&w, "e");
        jw_object(&w);
        assert_true(buf_failed(&b));
        assert_string_equal(buf_str(&b), "\"abcd\"");
}

static void test_members(void **state)
{
        json_t *v = parsed("{\"s\":\"x\",\"n\":1,\"o\":{},\"a\":[]}");

        (void)state;
        assert_string_equal(json_get_string(v, "s"), "x");
        assert_null(json_get_string(v, "n"));
        assert_null(json_get_string(v, "none"));
        assert_null(json_get_string(NULL, "s"));
        assert_non_null(json_get_object(v, "o"));
        assert_null(json_get_object(v, "a"));
        assert_null(json_get_object(v, "none"));
        json_decref(v);
}

static void test_number_of_text(void **state)
{
        static const struct {
                const char *text;
                double value;
        } cases[] = {
                { "", 0 },
                { " \n\t\xc2\xa0\xef\xbb\xbf ", 0 },
                { "2222", 2222 },
                { " 12 ", 12 },
                { "+5", 5 },
                { "-5", -5 },
                { ".5", 0.5 },
                { "5.", 5 },
                { "1e3", 1000 },
                { "1E-2", 0.01 },
                { "0x1F", 31 },
                { "0b101", 5 },
                { "0o17", 15 },
                { "007", 7 },
                { "Infinity", INFINITY },
                { "-Infinity", -INFINITY },
                { "1e999", INFINITY },
        };
        static const char *const none[] = { "abc", "1a",  ".",     "e5",    "1e",
                                            "1e+", "0x",  "0xg",   "-0x1",  "0b2",
                                            "1_0", "1 2", "inf",   "nan",   "NaN",
                                            "--1", "+",   "1.2.3", "0x1p3", "infinity" };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
                assert_true(jsnum_parse(cases[i].text, strlen(cases[i].text)) == cases[i].value);
        for (size_t i = 0; i < ARRAY_LEN(none); i++)
                assert_true(isnan(jsnum_parse(none[i], strlen(none[i]))));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_documents_pass_unchanged),
                cmocka_unit_test(test_refusals_say_where_and_what),
                cmocka_unit_test(test_refusals_do_not_repeat_the_input),
                cmocka_unit_test(test_depth_at_the_limit_and_past_it),
                cmocka_unit_test(test_whole_numbers_are_integers),
                cmocka_unit_test(test_numbers_are_written_as_javascript_does),
                cmocka_unit_test(test_strings_are_escaped_as_javascript_does),
                cmocka_unit_test(test_writer),
                cmocka_unit_test(test_writer_replaces_invalid_utf8),
                cmocka_unit_test(test_writer_on_a_full_buffer),
                cmocka_unit_test(test_members),
                cmocka_unit_test(test_number_of_text),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
