#include "test.h"

#include "codec/jsonschema.h"

static json_t *parse(const char *text)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *v;

        if (json_parse(text, strlen(text), &v, &e) < 0)
                fail_msg("%s: %s", e.msg, text);
        return v;
}

/* Every case: a schema, a document, and the errors as "field message" lines. */
static const struct {
        const char *schema, *value, *errors;
} cases[] = {
        { "{}", "[1]", "" },
        { "true", "1", "" },
        { "false", "1", "/ boolean schema is false\n" },
        { "{\"type\":\"string\"}", "1", "/ must be string\n" },
        { "{\"type\":\"integer\"}", "1.0", "" },
        { "{\"type\":\"integer\"}", "1.5", "/ must be integer\n" },
        { "{\"type\":[\"string\",\"null\"]}", "null", "" },
        { "{\"type\":[\"string\",\"null\"]}", "false", "/ must be string,null\n" },
        { "{\"enum\":[1,\"a\"]}", "\"a\"", "" },
        { "{\"enum\":[1,\"a\"]}", "2", "/ must be equal to one of the allowed values\n" },
        { "{\"const\":1}", "1.0", "" },
        { "{\"const\":1}", "2", "/ must be equal to constant\n" },
        { "{\"minimum\":1,\"maximum\":3}", "0", "/ must be >= 1\n" },
        { "{\"minimum\":1,\"maximum\":3}", "4", "/ must be <= 3\n" },
        { "{\"exclusiveMinimum\":1}", "1", "/ must be > 1\n" },
        { "{\"exclusiveMaximum\":1}", "1", "/ must be < 1\n" },
        { "{\"multipleOf\":5}", "7", "/ must be multiple of 5\n" },
        { "{\"minLength\":2}", "\"\xc3\xa4\"", "/ must NOT have fewer than 2 characters\n" },
        { "{\"maxLength\":2}", "\"\xc3\xa4\xc3\xa4\"", "" },
        { "{\"maxLength\":2}", "\"abc\"", "/ must NOT have more than 2 characters\n" },
        { "{\"format\":\"uri\"}", "\"https://x\"", "" },
        { "{\"format\":\"uri\"}", "\"x\"", "/ must match format \"uri\"\n" },
        { "{\"format\":\"email\"}", "\"a@b\"", "" },
        { "{\"format\":\"email\"}", "\"a\"", "/ must match format \"email\"\n" },
        { "{\"format\":\"date-time\"}", "\"2026-01-01\"", "/ must match format \"date-time\"\n" },
        { "{\"format\":\"uuid\"}", "\"1\"", "/ must match format \"uuid\"\n" },
        { "{\"format\":\"secret-ref\"}", "\"anything\"", "" },
        { "{\"items\":{\"type\":\"string\"},\"minItems\":3}", "[\"a\",1]",
          "/ must NOT have fewer than 3 items\n/1 must be string\n" },
        { "{\"maxItems\":1}", "[1,2]", "/ must NOT have more than 1 items\n" },
        { "{\"uniqueItems\":true}", "[1,2,1]",
          "/ must NOT have duplicate items (items ## 0 and 2 are identical)\n" },
        { "{\"required\":[\"a\",\"b\"]}", "{\"a\":1}", "/ must have required property 'b'\n" },
        { "{\"properties\":{\"a/b~\":{\"type\":\"string\"}}}", "{\"a/b~\":1}",
          "/a~1b~0 must be string\n" },
        { "{\"additionalProperties\":false,\"properties\":{\"a\":{}}}", "{\"a\":1,\"b\":2}",
          "/ must NOT have additional properties\n" },
        { "{\"additionalProperties\":{\"type\":\"string\"}}", "{\"b\":2}", "/b must be string\n" },
        { "{\"minProperties\":1}", "{}", "/ must NOT have fewer than 1 properties\n" },
        { "{\"maxProperties\":1}", "{\"a\":1,\"b\":1}",
          "/ must NOT have more than 1 properties\n" },
        { "{\"allOf\":[{\"type\":\"number\"},{\"minimum\":5}]}", "4", "/ must be >= 5\n" },
        { "{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":5}]}", "4",
          "/ must match a schema in anyOf\n" },
        { "{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":5}]}", "6", "" },
        { "{\"oneOf\":[{\"type\":\"number\"},{\"minimum\":5}]}", "6",
          "/ must match exactly one schema in oneOf\n" },
        { "{\"oneOf\":[{\"type\":\"number\"},{\"minimum\":5}]}", "4", "" },
        { "{\"not\":{\"type\":\"string\"}}", "\"x\"", "/ must NOT be valid\n" },
        { "{\"$ref\":\"#/$defs/port\",\"$defs\":{\"port\":{\"maximum\":9}}}", "10",
          "/ must be <= 9\n" },
        { "{\"$ref\":\"#/nowhere\"}", "1",
          "/ cannot be checked: the schema refers to something that is not in it\n" },
        { "{\"$ref\":\"other.json\"}", "1",
          "/ cannot be checked: the schema refers to something that is not in it\n" },
};

static void test_keywords(void **state)
{
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                CLEAN(json_decrefp) json_t *schema = parse(cases[i].schema);
                CLEAN(json_decrefp) json_t *value = parse(cases[i].value);
                CLEAN(json_decrefp) json_t *errors = json_array();
                CLEAN(buf_done) struct buf found = BUF_INIT;
                int n = jsonschema_check(schema, value, errors, NULL);
                json_t *e;
                size_t j;

                json_array_foreach(errors, j, e)
                        buf_appendf(&found, "%s %s\n", json_get_string(e, "field"),
                                    json_get_string(e, "message"));
                if (n != (int)json_array_size(errors) ||
                    strcmp(buf_str(&found), cases[i].errors) != 0)
                        fail_msg("%s and %s:\n%s", cases[i].schema, cases[i].value,
                                 buf_str(&found));
        }
}

/* A schema may ask for more work than anybody has: that is an answer, not a hang. */
static void test_work_is_bounded(void **state)
{
        static const char *const schemas[] = {
                "{\"$ref\":\"#\"}",
                "{\"anyOf\":[{\"$ref\":\"#\"},{\"$ref\":\"#\"},{\"$ref\":\"#\"}]}",
                "{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"allOf\":[{\"$ref\":\"#\"}]}",
        };
        CLEAN(json_decrefp) json_t *value = json_pack("{s:{s:{}}}", "a", "a");

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(schemas); i++) {
                CLEAN(json_decrefp) json_t *schema = parse(schemas[i]);
                CLEAN(err_done) struct err e = { 0 };

                assert_int_equal(jsonschema_check(schema, value, NULL, &e), ERR_TOO_LARGE);
                assert_string_equal(e.msg, "the schema is too much work to check");
        }
}

static void test_errors_are_bounded(void **state)
{
        CLEAN(json_decrefp) json_t *schema = parse("{\"items\":{\"type\":\"string\"}}");
        CLEAN(json_decrefp) json_t *value = json_array();
        CLEAN(json_decrefp) json_t *errors = json_array();

        (void)state;
        for (int i = 0; i < 1000; i++)
                json_array_append_new(value, json_integer(i));
        assert_int_equal(jsonschema_check(schema, value, errors, NULL), 1000);
        assert_int_equal(json_array_size(errors), JSONSCHEMA_MAX_ERRORS);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_keywords),
                cmocka_unit_test(test_work_is_bounded),
                cmocka_unit_test(test_errors_are_bounded),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
