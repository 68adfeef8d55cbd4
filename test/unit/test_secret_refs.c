#include "test.h"

#include "codec/secret_refs.h"

static json_t *parse(const char *text)
{
        json_t *v = NULL;

        assert_int_equal(json_parse(text, strlen(text), &v, NULL), 0);
        return v;
}

static void expect(const char *schema, const char *paths)
{
        json_t *doc = parse(schema), *found = secret_ref_paths(doc);
        char *text = json_to_text(found);

        assert_string_equal(text, paths);
        free(text);
        json_decref(found);
        json_decref(doc);
}

/* environment-runtime 7.126; http-api 8.65 */
static void test_nested_properties(void **state)
{
        (void)state;
        expect("{\"type\":\"object\",\"properties\":{\"image\":{\"type\":\"string\"},"
               "\"credentials\":{\"type\":\"object\",\"properties\":{\"apiKey\":{\"type\":"
               "\"string\",\"format\":\"secret-ref\"}}}}}",
               "[\"credentials.apiKey\"]");
}

/* environment-runtime 7.127; http-api 8.65 */
static void test_branches(void **state)
{
        (void)state;
        expect("{\"allOf\":[{\"properties\":{\"apiKey\":{\"format\":\"secret-ref\"}}}],"
               "\"properties\":{\"nested\":{\"oneOf\":[{\"properties\":{\"token\":{\"format\":"
               "\"secret-ref\"}}},{\"properties\":{\"token\":{\"format\":\"secret-ref\"}}}]}}}",
               "[\"apiKey\",\"nested.token\"]");
        expect("{\"properties\":{\"list\":{\"items\":{\"format\":\"secret-ref\"}},\"odd\":5},"
               "\"$ref\":\"#/x\",\"anyOf\":{\"a\":1}}",
               "[]");
        expect("[1]", "[]");
}

static void test_reading_and_writing_at_a_path(void **state)
{
        json_t *doc = parse("{\"a\":{\"b\":\"x\"},\"s\":\"text\"}");
        char *text;

        (void)state;
        assert_string_equal(json_string_value(json_path_get(doc, "a.b")), "x");
        assert_null(json_path_get(doc, "a.b.c"));
        assert_null(json_path_get(doc, "s.b"));
        assert_null(json_path_get(json_null(), "a"));
        json_path_set(doc, "s.t.u", json_string("new"));
        json_path_set(doc, "a.b", NULL);
        text = json_to_text(doc);
        assert_string_equal(text, "{\"a\":{},\"s\":{\"t\":{\"u\":\"new\"}}}");
        free(text);
        json_decref(doc);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_nested_properties),
                cmocka_unit_test(test_branches),
                cmocka_unit_test(test_reading_and_writing_at_a_path),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
