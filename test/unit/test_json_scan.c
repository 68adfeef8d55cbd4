#include "test.h"

#include "codec/json_scan.h"

static int find(const char *text, const char **ret, size_t *ret_len)
{
        return json_scan_string(text, strlen(text), "k", ret, ret_len, NULL);
}

static void assert_found(const char *text, const char *expected)
{
        const char *got = NULL;
        size_t n = 0;

        assert_int_equal(find(text, &got, &n), 1);
        assert_int_equal(n, strlen(expected));
        assert_memory_equal(got, expected, n);
}

static void assert_not_found(const char *text, int expected)
{
        const char *got = NULL;
        size_t n = 0;

        if (find(text, &got, &n) != expected)
                fail_msg("%s", text);
        assert_null(got);
}

static void test_find(void **state)
{
        (void)state;
        assert_found("{\"k\":\"v\"}", "v");
        assert_found(" { \"a\" : [1,{\"k\":\"no\"},\"]\"], \"k\" : \"a\\\"b\\\\\" , \"b\":null } ",
                     "a\\\"b\\\\");
        assert_found("{\"k\":1.5,\"k2\":\"x\",\"k\":\"v\"}", "v");
        assert_found("{\"k\":\"\"}", "");
        assert_not_found("{}", 0);
        assert_not_found("{\"k\":{\"k\":\"v\"}}", 0);
        assert_not_found("{\"a\":\"k\"}", 0);
        assert_not_found("", ERR_INVALID);
        assert_not_found("[\"k\"]", ERR_INVALID);
        assert_not_found("{\"k\":\"v\"", ERR_INVALID);
        assert_not_found("{\"k\":\"v\\", ERR_INVALID);
        assert_not_found("{\"k\" \"v\"}", ERR_INVALID);
        assert_not_found("{\"k\":\"v\"} x", ERR_INVALID);
        assert_not_found("{\"k\":\"v\",}", ERR_INVALID);
        assert_not_found("{\"k\":\"v\",\"k\":\"w\"}", ERR_INVALID);
        assert_not_found("{\"a\":]}", ERR_INVALID);
        assert_not_found("{\"a\":1", ERR_INVALID);
}

static void assert_decodes(const char *raw, const char *expected)
{
        char out[64];
        size_t n = 0;

        assert_true(strlen(raw) <= sizeof(out));
        assert_int_equal(json_scan_decode(raw, strlen(raw), out, &n, NULL), 0);
        assert_int_equal(n, strlen(expected));
        assert_memory_equal(out, expected, n);
}

static void assert_refused(const char *raw)
{
        char out[64];
        size_t n = 0;

        assert_int_equal(json_scan_decode(raw, strlen(raw), out, &n, NULL), ERR_INVALID);
}

static void test_decode(void **state)
{
        (void)state;
        assert_decodes("plain", "plain");
        assert_decodes("\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t");
        assert_decodes("\\u00e9\\u20AC\\ud83d\\ude00", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
        assert_refused("\\x");
        assert_refused("\\");
        assert_refused("\\u12");
        assert_refused("\\u0000");
        assert_refused("\\ud83d");
        assert_refused("\\ud83dx\\ude00");
        assert_refused("\\ud83d\\u0041");
        assert_refused("\\ude00");
        assert_refused("\xff");
        assert_refused("a\nb");
}

static void test_escape(void **state)
{
        static const char text[] = "a\"b\\c\n\x01\x7f\xc3\xa9";
        static const char expected[] = "a\\\"b\\\\c\\u000a\\u0001\x7f\xc3\xa9";
        char out[64];

        (void)state;
        assert_int_equal(json_scan_escaped_len(text, strlen(text)), strlen(expected));
        assert_int_equal(json_scan_escape(text, strlen(text), out), strlen(expected));
        assert_memory_equal(out, expected, strlen(expected));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_find),
                cmocka_unit_test(test_decode),
                cmocka_unit_test(test_escape),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
