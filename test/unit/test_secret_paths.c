#include "test.h"

#include "codec/secret_paths.h"

static json_t *parse(const char *text)
{
        json_t *v = NULL;

        assert_int_equal(json_parse(text, strlen(text), &v, NULL), 0);
        return v;
}

static void assert_paths(const char *schema, const char *expected)
{
        json_t *given = parse(schema), *found = secret_paths(given);
        CLEAN(cleanup_free) char *text = json_to_text(found);

        assert_string_equal(text, expected);
        json_decref(given);
        json_decref(found);
}

/* environment-runtime 7.126, 7.127 */
static void test_paths(void **state)
{
        assert_paths("{}", "[]");
        assert_paths("7", "[]");
        assert_paths("{\"properties\":{\"credentials\":{\"type\":\"object\",\"properties\":"
                     "{\"apiKey\":{\"format\":\"secret-ref\"},\"x\":{}}},\"y\":7}}",
                     "[\"credentials.apiKey\"]");
        assert_paths("{\"allOf\":[{\"properties\":{\"apiKey\":{\"format\":\"secret-ref\"}}},7],"
                     "\"properties\":{\"nested\":{\"oneOf\":[{\"properties\":{\"token\":"
                     "{\"format\":\"secret-ref\"}}}]},\"apiKey\":{\"format\":\"secret-ref\"}}}",
                     "[\"apiKey\",\"nested.token\"]");
        assert_paths("{\"items\":{\"properties\":{\"a\":{\"format\":\"secret-ref\"}}},"
                     "\"format\":\"secret-ref\",\"properties\":{\"b\":{\"format\":\"Secret-ref\"}}}",
                     "[]");
}

static void assert_pruned(const char *config, const char *path, const char *expected)
{
        json_t *v = parse(config);
        CLEAN(cleanup_free) char *text = NULL;

        secret_path_prune(v, path);
        text = json_to_text(v);
        assert_string_equal(text, expected);
        json_decref(v);
}

static void test_prune(void **state)
{
        assert_pruned("{\"a\":{\"b\":{\"c\":1}},\"d\":2}", "a.b.c", "{\"d\":2}");
        assert_pruned("{\"a\":{\"b\":{\"c\":1},\"e\":3}}", "a.b.c", "{\"a\":{\"e\":3}}");
        assert_pruned("{\"a\":[{\"c\":1}]}", "a.c", "{\"a\":[{\"c\":1}]}");
        assert_pruned("{\"a\":{}}", "a.b", "{\"a\":{}}");
        assert_pruned("{\"a\":1}", "a", "{}");
}

static void test_set(void **state)
{
        json_t *v = parse("{\"a\":7}");
        CLEAN(cleanup_free) char *text = NULL;

        secret_path_set(v, "a.b", json_integer(1));
        secret_path_set(v, "c.d.e", NULL);
        secret_path_set(v, "f", json_integer(2));
        assert_int_equal(json_integer_value(secret_path_get(v, "a.b")), 1);
        assert_null(secret_path_get(v, "f.g"));
        text = json_to_text(v);
        assert_string_equal(text, "{\"a\":{\"b\":1},\"f\":2}");
        json_decref(v);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_paths),
                cmocka_unit_test(test_prune),
                cmocka_unit_test(test_set),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
