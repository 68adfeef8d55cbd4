#include "test.h"

#include "codec/check.h"

static json_t *doc;

static struct check *begin(const char *text)
{
        static struct check c;

        doc = NULL;
        if (text)
                assert_int_equal(json_parse(text, strlen(text), &doc, NULL), 0);
        check_init(&c, doc);
        return &c;
}

/* Ends the check: it was fine. */
static void assert_fine(struct check *c)
{
        struct err e = { 0 };

        if (check_end(c, &e) != 0)
                fail_msg("%s", e.details);
        check_done(c);
        json_decref(doc);
}

/* Ends the check: these issues and no others, to the byte. */
static void assert_issues(struct check *c, const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };

        assert_true(check_failed(c));
        assert_int_equal(check_end(c, &e), ERR_INVALID);
        assert_string_equal(e.msg, "Validation error");
        assert_string_equal(e.details, expected);
        check_done(c);
        json_decref(doc);
}

/* http-api, section 1.4: an entirely missing body yields one invalid_type issue with an empty path.
 */
static void test_root(void **state)
{
        struct check *c = begin(NULL);

        (void)state;
        assert_null(check_string(c, "name", CHECK_REQUIRED, 1, 0)); /* says nothing more */
        check_literal(c, "type", CHECK_REQUIRED, "x");
        check_unknown(c, (const char *[]){ NULL });
        assert_issues(c, "[{\"code\":\"invalid_type\",\"expected\":\"object\",\"received\":"
                         "\"undefined\",\"path\":[],\"message\":\"Required\"}]");
        c = begin("[1]");
        assert_issues(c, "[{\"code\":\"invalid_type\",\"expected\":\"object\",\"received\":"
                         "\"array\",\"path\":[],\"message\":\"Expected object, received array\"}]");
        assert_fine(begin("{}"));
}

/* http-api, section 1.4 and environment-runtime, section 2.1: the generic texts. */
static void test_required_and_types(void **state)
{
        struct check *c;

        (void)state;
        c = begin("{}");
        assert_null(check_string(c, "name", CHECK_REQUIRED, 1, 0));
        assert_issues(c, "[{\"code\":\"invalid_type\",\"expected\":\"string\",\"received\":"
                         "\"undefined\",\"path\":[\"name\"],\"message\":\"Required\"}]");

        c = begin("{\"a\":1.5,\"b\":null,\"c\":[],\"d\":\"x\",\"e\":{},\"f\":true}");
        assert_null(check_string(c, "a", 0, 0, 0));
        assert_null(check_string(c, "b", 0, 0, 0));
        assert_null(check_record(c, "c", 0));
        assert_int_equal(check_int(c, "d", 0, 0, 10, NULL), 0);
        assert_true(check_bool(c, "e", 0, true));
        assert_null(check_array(c, "f", 0));
        assert_issues(c, "[{\"code\":\"invalid_type\",\"expected\":\"string\",\"received\":"
                         "\"number\",\"path\":[\"a\"],\"message\":\"Expected string, received "
                         "number\"},"
                         "{\"code\":\"invalid_type\",\"expected\":\"string\",\"received\":"
                         "\"null\",\"path\":[\"b\"],\"message\":\"Expected string, received "
                         "null\"},"
                         "{\"code\":\"invalid_type\",\"expected\":\"object\",\"received\":"
                         "\"array\",\"path\":[\"c\"],\"message\":\"Expected object, received "
                         "array\"},"
                         "{\"code\":\"invalid_type\",\"expected\":\"number\",\"received\":"
                         "\"string\",\"path\":[\"d\"],\"message\":\"Expected number, received "
                         "string\"},"
                         "{\"code\":\"invalid_type\",\"expected\":\"boolean\",\"received\":"
                         "\"object\",\"path\":[\"e\"],\"message\":\"Expected boolean, received "
                         "object\"},"
                         "{\"code\":\"invalid_type\",\"expected\":\"array\",\"received\":"
                         "\"boolean\",\"path\":[\"f\"],\"message\":\"Expected array, received "
                         "boolean\"}]");
}

static void test_values_are_returned(void **state)
{
        struct check *c = begin("{\"s\":\"x\",\"n\":7,\"t\":true,\"f\":false,\"o\":{},\"a\":[1],"
                                "\"z\":null}");
        bool present;

        (void)state;
        assert_string_equal(check_string(c, "s", CHECK_REQUIRED, 1, 1), "x");
        assert_null(check_string(c, "none", 0, 1, 0));
        assert_null(check_string(c, "z", CHECK_NULLABLE | CHECK_REQUIRED, 1, 0));
        assert_int_equal(check_int(c, "n", CHECK_REQUIRED, 7, 7, &present), 7);
        assert_true(present);
        assert_int_equal(check_int(c, "none", 0, 7, 7, &present), 0);
        assert_false(present);
        assert_true(check_bool(c, "t", 0, false));
        assert_false(check_bool(c, "f", 0, true));
        assert_true(check_bool(c, "none", 0, true));
        assert_true(check_bool(c, "z", CHECK_NULLABLE, true));
        assert_non_null(check_record(c, "o", 0));
        assert_int_equal(json_array_size(check_array(c, "a", 0)), 1);
        assert_null(check_record(c, "z", CHECK_NULLABLE));
        assert_true(check_has(c, "z"));
        assert_false(check_has(c, "none"));
        check_null(c, "z");
        check_null(c, "none");
        assert_false(check_failed(c));
        assert_fine(c);
}

static void test_string_bounds(void **state)
{
        struct check *c = begin("{\"a\":\"\",\"b\":\"abc\",\"c\":\"abcd\"}");

        (void)state;
        assert_null(check_string(c, "a", 0, 1, 0));
        assert_string_equal(check_string(c, "b", 0, 3, 3), "abc");
        assert_null(check_string(c, "c", 0, 1, 3));
        assert_issues(c, "[{\"code\":\"too_small\",\"minimum\":1,\"type\":\"string\","
                         "\"inclusive\":true,\"exact\":false,\"message\":\"String must contain at "
                         "least 1 character(s)\",\"path\":[\"a\"]},"
                         "{\"code\":\"too_big\",\"maximum\":3,\"type\":\"string\","
                         "\"inclusive\":true,\"exact\":false,\"message\":\"String must contain at "
                         "most 3 character(s)\",\"path\":[\"c\"]}]");
}

/* JavaScript's length: the face is two, the e with its accent one. */
static void test_characters_are_utf16_units(void **state)
{
        struct check *c = begin("{\"s\":\"\xf0\x9f\x98\x80\xc3\xa9\xe2\x82\xac\"}");

        (void)state;
        assert_non_null(check_string(c, "s", 0, 4, 4));
        assert_fine(c);
        c = begin("{\"s\":\"\xf0\x9f\x98\x80\xc3\xa9\xe2\x82\xac\"}");
        assert_null(check_string(c, "s", 0, 5, 0));
        assert_null(check_string(c, "s", 0, 0, 3));
        check_done(c);
        json_decref(doc);
}

static void test_trim(void **state)
{
        struct check *c =
                begin("{\"a\":\" \\t x y\\n\xc2\xa0\xe3\x80\x80\xef\xbb\xbf\",\"b\":\"x\",\"c\":"
                      "\" \\n\",\"d\":\"  \"}");
        const char *b;

        (void)state;
        assert_string_equal(check_string(c, "a", CHECK_TRIM, 3, 3), "x y");
        b = check_string(c, "b", CHECK_TRIM, 1, 0);
        assert_ptr_equal(b, json_get_string(doc, "b")); /* no copy without need */
        assert_string_equal(check_string(c, "c", CHECK_TRIM, 0, 0), "");
        assert_null(check_string(c, "d", CHECK_TRIM, 1, 0));
        assert_issues(c, "[{\"code\":\"too_small\",\"minimum\":1,\"type\":\"string\","
                         "\"inclusive\":true,\"exact\":false,\"message\":\"String must contain at "
                         "least 1 character(s)\",\"path\":[\"d\"]}]");
}

/* environment-runtime, section 2.3: missing or blank gives the field's own text, a wrong type the
 * library's; the text serves one field only. */
static void test_own_text(void **state)
{
        struct check *c = begin("{\"blank\":\"  \",\"number\":5}");

        (void)state;
        check_text(c, "SSH environments require a host.");
        check_string(c, "host", CHECK_REQUIRED | CHECK_TRIM, 1, 0);
        check_text(c, "No blank.");
        check_string(c, "blank", CHECK_REQUIRED | CHECK_TRIM, 1, 0);
        check_text(c, "Not used.");
        check_string(c, "number", CHECK_REQUIRED | CHECK_TRIM, 1, 0);
        check_string(c, "after", CHECK_REQUIRED, 1, 0);
        assert_issues(c, "[{\"code\":\"invalid_type\",\"expected\":\"string\",\"received\":"
                         "\"undefined\",\"path\":[\"host\"],\"message\":\"SSH environments require "
                         "a host.\"},"
                         "{\"code\":\"too_small\",\"minimum\":1,\"type\":\"string\","
                         "\"inclusive\":true,\"exact\":false,\"message\":\"No blank.\",\"path\":["
                         "\"blank\"]},"
                         "{\"code\":\"invalid_type\",\"expected\":\"string\",\"received\":"
                         "\"number\",\"path\":[\"number\"],\"message\":\"Expected string, received "
                         "number\"},"
                         "{\"code\":\"invalid_type\",\"expected\":\"string\",\"received\":"
                         "\"undefined\",\"path\":[\"after\"],\"message\":\"Required\"}]");
}

static void test_uuid(void **state)
{
        struct check *c = begin("{\"a\":\"A0EEBC99-9C0B-0EF8-BB6D-6BB9BD380A11\",\"b\":\"x\"}");

        (void)state;
        assert_string_equal(check_uuid(c, "a", CHECK_REQUIRED),
                            "a0eebc99-9c0b-0ef8-bb6d-6bb9bd380a11");
        assert_null(check_uuid(c, "b", 0));
        assert_null(check_uuid(c, "none", 0));
        assert_issues(c, "[{\"validation\":\"uuid\",\"code\":\"invalid_string\",\"message\":"
                         "\"Invalid uuid\",\"path\":[\"b\"]}]");
}

static void test_enum(void **state)
{
        static const char *const drivers[] = { "local", "ssh", NULL };
        struct check *c = begin("{\"a\":\"ssh\",\"b\":\"c\",\"d\":5}");

        (void)state;
        assert_string_equal(check_enum(c, "a", CHECK_REQUIRED, drivers), "ssh");
        assert_null(check_enum(c, "b", 0, drivers));
        assert_null(check_enum(c, "d", 0, drivers));
        assert_null(check_enum(c, "none", 0, drivers));
        assert_null(check_enum(c, "must", CHECK_REQUIRED, drivers));
        assert_issues(c, "[{\"received\":\"c\",\"code\":\"invalid_enum_value\",\"options\":["
                         "\"local\",\"ssh\"],\"path\":[\"b\"],\"message\":\"Invalid enum value. "
                         "Expected 'local' | 'ssh', received 'c'\"},"
                         "{\"code\":\"invalid_type\",\"expected\":\"'local' | 'ssh'\",\"received\":"
                         "\"number\",\"path\":[\"d\"],\"message\":\"Expected 'local' | 'ssh', "
                         "received number\"},"
                         "{\"code\":\"invalid_type\",\"expected\":\"'local' | 'ssh'\",\"received\":"
                         "\"undefined\",\"path\":[\"must\"],\"message\":\"Required\"}]");
}

static void test_integers(void **state)
{
        struct check *c = begin("{\"low\":0,\"min\":1,\"max\":65535,\"high\":65536,\"part\":1.5,"
                                "\"both\":0.5,\"whole\":2.0}");
        bool present = true;

        (void)state;
        assert_int_equal(check_int(c, "min", 0, 1, 65535, NULL), 1);
        assert_int_equal(check_int(c, "max", 0, 1, 65535, NULL), 65535);
        assert_int_equal(check_int(c, "whole", 0, 1, 65535, NULL), 2);
        assert_int_equal(check_int(c, "low", 0, 1, 65535, &present), 0);
        assert_false(present);
        check_int(c, "high", 0, 1, 65535, NULL);
        check_int(c, "part", 0, 1, 65535, NULL);
        check_int(c, "both", 0, 1, 65535, NULL);
        assert_issues(
                c, "[{\"code\":\"too_small\",\"minimum\":1,\"type\":\"number\",\"inclusive\":true,"
                   "\"exact\":false,\"message\":\"Number must be greater than or equal to 1\","
                   "\"path\":[\"low\"]},"
                   "{\"code\":\"too_big\",\"maximum\":65535,\"type\":\"number\",\"inclusive\":true,"
                   "\"exact\":false,\"message\":\"Number must be less than or equal to 65535\","
                   "\"path\":[\"high\"]},"
                   "{\"code\":\"invalid_type\",\"expected\":\"integer\",\"received\":\"float\","
                   "\"message\":\"Expected integer, received float\",\"path\":[\"part\"]},"
                   "{\"code\":\"invalid_type\",\"expected\":\"integer\",\"received\":\"float\","
                   "\"message\":\"Expected integer, received float\",\"path\":[\"both\"]},"
                   "{\"code\":\"too_small\",\"minimum\":1,\"type\":\"number\",\"inclusive\":true,"
                   "\"exact\":false,\"message\":\"Number must be greater than or equal to 1\","
                   "\"path\":[\"both\"]}]");
}

static void test_positive(void **state)
{
        struct check *c = begin("{\"a\":1,\"b\":0,\"c\":-3}");

        (void)state;
        assert_int_equal(check_int(c, "a", CHECK_POSITIVE, 0, 10, NULL), 1);
        check_int(c, "b", CHECK_POSITIVE, 0, 10, NULL);
        assert_issues(c, "[{\"code\":\"too_small\",\"minimum\":0,\"type\":\"number\",\"inclusive\":"
                         "false,\"exact\":false,\"message\":\"Number must be greater than 0\","
                         "\"path\":[\"b\"]}]");
}

/* Without bounds of the caller's, what a double holds exactly is the bound. */
static void test_integers_beyond_the_safe_ones(void **state)
{
        struct check *c = begin("{\"a\":9007199254740991,\"b\":-9007199254740991,"
                                "\"c\":9007199254740992,\"d\":1e300}");

        (void)state;
        assert_int_equal(check_int(c, "a", 0, INT64_MIN, INT64_MAX, NULL),
                         INT64_C(9007199254740991));
        assert_int_equal(check_int(c, "b", 0, INT64_MIN, INT64_MAX, NULL),
                         -INT64_C(9007199254740991));
        assert_false(check_failed(c));
        assert_int_equal(check_int(c, "c", 0, INT64_MIN, INT64_MAX, NULL), 0);
        assert_int_equal(check_int(c, "d", 0, INT64_MIN, INT64_MAX, NULL), 0);
        assert_int_equal(json_array_size(c->issues), 2);
        check_done(c);
        json_decref(doc);
}

/* environment-runtime, section 2.1: string, boolean and null are converted numerically first. */
static void test_coerced_integers(void **state)
{
        struct check *c = begin("{\"a\":\"2222\",\"b\":true,\"c\":null,\"d\":\"\",\"e\":\"abc\","
                                "\"f\":\" 0x10 \",\"g\":[22],\"h\":\"1.5\",\"i\":\"Infinity\"}");
        bool present;

        (void)state;
        assert_int_equal(check_int(c, "a", CHECK_COERCE, 1, 65535, NULL), 2222);
        assert_int_equal(check_int(c, "b", CHECK_COERCE, 1, 65535, NULL), 1);
        assert_int_equal(check_int(c, "c", CHECK_COERCE, 0, 65535, &present), 0);
        assert_true(present);
        assert_int_equal(check_int(c, "c", CHECK_COERCE | CHECK_NULLABLE, 0, 9, &present), 0);
        assert_false(present);
        assert_int_equal(check_int(c, "d", CHECK_COERCE, 0, 65535, &present), 0);
        assert_true(present);
        assert_int_equal(check_int(c, "f", CHECK_COERCE, 0, 65535, NULL), 16);
        assert_false(check_failed(c));
        check_int(c, "e", CHECK_COERCE, 0, 65535, NULL);
        check_int(c, "g", CHECK_COERCE, 0, 65535, NULL);
        check_int(c, "h", CHECK_COERCE, 0, 65535, NULL);
        check_int(c, "c", CHECK_COERCE, 1, 65535, NULL);
        assert_issues(
                c, "[{\"code\":\"invalid_type\",\"expected\":\"number\",\"received\":\"nan\","
                   "\"path\":[\"e\"],\"message\":\"Expected number, received nan\"},"
                   "{\"code\":\"invalid_type\",\"expected\":\"number\",\"received\":\"nan\","
                   "\"path\":[\"g\"],\"message\":\"Expected number, received nan\"},"
                   "{\"code\":\"invalid_type\",\"expected\":\"integer\",\"received\":\"float\","
                   "\"message\":\"Expected integer, received float\",\"path\":[\"h\"]},"
                   "{\"code\":\"too_small\",\"minimum\":1,\"type\":\"number\",\"inclusive\":true,"
                   "\"exact\":false,\"message\":\"Number must be greater than or equal to 1\","
                   "\"path\":[\"c\"]}]");
}

/* environment-runtime, section 2.4: an explicit empty, null or padded value fails the literal
 * check. */
static void test_literal(void **state)
{
        struct check *c = begin("{\"a\":\"fake\",\"b\":\" fake\",\"c\":null}");

        (void)state;
        check_literal(c, "a", CHECK_REQUIRED, "fake");
        check_literal(c, "none", 0, "fake");
        check_literal(c, "c", CHECK_NULLABLE, "fake");
        assert_false(check_failed(c));
        check_literal(c, "b", 0, "fake");
        check_literal(c, "c", 0, "fake");
        check_literal(c, "none", CHECK_REQUIRED, "fake");
        assert_issues(
                c,
                "[{\"received\":\" fake\",\"code\":\"invalid_literal\",\"expected\":\"fake\","
                "\"path\":[\"b\"],\"message\":\"Invalid literal value, expected \\\"fake\\\"\"},"
                "{\"received\":null,\"code\":\"invalid_literal\",\"expected\":\"fake\",\"path\":["
                "\"c\"],\"message\":\"Invalid literal value, expected \\\"fake\\\"\"},"
                "{\"code\":\"invalid_literal\",\"expected\":\"fake\",\"path\":[\"none\"],"
                "\"message\":\"Invalid literal value, expected \\\"fake\\\"\"}]");
}

/* environment-runtime, section 2.3: `Expected null, received string`. */
static void test_null_only(void **state)
{
        struct check *c = begin("{\"privateKey\":\"k\"}");

        (void)state;
        check_null(c, "privateKey");
        assert_issues(c, "[{\"code\":\"invalid_type\",\"expected\":\"null\",\"received\":"
                         "\"string\",\"path\":[\"privateKey\"],\"message\":\"Expected null, "
                         "received string\"}]");
}

/* Field issues come in schema order; the unknown-key issue comes last. */
static void test_unknown_keys(void **state)
{
        struct check *c = begin("{\"z\":1,\"name\":5,\"a\":2}");

        (void)state;
        check_string(c, "name", CHECK_REQUIRED, 1, 0);
        check_unknown(c, (const char *[]){ "name", "config", NULL });
        assert_issues(c, "[{\"code\":\"invalid_type\",\"expected\":\"string\",\"received\":"
                         "\"number\",\"path\":[\"name\"],\"message\":\"Expected string, received "
                         "number\"},"
                         "{\"code\":\"unrecognized_keys\",\"keys\":[\"z\",\"a\"],\"path\":[],"
                         "\"message\":\"Unrecognized key(s) in object: 'z', 'a'\"}]");
        c = begin("{\"name\":5}");
        check_unknown(c, (const char *[]){ "name", NULL });
        assert_fine(c);
}

static void test_nested(void **state)
{
        struct check *c = begin("{\"ref\":{\"secretId\":\"x\",\"extra\":1,\"in\":{}},"
                                "\"list\":[{},{\"n\":\" t \"},7],\"names\":[\"a\",5,\"\"]}");
        struct check ref, in, item, none;
        json_t *list = check_array(c, "list", 0);

        (void)state;
        check_nested(&ref, c, "ref", check_record(c, "ref", 0));
        check_nested(&in, &ref, "in", check_record(&ref, "in", 0));
        check_string(&in, "deep", CHECK_REQUIRED, 0, 0);
        check_uuid(&ref, "secretId", CHECK_REQUIRED);
        check_unknown(&ref, (const char *[]){ "secretId", "in", NULL });
        check_nested(&none, c, "absent", check_record(c, "absent", 0));
        check_string(&none, "x", CHECK_REQUIRED, 0, 0);
        check_nested_item(&item, c, "list", 0, json_array_get(list, 0));
        check_string(&item, "n", CHECK_REQUIRED, 0, 0);
        check_nested_item(&item, c, "list", 1, json_array_get(list, 1));
        assert_string_equal(check_string(&item, "n", CHECK_REQUIRED | CHECK_TRIM, 1, 0), "t");
        check_nested_item(&item, c, "list", 2, json_array_get(list, 2));
        check_string(&item, "n", CHECK_REQUIRED, 0, 0);
        assert_null(check_strings(c, "names", 0, 1));
        check_custom(&ref, NULL, "no");
        check_custom(&ref, "version", "bad");
        assert_true(check_failed(&in));
        check_done(&in); /* nothing of its own */
        assert_issues(
                c, "[{\"code\":\"invalid_type\",\"expected\":\"string\",\"received\":\"undefined\","
                   "\"path\":[\"ref\",\"in\",\"deep\"],\"message\":\"Required\"},"
                   "{\"validation\":\"uuid\",\"code\":\"invalid_string\",\"message\":\"Invalid "
                   "uuid\",\"path\":[\"ref\",\"secretId\"]},"
                   "{\"code\":\"unrecognized_keys\",\"keys\":[\"extra\"],\"path\":[\"ref\"],"
                   "\"message\":\"Unrecognized key(s) in object: 'extra'\"},"
                   "{\"code\":\"invalid_type\",\"expected\":\"string\",\"received\":\"undefined\","
                   "\"path\":[\"list\",0,\"n\"],\"message\":\"Required\"},"
                   "{\"code\":\"invalid_type\",\"expected\":\"object\",\"received\":\"number\","
                   "\"path\":[\"list\",2],\"message\":\"Expected object, received number\"},"
                   "{\"code\":\"invalid_type\",\"expected\":\"string\",\"received\":\"number\","
                   "\"path\":[\"names\",1],\"message\":\"Expected string, received number\"},"
                   "{\"code\":\"too_small\",\"minimum\":1,\"type\":\"string\",\"inclusive\":true,"
                   "\"exact\":false,\"message\":\"String must contain at least 1 character(s)\","
                   "\"path\":[\"names\",2]},"
                   "{\"code\":\"custom\",\"path\":[\"ref\"],\"message\":\"no\"},"
                   "{\"code\":\"custom\",\"path\":[\"ref\",\"version\"],\"message\":\"bad\"}]");
}

static void test_arrays(void **state)
{
        struct check *c = begin("{\"none\":[],\"two\":[\"a\",\"b\"]}");

        (void)state;
        assert_int_equal(json_array_size(check_strings(c, "two", CHECK_REQUIRED, 1)), 2);
        assert_null(check_strings(c, "absent", 0, 1));
        check_array_size(c, "two", check_array(c, "two", 0), 2, 2);
        check_array_size(c, "absent", NULL, 1, 1);
        assert_false(check_failed(c));
        check_array_size(c, "none", check_array(c, "none", 0), 1, 0);
        check_array_size(c, "two", check_array(c, "two", 0), 0, 1);
        assert_issues(c, "[{\"code\":\"too_small\",\"minimum\":1,\"type\":\"array\",\"inclusive\":"
                         "true,\"exact\":false,\"message\":\"Array must contain at least 1 "
                         "element(s)\",\"path\":[\"none\"]},"
                         "{\"code\":\"too_big\",\"maximum\":1,\"type\":\"array\",\"inclusive\":"
                         "true,\"exact\":false,\"message\":\"Array must contain at most 1 "
                         "element(s)\",\"path\":[\"two\"]}]");
}

/* http-api, section 1.4: config failures are 422, the first message as error, all under
 * details.issues. */
static void test_end_config(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        struct check *c = begin("{}");

        (void)state;
        assert_int_equal(check_end_config(c, &e), 0);
        check_custom(c, "a", "First 100%.");
        check_custom(c, "b", "Second.");
        assert_int_equal(check_end_config(c, &e), ERR_UNPROCESSABLE);
        assert_string_equal(e.msg, "First 100%.");
        assert_string_equal(
                e.details,
                "{\"issues\":[{\"code\":\"custom\",\"path\":[\"a\"],\"message\":\"First 100%.\"},"
                "{\"code\":\"custom\",\"path\":[\"b\"],\"message\":\"Second.\"}]}");
        check_done(c);
        json_decref(doc);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_root),
                cmocka_unit_test(test_required_and_types),
                cmocka_unit_test(test_values_are_returned),
                cmocka_unit_test(test_string_bounds),
                cmocka_unit_test(test_characters_are_utf16_units),
                cmocka_unit_test(test_trim),
                cmocka_unit_test(test_own_text),
                cmocka_unit_test(test_uuid),
                cmocka_unit_test(test_enum),
                cmocka_unit_test(test_integers),
                cmocka_unit_test(test_positive),
                cmocka_unit_test(test_integers_beyond_the_safe_ones),
                cmocka_unit_test(test_coerced_integers),
                cmocka_unit_test(test_literal),
                cmocka_unit_test(test_null_only),
                cmocka_unit_test(test_unknown_keys),
                cmocka_unit_test(test_nested),
                cmocka_unit_test(test_arrays),
                cmocka_unit_test(test_end_config),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
