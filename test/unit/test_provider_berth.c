/* The configuration of the built-in sandbox. */
#include "test.h"

#include "core/kinds/berth/berth.h"

static const struct runtime kinds = { .kinds = builtin_kinds };

static int normalize(const char *text, json_t **ret, struct err *err)
{
        json_t *given = NULL;
        int r;

        assert_int_equal(json_parse(text, strlen(text), &given, NULL), 0);
        r = kind_normalize(&kinds, "sandbox", given, CONFIG_SUBMITTED, ret, err);
        json_decref(given);
        return r;
}

static void test_defaults(void **state)
{
        json_t *config = NULL;
        char *text;

        (void)state;
        assert_int_equal(normalize("{\"provider\":\" berth \"}", &config, NULL), 0);
        text = json_to_text(config);
        assert_string_equal(
                text, "{\"provider\":\"berth\",\"reuseLease\":false,\"user\":\"agent\","
                      "\"network\":\"none\",\"allowedHosts\":[],\"nestedSandbox\":false,"
                      "\"memoryMb\":2048,\"cpus\":2,\"maxProcesses\":512,\"maxOpenFiles\":4096,"
                      "\"diskMb\":2048,\"storage\":\"memory\",\"env\":{},\"workspaceMode\":"
                      "\"private\",\"poolSize\":0}");
        free(text);
        json_decref(config);
}

/* What was normalised once is normal. */
static void test_stays_as_it_is(void **state)
{
        static const char all[] =
                "{\"provider\":\"berth\",\"timeoutMs\":5,\"reuseLease\":true,\"rootfs\":\"/srv/r\","
                "\"user\":\"root\",\"network\":\"allowlist\",\"allowedHosts\":[\"a.example.com\"],"
                "\"nestedSandbox\":true,\"memoryMb\":16,\"cpus\":0.5,\"maxProcesses\":4,"
                "\"maxOpenFiles\":64,\"diskMb\":16,\"storage\":\"disk\",\"wallTimeMs\":1000,"
                "\"env\":{\"A\":\"b\"},\"snapshot\":\"s\",\"workspaceMode\":\"private\","
                "\"poolSize\":256}";
        json_t *config = NULL;
        char *text;

        (void)state;
        assert_int_equal(normalize(all, &config, NULL), 0);
        text = json_to_text(config);
        assert_string_equal(text, all);
        free(text);
        json_decref(config);
}

static const struct {
        const char *config, *text, *path;
} refused[] = {
        { "{\"picture\":\"x\",\"extra\":1}", "Unrecognized key(s) in object: 'picture', 'extra'",
          NULL },
        { "{\"memoryMb\":15}", "Number must be greater than or equal to 16", "memoryMb" },
        { "{\"memoryMb\":4194305}", "Number must be less than or equal to 4194304", "memoryMb" },
        { "{\"memoryMb\":1.5}", "Expected integer, received float", "memoryMb" },
        { "{\"memoryMb\":\"64\"}", "Expected number, received string", "memoryMb" },
        { "{\"cpus\":0}", "Number must be greater than 0", "cpus" },
        { "{\"cpus\":4097}", "Number must be less than or equal to 4096", "cpus" },
        { "{\"cpus\":\"2\"}", "Expected number, received string", "cpus" },
        { "{\"maxProcesses\":3}", "Number must be greater than or equal to 4", "maxProcesses" },
        { "{\"maxOpenFiles\":63}", "Number must be greater than or equal to 64", "maxOpenFiles" },
        { "{\"diskMb\":15}", "Number must be greater than or equal to 16", "diskMb" },
        { "{\"wallTimeMs\":999}", "Number must be greater than or equal to 1000", "wallTimeMs" },
        { "{\"timeoutMs\":0}", "Number must be greater than or equal to 1", "timeoutMs" },
        { "{\"timeoutMs\":86400001}", "Number must be less than or equal to 86400000",
          "timeoutMs" },
        { "{\"poolSize\":257}", "Number must be less than or equal to 256", "poolSize" },
        { "{\"poolSize\":-1}", "Number must be greater than or equal to 0", "poolSize" },
        { "{\"user\":\"nobody\"}",
          "Invalid enum value. Expected 'agent' | 'root', received 'nobody'", "user" },
        { "{\"network\":\"open\"}",
          "Invalid enum value. Expected 'none' | 'allowlist' | 'host', received 'open'",
          "network" },
        { "{\"storage\":1}", "Expected 'memory' | 'disk' | 'image', received number", "storage" },
        { "{\"reuseLease\":1}", "Expected boolean, received number", "reuseLease" },
        { "{\"nestedSandbox\":\"true\"}", "Expected boolean, received string", "nestedSandbox" },
        { "{\"env\":{\"A\":1}}", "Expected string, received number", "env" },
        { "{\"env\":{\"A=B\":\"x\"}}", "Not a name for a variable", "env" },
        { "{\"env\":[]}", "Expected object, received array", "env" },
        { "{\"rootfs\":\"srv\"}", "rootfs must be an absolute path without `..`.", "rootfs" },
        { "{\"rootfs\":\"/a/../b\"}", "rootfs must be an absolute path without `..`.", "rootfs" },
        { "{\"rootfs\":\"/\"}", "rootfs must be an absolute path without `..`.", "rootfs" },
        { "{\"rootfs\":\"  \"}", "String must contain at least 1 character(s)", "rootfs" },
        { "{\"image\":\"x\",\"rootfs\":\"/srv/r\"}", "image and rootfs exclude each other.",
          "image" },
        { "{\"pull\":\"always\"}", "pull needs an image.", "pull" },
        { "{\"image\":\"x\",\"pull\":\"always\",\"poolSize\":1}",
          "pull \"always\" and poolSize exclude each other: sandboxes made in advance have the "
          "image of that time.",
          "pull" },
        { "{\"user\":\"root\"}",
          "user \"root\" needs a rootfs: without one the sandbox has the host's programs, and "
          "nothing in it is root's to change.",
          "user" },
        { "{\"network\":\"allowlist\"}",
          "network \"allowlist\" needs at least one entry in allowedHosts.", "allowedHosts" },
        { "{\"allowedHosts\":[\"a.example.com\"]}", "allowedHosts needs network \"allowlist\".",
          "allowedHosts" },
        { "{\"snapshot\":\"../x\"}",
          "A snapshot's name has 1 to 64 letters, digits, dots, hyphens or underscores and begins "
          "with a letter or digit.",
          "snapshot" },
};

static void assert_path(const char *details, const char *key)
{
        json_t *parsed = NULL;
        json_t *issue;
        const char *first;

        assert_int_equal(json_parse(details, strlen(details), &parsed, NULL), 0);
        issue = json_array_get(json_object_get(parsed, "issues"), 0);
        first = json_string_value(json_array_get(json_object_get(issue, "path"), 0));
        if (key)
                assert_string_equal(first, key);
        else
                assert_null(first);
        json_decref(parsed);
}

/* environment-runtime section 2.1: texts, issues and their paths */
static void test_refused(void **state)
{
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
                CLEAN(err_done) struct err err = { 0 };
                json_t *given = NULL, *config = NULL;

                assert_int_equal(
                        json_parse(refused[i].config, strlen(refused[i].config), &given, NULL), 0);
                json_object_set_new(given, "provider", json_string("berth"));
                assert_int_equal(
                        kind_normalize(&kinds, "sandbox", given, CONFIG_STORED, &config, &err),
                        ERR_UNPROCESSABLE);
                assert_string_equal(err.msg, refused[i].text);
                assert_path(err.details, refused[i].path);
                json_decref(given);
        }
}

static void test_hosts_are_patterns(void **state)
{
        CLEAN(err_done) struct err err = { 0 };
        json_t *config = NULL;

        (void)state;
        assert_int_equal(normalize("{\"provider\":\"berth\",\"network\":\"allowlist\","
                                   "\"allowedHosts\":[\"*.example.com:8443\",\"192.0.2.7\"]}",
                                   &config, NULL),
                         0);
        json_decref(config);
        assert_int_equal(normalize("{\"provider\":\"berth\",\"network\":\"allowlist\","
                                   "\"allowedHosts\":[\"exa mple.com\"]}",
                                   &config, &err),
                         ERR_UNPROCESSABLE);
        assert_path(err.details, "allowedHosts");
}

static json_t *config_of(const char *text)
{
        json_t *config = NULL;

        assert_int_equal(normalize(text, &config, NULL), 0);
        return config;
}

static bool matches(const char *a, const char *b)
{
        json_t *one = config_of(a), *other = config_of(b);
        CLEAN(cleanup_free) char *recorded = json_to_text(one);
        CLEAN(cleanup_free) char *wanted = json_to_text(other);

        json_decref(one);
        json_decref(other);
        return berth_matches(recorded, wanted);
}

static void test_matching(void **state)
{
        const char *a = "{\"provider\":\"berth\",\"poolSize\":1}";
        const char *b = "{\"provider\":\"berth\",\"poolSize\":5}";
        const char *c = "{\"provider\":\"berth\",\"memoryMb\":64}";
        const char *d = "{\"provider\":\"berth\",\"rootfs\":\"/srv/a\"}";

        (void)state;
        assert_true(matches(a, b));
        assert_false(matches(a, c));
        assert_false(matches(a, d));
        assert_false(matches(d, a));
}

static void test_what_the_daemon_allows(void **state)
{
        CLEAN(err_done) struct err err = { 0 };
        struct runtime rt = { .settings = { .mode = MODE_LOCAL_TRUSTED,
                                            .sandbox_rootfs_dirs = "/usr/share:/nowhere" } };
        json_t *host = config_of("{\"provider\":\"berth\",\"network\":\"host\"}");
        json_t *inside = config_of("{\"provider\":\"berth\",\"rootfs\":\"/usr/share/doc\"}");
        json_t *outside = config_of("{\"provider\":\"berth\",\"rootfs\":\"/etc\"}");

        (void)state;
        assert_int_equal(berth_check(&rt, host, &err), ERR_UNPROCESSABLE);
        assert_non_null(strstr(err.msg, "mode local_trusted"));
        assert_path(err.details, "network");
        rt.settings.mode = MODE_AUTHENTICATED;
        assert_int_equal(berth_check(&rt, host, NULL), 0);
        assert_int_equal(berth_check(&rt, inside, NULL), 0);
        assert_int_equal(berth_check(&rt, outside, &err), ERR_UNPROCESSABLE);
        assert_path(err.details, "rootfs");
        json_decref(host);
        json_decref(inside);
        json_decref(outside);
}

/* Every member that is accepted is described, with its default. */
static void test_schema(void **state)
{
        json_t *schema = berth_schema(NULL), *config = config_of("{\"provider\":\"berth\"}");
        json_t *members = json_object_get(schema, "properties"), *value;
        const char *key;

        (void)state;
        assert_false(json_is_true(json_object_get(schema, "additionalProperties")));
        json_object_foreach(config, key, value)
        {
                json_t *d = json_object_get(members, key);

                if (streq(key, "provider"))
                        continue;
                assert_true(strlen(json_get_string(d, "description")) > 5);
                assert_true(json_equal(json_object_get(d, "default"), value));
        }
        json_decref(schema);
        json_decref(config);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_defaults), cmocka_unit_test(test_stays_as_it_is),
                cmocka_unit_test(test_refused),  cmocka_unit_test(test_hosts_are_patterns),
                cmocka_unit_test(test_matching), cmocka_unit_test(test_what_the_daemon_allows),
                cmocka_unit_test(test_schema),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
