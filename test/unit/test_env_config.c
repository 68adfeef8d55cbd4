#include "test.h"

#include "core/kinds/kind.h"

static const struct runtime rt = { .kinds = builtin_kinds };

static json_t *parse(const char *text)
{
        json_t *doc = NULL;

        if (text)
                assert_int_equal(json_parse(text, strlen(text), &doc, NULL), 0);
        return doc;
}

/* The configuration normalises to `expected`, to the byte: the order of members is part of it. */
static void assert_normal(const char *driver, const char *config, enum config_form form,
                          const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(cleanup_free) char *text = NULL;
        json_t *doc = parse(config), *ret = NULL;

        if (kind_normalize(&rt, driver, doc, form, &ret, &e) < 0)
                fail_msg("refused: %s", e.msg);
        text = json_to_text(ret);
        assert_string_equal(text, expected);
        json_decref(ret);
        json_decref(doc);
}

/* It is refused as unprocessable with this text, and the caller's pointer stays as it was. */
static void assert_refused(const char *driver, const char *config, enum config_form form,
                           const char *text)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *doc = parse(config), *ret = NULL;

        assert_int_equal(kind_normalize(&rt, driver, doc, form, &ret, &e), ERR_UNPROCESSABLE);
        assert_string_equal(e.msg, text);
        assert_null(ret);
        json_decref(doc);
}

#define REF                                                                                        \
        "{\"type\":\"secret_ref\",\"secretId\":\"11111111-1111-4111-8111-111111111111\","          \
        "\"version\":\"latest\"}"
#define SSH_REST "\"username\":\"u\",\"remoteWorkspacePath\":\"/w\""

/* environment-runtime 7.46 */
static void test_ssh_is_normalised(void **state)
{
        (void)state;
        assert_normal("ssh",
                      "{\"host\":\" ssh.example.test \",\"port\":\"2222\",\"username\":\" ssh-user "
                      "\",\"remoteWorkspacePath\":\" /srv/work \",\"privateKeySecretRef\":" REF
                      ",\"knownHosts\":\"  \"}",
                      CONFIG_STORED,
                      "{\"host\":\"ssh.example.test\",\"port\":2222,\"username\":\"ssh-user\","
                      "\"remoteWorkspacePath\":\"/srv/work\",\"privateKey\":null,"
                      "\"privateKeySecretRef\":" REF
                      ",\"knownHosts\":null,\"strictHostKeyChecking\":true}");
        assert_normal("ssh", "{\"host\":\"h\"," SSH_REST "}", CONFIG_STORED,
                      "{\"host\":\"h\",\"port\":22,\"username\":\"u\",\"remoteWorkspacePath\":"
                      "\"/w\",\"privateKey\":null,\"privateKeySecretRef\":null,\"knownHosts\":null,"
                      "\"strictHostKeyChecking\":true}");
        /* a ref without a version means the latest; a number is kept */
        assert_normal("ssh",
                      "{\"host\":\"h\"," SSH_REST
                      ",\"privateKeySecretRef\":{\"type\":\"secret_ref\","
                      "\"secretId\":\"11111111-1111-4111-8111-111111111111\",\"version\":3}}",
                      CONFIG_STORED,
                      "{\"host\":\"h\",\"port\":22,\"username\":\"u\",\"remoteWorkspacePath\":"
                      "\"/w\",\"privateKey\":null,\"privateKeySecretRef\":{\"type\":\"secret_ref\","
                      "\"secretId\":\"11111111-1111-4111-8111-111111111111\",\"version\":3},"
                      "\"knownHosts\":null,\"strictHostKeyChecking\":true}");
}

/* environment-runtime 7.47; remote-execution 8.80 */
static void test_ssh_private_key(void **state)
{
        const char *config = "{\"host\":\"h\"," SSH_REST ",\"privateKey\":\" pem \"}";

        (void)state;
        assert_refused("ssh", config, CONFIG_STORED, "Expected null, received string");
        assert_normal("ssh", config, CONFIG_SUBMITTED,
                      "{\"host\":\"h\",\"port\":22,\"username\":\"u\",\"remoteWorkspacePath\":"
                      "\"/w\",\"privateKey\":\"pem\",\"privateKeySecretRef\":null,\"knownHosts\":"
                      "null,\"strictHostKeyChecking\":true}");
        /* a blank key is no key */
        assert_normal("ssh", "{\"host\":\"h\"," SSH_REST ",\"privateKey\":\"  \"}",
                      CONFIG_SUBMITTED,
                      "{\"host\":\"h\",\"port\":22,\"username\":\"u\",\"remoteWorkspacePath\":"
                      "\"/w\",\"privateKey\":null,\"privateKeySecretRef\":null,\"knownHosts\":null,"
                      "\"strictHostKeyChecking\":true}");
}

/* environment-runtime 7.48 */
static void test_ssh_path_is_absolute(void **state)
{
        (void)state;
        assert_refused("ssh",
                       "{\"host\":\"h\",\"username\":\"u\",\"remoteWorkspacePath\":\"work\"}",
                       CONFIG_STORED, "SSH remote workspace path must be absolute.");
}

/* environment-runtime 7.49 */
static void test_stored_ssh_reads_back(void **state)
{
        const char *stored =
                "{\"host\":\"h\",\"port\":2222,\"username\":\"u\",\"remoteWorkspacePath\":\"/w\","
                "\"privateKey\":null,\"privateKeySecretRef\":" REF
                ",\"knownHosts\":\"h ssh-ed25519 AAAA\",\"strictHostKeyChecking\":false}";

        (void)state;
        assert_normal("ssh", stored, CONFIG_STORED, stored);
        assert_normal("ssh", stored, CONFIG_SUBMITTED, stored);
}

/* Ours: kept when they say something. */
static void test_ssh_additions(void **state)
{
        static const char *const stored =
                "{\"host\":\"h\",\"port\":22,\"username\":\"u\",\"remoteWorkspacePath\":\"/w\","
                "\"privateKey\":null,\"privateKeySecretRef\":null,\"knownHosts\":null,"
                "\"strictHostKeyChecking\":true,\"useSshConfig\":true,\"workspaceMode\":\"in_place\"}";

        assert_normal("ssh", stored, CONFIG_STORED, stored);
        assert_normal("ssh",
                      "{\"host\":\"h\"," SSH_REST
                      ",\"useSshConfig\":false,\"workspaceMode\":\"per_run\"}",
                      CONFIG_STORED,
                      "{\"host\":\"h\",\"port\":22,\"username\":\"u\",\"remoteWorkspacePath\":"
                      "\"/w\",\"privateKey\":null,\"privateKeySecretRef\":null,"
                      "\"knownHosts\":null,\"strictHostKeyChecking\":true}");
        assert_refused("ssh", "{\"host\":\"h\"," SSH_REST ",\"workspaceMode\":\"elsewhere\"}",
                       CONFIG_STORED,
                       "Invalid enum value. Expected 'per_run' | 'in_place', received 'elsewhere'");
        assert_refused("ssh", "{\"host\":\"h\"," SSH_REST ",\"useSshConfig\":1}", CONFIG_STORED,
                       "Expected boolean, received number");
}

static void test_ssh_refusals(void **state)
{
        static const struct {
                const char *config, *text;
        } cases[] = {
                { "{}", "SSH environments require a host." },
                { "{\"host\":\" \"," SSH_REST "}", "SSH environments require a host." },
                { "{\"host\":\"h\"}", "SSH environments require a username." },
                { "{\"host\":\"h\",\"username\":\"u\"}",
                  "SSH environments require a remote workspace path." },
                { "{\"host\":\"h\",\"username\":\"u\",\"remoteWorkspacePath\":\" \"}",
                  "SSH environments require a remote workspace path." },
                { "{\"host\":\"h\"," SSH_REST ",\"port\":0}",
                  "Number must be greater than or equal to 1" },
                { "{\"host\":\"h\"," SSH_REST ",\"port\":65536}",
                  "Number must be less than or equal to 65535" },
                { "{\"host\":\"h\"," SSH_REST ",\"port\":\"abc\"}",
                  "Expected number, received nan" },
                { "{\"host\":\"h\"," SSH_REST ",\"port\":1.5}",
                  "Expected integer, received float" },
                { "{\"host\":7," SSH_REST "}", "Expected string, received number" },
                { "{\"host\":\"h\"," SSH_REST ",\"strictHostKeyChecking\":null}",
                  "Expected boolean, received null" },
                { "{\"host\":\"h\"," SSH_REST ",\"a\":1,\"b\":2}",
                  "Unrecognized key(s) in object: 'a', 'b'" },
                { "{\"host\":\"h\"," SSH_REST ",\"privateKeySecretRef\":{\"type\":\"secret_ref\","
                  "\"secretId\":\"x\"}}",
                  "Invalid uuid" },
                { "{\"host\":\"h\"," SSH_REST ",\"privateKeySecretRef\":{\"type\":\"secret_ref\","
                  "\"secretId\":\"11111111-1111-4111-8111-111111111111\",\"version\":0}}",
                  "Invalid input" },
                { "{\"host\":\"h\"," SSH_REST ",\"privateKeySecretRef\":{\"type\":\"plain\","
                  "\"secretId\":\"11111111-1111-4111-8111-111111111111\"}}",
                  "Invalid literal value, expected \"secret_ref\"" },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
                assert_refused("ssh", cases[i].config, CONFIG_STORED, cases[i].text);
        assert_normal("ssh", "{\"host\":\"h\"," SSH_REST ",\"port\":65535}", CONFIG_STORED,
                      "{\"host\":\"h\",\"port\":65535,\"username\":\"u\",\"remoteWorkspacePath\":"
                      "\"/w\",\"privateKey\":null,\"privateKeySecretRef\":null,\"knownHosts\":null,"
                      "\"strictHostKeyChecking\":true}");
}

/* All issues are in the details, field issues in schema order, the unknown keys last. */
static void test_all_issues_are_told(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *doc = parse("{\"zzz\":1,\"port\":0}"), *ret = NULL;

        (void)state;
        assert_int_equal(kind_normalize(&rt, "ssh", doc, CONFIG_STORED, &ret, &e),
                         ERR_UNPROCESSABLE);
        json_decref(doc);
        doc = parse(e.details);
        assert_int_equal(json_array_size(json_object_get(doc, "issues")), 5);
        for (size_t i = 0; i < 5; i++) {
                static const char *const texts[] = {
                        "SSH environments require a host.",
                        "Number must be greater than or equal to 1",
                        "SSH environments require a username.",
                        "SSH environments require a remote workspace path.",
                        "Unrecognized key(s) in object: 'zzz'",
                };
                json_t *issue = json_array_get(json_object_get(doc, "issues"), i);

                assert_string_equal(json_get_string(issue, "message"), texts[i]);
        }
        json_decref(doc);
}

/* environment-runtime 7.50, 7.51 */
static void test_fake(void **state)
{
        const char *stored = "{\"provider\":\"fake\",\"image\":\"debian:12\",\"reuseLease\":true}";

        (void)state;
        assert_normal("sandbox", "{\"provider\":\"fake\",\"image\":\"  ubuntu:24.04 \"}",
                      CONFIG_STORED,
                      "{\"provider\":\"fake\",\"image\":\"ubuntu:24.04\",\"reuseLease\":false}");
        assert_normal("sandbox", stored, CONFIG_STORED, stored);
        assert_normal("sandbox", NULL, CONFIG_STORED,
                      "{\"provider\":\"fake\",\"image\":\"ubuntu:24.04\",\"reuseLease\":false}");
        assert_refused("sandbox", "{\"image\":\" \"}", CONFIG_STORED,
                       "Fake sandbox environments require an image.");
        assert_refused("sandbox", "{\"image\":7}", CONFIG_STORED,
                       "Expected string, received number");
        assert_refused("sandbox", "{\"reuseLease\":\"yes\"}", CONFIG_STORED,
                       "Expected boolean, received string");
        assert_refused("sandbox", "{\"memory\":1}", CONFIG_STORED,
                       "Unrecognized key(s) in object: 'memory'");
        /* what counts as fake but is not the word is refused */
        assert_refused("sandbox", "{\"provider\":\" fake \"}", CONFIG_STORED,
                       "Invalid literal value, expected \"fake\"");
        assert_refused("sandbox", "{\"provider\":\"\"}", CONFIG_STORED,
                       "Invalid literal value, expected \"fake\"");
        assert_refused("sandbox", "{\"provider\":null}", CONFIG_STORED,
                       "Invalid literal value, expected \"fake\"");
}

/* environment-runtime 7.52-7.54 */
static void test_provided_sandbox(void **state)
{
        const char *stored = "{\"provider\":\"secure-plugin\",\"timeoutMs\":450000,\"reuseLease\":"
                             "true,\"template\":\"base\",\"apiKey\":"
                             "\"22222222-2222-4222-8222-222222222222\"}";

        (void)state;
        assert_normal(
                "sandbox",
                "{\"template\":\"  base  \",\"provider\":\" fake-plugin \",\"timeoutMs\":"
                "\"450000\",\"image\":\" x \",\"nested\":{\"a\":[1, \" b \"]}}",
                CONFIG_STORED,
                "{\"provider\":\"fake-plugin\",\"timeoutMs\":450000,\"reuseLease\":false,"
                "\"template\":\"  base  \",\"image\":\" x \",\"nested\":{\"a\":[1,\" b \"]}}");
        assert_normal("sandbox",
                      "{\"provider\":\"fake-plugin\",\"reuseLease\":true,\"customFlag\":\"kept\"}",
                      CONFIG_STORED,
                      "{\"provider\":\"fake-plugin\",\"reuseLease\":true,\"customFlag\":\"kept\"}");
        assert_normal("sandbox", stored, CONFIG_STORED, stored);
        assert_refused("sandbox", "{\"provider\":\"p\",\"timeoutMs\":0}", CONFIG_STORED,
                       "Number must be greater than or equal to 1");
        assert_refused("sandbox", "{\"provider\":\"p\",\"timeoutMs\":86400001}", CONFIG_STORED,
                       "Number must be less than or equal to 86400000");
        assert_normal("sandbox", "{\"provider\":\"p\",\"timeoutMs\":86400000}", CONFIG_STORED,
                      "{\"provider\":\"p\",\"timeoutMs\":86400000,\"reuseLease\":false}");
}

/* http-api 8.36 */
static void test_provider_keys(void **state)
{
        static const char *const good[] = { "a", "0", "a.b_c-d", "9lives" };
        static const char *const bad[] = { "", "A", "-a", ".a", "_a", "a b", "a/b", "\xc3\xa4" };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++)
                assert_true(kind_is_key(good[i]));
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_false(kind_is_key(bad[i]));
        assert_refused("sandbox", "{\"provider\":\"Not A Key\"}", CONFIG_SUBMITTED,
                       "Sandbox provider key must start with a lowercase alphanumeric and contain "
                       "only lowercase letters, digits, dots, hyphens, or underscores");
}

/* environment-runtime 7.55 */
static void test_plugin(void **state)
{
        (void)state;
        assert_normal("plugin",
                      "{\"driverConfig\":{\"template\":\"base\"},\"driverKey\":\"fake-plugin\","
                      "\"pluginKey\":\"acme.environments\"}",
                      CONFIG_STORED,
                      "{\"pluginKey\":\"acme.environments\",\"driverKey\":\"fake-plugin\","
                      "\"driverConfig\":{\"template\":\"base\"}}");
        assert_normal("plugin", "{\"pluginKey\":\"p\",\"driverKey\":\"d\"}", CONFIG_STORED,
                      "{\"pluginKey\":\"p\",\"driverKey\":\"d\",\"driverConfig\":{}}");
        assert_refused("plugin", "{}", CONFIG_STORED, "Required");
        assert_refused("plugin", "{\"pluginKey\":\"\",\"driverKey\":\"d\"}", CONFIG_STORED,
                       "String must contain at least 1 character(s)");
        assert_refused("plugin", "{\"pluginKey\":\"p\",\"driverKey\":\"D\"}", CONFIG_STORED,
                       "Environment driver key must start with a lowercase alphanumeric and "
                       "contain only lowercase letters, digits, dots, hyphens, or underscores");
        assert_refused("plugin", "{\"pluginKey\":\"p\",\"driverKey\":\"d\",\"driverConfig\":[]}",
                       CONFIG_STORED, "Expected object, received array");
}

static void test_local_and_unknown(void **state)
{
        (void)state;
        assert_normal("local", "{\"anything\":[1]}", CONFIG_STORED, "{\"anything\":[1]}");
        assert_normal("local", "[1]", CONFIG_STORED, "{}");
        assert_normal("local", NULL, CONFIG_STORED, "{}");
        assert_refused("carrier-pigeon", "{}", CONFIG_STORED,
                       "Unsupported environment driver \"carrier-pigeon\".");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_ssh_is_normalised),
                cmocka_unit_test(test_ssh_private_key),
                cmocka_unit_test(test_ssh_path_is_absolute),
                cmocka_unit_test(test_stored_ssh_reads_back),
                cmocka_unit_test(test_ssh_refusals),
                cmocka_unit_test(test_ssh_additions),
                cmocka_unit_test(test_all_issues_are_told),
                cmocka_unit_test(test_fake),
                cmocka_unit_test(test_provided_sandbox),
                cmocka_unit_test(test_provider_keys),
                cmocka_unit_test(test_plugin),
                cmocka_unit_test(test_local_and_unknown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
