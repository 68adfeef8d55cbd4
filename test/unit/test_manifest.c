/* plugin-protocol section 1.2-1.4 */
#include "test.h"

#include "plugin/manifest.h"

#define DRIVER                                                                                     \
        "{\"driverKey\":\"box\",\"kind\":\"sandbox_provider\",\"displayName\":\"Box\","            \
        "\"configSchema\":{\"type\":\"object\"}}"

static json_t *parse(const char *text)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *v;

        if (json_parse(text, strlen(text), &v, &e) < 0)
                fail_msg("%s: %s", e.msg, text);
        return v;
}

static json_t *good(void)
{
        return parse("{\"id\":\"acme.box\",\"apiVersion\":1,\"version\":\"0.1.0\","
                     "\"displayName\":\"Acme\",\"description\":\"d\",\"author\":\"a\","
                     "\"categories\":[\"automation\"],"
                     "\"capabilities\":[\"environment.drivers.register\"],"
                     "\"entrypoints\":{\"worker\":\"./worker.js\"},"
                     "\"environmentDrivers\":[" DRIVER "]}");
}

/* A good manifest with one member set to the given JSON (NULL: taken away). */
static json_t *with(const char *member, const char *json)
{
        json_t *m = good();

        if (json)
                json_object_set_new(m, member, parse(json));
        else
                json_object_del(m, member);
        return m;
}

/* The text without its beginning; NULL when the manifest is fine. */
static const char *complaint(json_t *take_manifest, struct err *e)
{
        static const char start[] = "Invalid plugin manifest: ";
        CLEAN(json_decrefp) json_t *given = take_manifest;
        CLEAN(json_decrefp) json_t *ret = NULL;
        int r = manifest_check(given, PLUGIN_HOST_VERSION, NULL, &ret, e);

        if (r == 0)
                return NULL;
        assert_int_equal(r, ERR_INVALID);
        assert_null(ret);
        return strncmp(e->msg, start, strlen(start)) == 0 ? e->msg + strlen(start) : e->msg;
}

static const struct {
        const char *member, *json;
        const char *says; /* NULL: fine */
} cases[] = {
        { "id", NULL, "id: Required" },
        { "id", "\"Acme\"", "id: must begin with" },
        { "id", "\"-a\"", "id: must begin with" },
        { "id", "7", "id: Expected string, received number" },
        { "apiVersion", "2", "apiVersion: Invalid literal value, expected 1" },
        { "apiVersion", "\"1\"", "apiVersion: Invalid literal value, expected 1" },
        { "version", "\"1.0\"", "version: must be a version" },
        { "version", "\"1.0.0-rc.1+5\"", NULL },
        { "displayName", "\"\"", "displayName: String must contain at least 1 character(s)" },
        { "description", NULL, "description: Required" },
        { "author", "null", "author: Expected string, received null" },
        { "categories", "[]", "categories: Array must contain at least 1 element(s)" },
        { "categories", "[\"magic\"]", "categories: Invalid enum value." },
        { "capabilities", "[]", "capabilities: Array must contain at least 1 element(s)" },
        { "capabilities", "[\"http.outbound\"]",
          "capabilities: Capability 'environment.drivers.register' is required when "
          "environmentDrivers are declared" },
        { "capabilities", "[\"environment.drivers.register\",\"time.travel\"]", NULL },
        { "entrypoints", "{}", "entrypoints.worker: Required" },
        { "entrypoints", "{\"worker\":\"\"}", "entrypoints.worker: String must contain" },
        { "minimumHostVersion", "\"x\"", "minimumHostVersion: must be a version" },
        { "minimumHostVersion", "\"2026.512.0\"", NULL },
        { "minimumHostVersion", "\"9999.0.0\"",
          "Plugin acme.box requires host version 9999.0.0 or newer, but this server is running "
          "2026.916.1" },
        { "minimumPaperclipVersion", "\"9999.0.0\"", "Plugin acme.box requires host version" },
        { "instanceConfigSchema", "{}", NULL },
        { "instanceConfigSchema", "{\"anyOf\":[]}", NULL },
        { "instanceConfigSchema", "{\"properties\":{}}", "instanceConfigSchema: must be a JSON" },
        { "environmentDrivers", "[]", NULL },
        { "environmentDrivers", "{}", "environmentDrivers: Expected array, received object" },
        { "environmentDrivers", "[1]", "environmentDrivers.0: Expected object, received number" },
        { "environmentDrivers", "[" DRIVER "," DRIVER "]",
          "environmentDrivers: Duplicate environment driver keys: box" },
        { "environmentDrivers", "[{\"driverKey\":\"b\",\"displayName\":\"B\"}]",
          "environmentDrivers.0.configSchema: Required" },
        { "tools", "[{\"name\":\"t\"}]",
          "Plugin acme.box manifest has inconsistent capabilities. Missing required capabilities "
          "for declared features: agent.tools.register" },
        { "tools", "[]", NULL },
};

static void test_members(void **state)
{
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                CLEAN(err_done) struct err e = { 0 };
                const char *says = complaint(with(cases[i].member, cases[i].json), &e);

                if (!says != !cases[i].says ||
                    (says && strncmp(says, cases[i].says, strlen(cases[i].says)) != 0))
                        fail_msg("%s = %s: %s", cases[i].member, cases[i].json, says);
        }
}

/* Members of a driver; the rest of it is fine. */
static const struct {
        const char *members, *says;
} driver_cases[] = {
        { "\"driverKey\":\"B\"", "environmentDrivers.0.driverKey: must begin with" },
        { "\"kind\":\"other\"", "environmentDrivers.0.kind: Invalid enum value." },
        { "\"supportsLoginPty\":1", "environmentDrivers.0.supportsLoginPty: Expected boolean" },
        { "\"sandboxCapabilities\":{\"reusableLeases\":true}", NULL },
        { "\"sandboxCapabilities\":{\"levitation\":true}",
          "environmentDrivers.0.sandboxCapabilities: Unrecognized key(s)" },
        { "\"sandboxCapabilities\":{\"nativeSyncIn\":1}",
          "environmentDrivers.0.sandboxCapabilities.nativeSyncIn: Expected boolean" },
        { "\"supportsLoginPty\":true,\"supportsSetupTokenLogin\":false",
          "environmentDrivers.0.supportsSetupTokenLogin: must equal" },
        { "\"supportsLoginPty\":true,\"supportsSetupTokenLogin\":true", NULL },
        { "\"interactiveSetupConnectionTypes\":[\"\"]",
          "environmentDrivers.0.interactiveSetupConnectionTypes.0: String must contain" },
        { "\"interactiveSetupConnectionTypes\":[1]",
          "environmentDrivers.0.interactiveSetupConnectionTypes.0: Expected string" },
        { "\"templateRefKind\":\"\"", "environmentDrivers.0.templateRefKind: String must" },
        { "\"templateConfigBinding\":{\"field\":\"image\",\"unsetFields\":[\"tag\"]}", NULL },
        { "\"templateConfigBinding\":{\"field\":\"provider\"}",
          "environmentDrivers.0.templateConfigBinding.field: is not the name of a field" },
        { "\"templateConfigBinding\":{\"field\":\"a\",\"unsetFields\":[\"a\"]}",
          "environmentDrivers.0.templateConfigBinding.unsetFields: must be different" },
        { "\"templateConfigBinding\":{\"field\":\"a\",\"unsetFields\":[\"b\",\"b\"]}",
          "environmentDrivers.0.templateConfigBinding.unsetFields: must be different" },
        { "\"templateConfigBinding\":{\"field\":\"a\",\"more\":1}",
          "environmentDrivers.0.templateConfigBinding: Unrecognized key(s)" },
        { "\"templateIdentityPaths\":[\"a\"]", NULL },
        { "\"somethingNew\":{\"x\":1}", NULL },
};

static void test_drivers(void **state)
{
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(driver_cases); i++) {
                CLEAN(err_done) struct err e = { 0 };
                CLEAN(buf_done) struct buf text = BUF_INIT;
                json_t *driver = parse(DRIVER), *more, *m = good();
                const char *says;

                buf_appendf(&text, "{%s}", driver_cases[i].members);
                more = parse(buf_str(&text));
                json_object_update(driver, more);
                json_decref(more);
                json_object_set_new(m, "environmentDrivers", json_pack("[o]", driver));
                says = complaint(m, &e);
                if (!says != !driver_cases[i].says ||
                    (says &&
                     strncmp(says, driver_cases[i].says, strlen(driver_cases[i].says)) != 0))
                        fail_msg("%s: %s", driver_cases[i].members, says);
        }
}

static void test_the_two_minimum_versions(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *m = with("minimumHostVersion", "\"1.0.0\"");

        (void)state;
        json_object_set_new(m, "minimumPaperclipVersion", json_string("1.0.1"));
        assert_string_equal(complaint(m, &e), "minimumHostVersion: must equal "
                                              "minimumPaperclipVersion when both are given");
        m = with("minimumHostVersion", "\"9999.0.0\"");
        CLEAN(json_decrefp) json_t *kept = NULL;
        assert_int_equal(manifest_check(m, NULL, NULL, &kept, &e), 0); /* an unknown host */
        json_decref(m);
}

static void test_several_complaints(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *m = with("id", "\"A\"");

        (void)state;
        json_object_del(m, "author");
        assert_non_null(strstr(complaint(m, &e), "; author: Required"));
        assert_string_equal(complaint(parse("[]"), &e), ": Expected object, received array");
        assert_non_null(complaint(NULL, &e));
}

static void test_unknown_things_are_dropped(void **state)
{
        CLEAN(json_decrefp) json_t *given = with("surprise", "{\"a\":1}");
        CLEAN(json_decrefp) json_t *warnings = json_array();
        CLEAN(json_decrefp) json_t *kept = NULL;
        json_t *driver = json_array_get(json_object_get(given, "environmentDrivers"), 0);

        (void)state;
        json_object_set_new(driver, "surprise", json_true());
        json_object_set_new(driver, "supportsSetupTokenLogin", json_true());
        json_array_append_new(json_object_get(given, "capabilities"), json_string("time.travel"));
        assert_int_equal(manifest_check(given, PLUGIN_HOST_VERSION, warnings, &kept, NULL), 0);
        assert_null(json_object_get(kept, "surprise"));
        driver = manifest_driver(kept, "box", "sandbox_provider");
        assert_non_null(driver);
        assert_null(json_object_get(driver, "surprise"));
        assert_null(json_object_get(driver, "supportsSetupTokenLogin"));
        assert_true(json_is_true(json_object_get(driver, "supportsLoginPty")));
        assert_int_equal(json_array_size(warnings), 1);
        assert_string_equal(json_string_value(json_array_get(warnings, 0)),
                            "unknown capability \"time.travel\"");
        assert_null(manifest_driver(kept, "box", "environment_driver"));
        assert_null(manifest_driver(kept, "other", NULL));
}

static void test_new_capabilities(void **state)
{
        CLEAN(json_decrefp) json_t *now = good();
        CLEAN(json_decrefp)
        json_t *next = with("capabilities", "[\"http.outbound\",\"environment.drivers.register\"]");
        CLEAN(json_decrefp) json_t *grown = manifest_new_capabilities(now, next);
        CLEAN(json_decrefp) json_t *shrunk = manifest_new_capabilities(next, now);

        (void)state;
        assert_int_equal(json_array_size(grown), 1);
        assert_string_equal(json_string_value(json_array_get(grown, 0)), "http.outbound");
        assert_int_equal(json_array_size(shrunk), 0);
}

static void test_too_many_drivers(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *drivers = json_array(), *m = good();

        (void)state;
        for (int i = 0; i <= MANIFEST_MAX_DRIVERS; i++)
                json_array_append_new(drivers, parse(DRIVER));
        json_object_set_new(m, "environmentDrivers", drivers);
        assert_string_equal(complaint(m, &e),
                            "environmentDrivers: Array must contain at most 64 element(s)");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_members),
                cmocka_unit_test(test_drivers),
                cmocka_unit_test(test_the_two_minimum_versions),
                cmocka_unit_test(test_several_complaints),
                cmocka_unit_test(test_unknown_things_are_dropped),
                cmocka_unit_test(test_new_capabilities),
                cmocka_unit_test(test_too_many_drivers),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
