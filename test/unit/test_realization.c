#include "test.h"

#include "core/kinds/realization.h"

static const struct runtime kinds = { .kinds = builtin_kinds };

static json_t *parse(const char *text)
{
        json_t *doc = NULL;

        assert_int_equal(json_parse(text, strlen(text), &doc, NULL), 0);
        return doc;
}

static void assert_json(const json_t *value, const char *expected)
{
        CLEAN(cleanup_free) char *text = json_to_text(value);

        assert_string_equal(text, expected);
}

/* By the kind of the driver, else by local: the environment may have another driver by now. */
static json_t *record(const char *driver, const struct lease *lease, const char *workspace,
                      const char *cwd)
{
        struct environment env = { .id = "env-1", .driver = driver, .config = "{}" };
        json_t *given = parse(workspace);
        const struct kind *kind = kind_find(&kinds, driver, NULL);
        json_t *made = realization_record(kind ? kind : kind_find(&kinds, "local", NULL), &env,
                                          lease, given, cwd);

        json_decref(given);
        return made;
}

static const struct lease plain = {
        .id = "lease-1",
        .company_id = "company-1",
        .environment_id = "env-1",
        .provider = "local",
        .metadata = "{\"driver\":\"local\"}",
};

/* Without a request of the caller's own, the record is made up from the lease. */
static void test_local_to_the_byte(void **state)
{
        json_t *made = record("local", &plain, "{\"localPath\":\"/srv/w\",\"mode\":\"isolated\"}",
                              "/srv/w");

        (void)state;
        assert_json(
                made,
                "{\"version\":1,\"transport\":\"local\",\"provider\":\"local\",\"environmentId\":"
                "\"env-1\",\"leaseId\":\"lease-1\",\"providerLeaseId\":null,"
                "\"local\":{\"path\":\"/srv/w\",\"source\":\"task_session\",\"strategy\":"
                "\"project_primary\",\"projectId\":null,\"projectWorkspaceId\":null,\"repoUrl\":"
                "null,\"repoRef\":null,\"branchName\":null,\"worktreePath\":null},"
                "\"remote\":{\"path\":null},"
                "\"sync\":{\"strategy\":\"none\",\"prepare\":\"The command works in the workspace "
                "itself.\",\"syncBack\":null},\"bootstrap\":{\"command\":null},"
                "\"rebuild\":{\"executionWorkspaceId\":null,\"mode\":\"isolated\",\"repoUrl\":null,"
                "\"repoRef\":null,\"localPath\":\"/srv/w\",\"remotePath\":null,"
                "\"providerLeaseId\":null,\"metadata\":{\"source\":{\"kind\":\"task_session\","
                "\"localPath\":\"/srv/w\",\"projectId\":null,\"projectWorkspaceId\":null,"
                "\"repoUrl\":null,\"repoRef\":null,\"strategy\":\"project_primary\",\"branchName\":"
                "null,\"worktreePath\":null},\"runtimeOverlay\":{\"provisionCommand\":null,"
                "\"teardownCommand\":null,\"cleanupCommand\":null,\"workspaceRuntime\":null},"
                "\"environmentDriver\":\"local\",\"provider\":\"local\",\"providerMetadata\":{}}},"
                "\"summary\":\"Local workspace realized at /srv/w.\"}");
        json_decref(made);
}

static void test_path_of_a_made_up_request(void **state)
{
        static const struct {
                const char *workspace, *cwd, *path;
        } cases[] = {
                { "{\"localPath\":\"/l\",\"remotePath\":\"/r\"}", "/c", "/l" },
                { "{\"remotePath\":\"/r\"}", "/c", "/c" },
                { "{\"remotePath\":\"/r\"}", NULL, "/r" },
                { "{}", NULL, "/" },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                json_t *made = record("local", &plain, cases[i].workspace, cases[i].cwd);

                assert_string_equal(json_get_string(json_get_object(made, "local"), "path"),
                                    cases[i].path);
                json_decref(made);
        }
}

#define REQUEST(version, path)                                                                     \
        "{\"version\":" version ",\"adapterType\":\"codex_local\",\"companyId\":\"c\","            \
        "\"environmentId\":\"e\",\"executionWorkspaceId\":\"w-1\",\"issueId\":null,"               \
        "\"heartbeatRunId\":\"r\",\"requestedMode\":\"shared\",\"source\":{\"kind\":"              \
        "\"project_primary\",\"localPath\":\"" path "\",\"projectId\":\"pr\","                     \
        "\"projectWorkspaceId\":null,\"repoUrl\":\"https://git.example/x\",\"repoRef\":\"main\","  \
        "\"strategy\":\"git_worktree\",\"branchName\":\"b\",\"worktreePath\":\"/t\"},"             \
        "\"runtimeOverlay\":{\"provisionCommand\":\"make deps\"}}"

static void test_request_of_the_caller(void **state)
{
        json_t *made = record("local", &plain,
                              "{\"localPath\":\"/other\",\"metadata\":{"
                              "\"workspaceRealizationRequest\":" REQUEST(
                                      "1", "/given") ",\"request\":" REQUEST("1", "/second") "}}",
                              "/other");
        json_t *local = json_get_object(made, "local"), *rebuild = json_get_object(made, "rebuild");

        (void)state;
        assert_json(local, "{\"path\":\"/given\",\"source\":\"project_primary\",\"strategy\":"
                           "\"git_worktree\",\"projectId\":\"pr\",\"projectWorkspaceId\":null,"
                           "\"repoUrl\":\"https://git.example/x\",\"repoRef\":\"main\","
                           "\"branchName\":\"b\",\"worktreePath\":\"/t\"}");
        assert_json(json_get_object(made, "bootstrap"), "{\"command\":\"make deps\"}");
        assert_string_equal(json_get_string(rebuild, "executionWorkspaceId"), "w-1");
        assert_string_equal(json_get_string(rebuild, "mode"), "shared");
        assert_string_equal(json_get_string(made, "summary"),
                            "Local workspace realized at /given.");
        json_decref(made);
}

/* Another version, or a blank path, is not a request that we know. */
static void test_requests_that_do_not_count(void **state)
{
        static const char *const workspaces[] = {
                "{\"localPath\":\"/w\",\"metadata\":{\"request\":" REQUEST("2", "/given") "}}",
                "{\"localPath\":\"/w\",\"metadata\":{\"request\":" REQUEST("1", "  ") "}}",
                "{\"localPath\":\"/w\",\"metadata\":{\"request\":\"text\"}}",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(workspaces); i++) {
                json_t *made = record("local", &plain, workspaces[i], "/w");
                json_t *local = json_get_object(made, "local");

                assert_string_equal(json_get_string(local, "path"), "/w");
                assert_string_equal(json_get_string(local, "source"), "task_session");
                json_decref(made);
        }
}

/* A request may leave out what only describes it. */
static void test_meagre_request(void **state)
{
        json_t *made = record("sandbox", &plain,
                              "{\"metadata\":{\"request\":{\"version\":1,\"adapterType\":\"a\","
                              "\"companyId\":\"c\",\"environmentId\":\"e\",\"heartbeatRunId\":"
                              "\"r\",\"source\":{\"localPath\":\"/given\"}}}}",
                              NULL);

        (void)state;
        assert_non_null(made);
        assert_json(json_get_object(made, "bootstrap"), "{\"command\":null}");
        assert_string_equal(json_get_string(json_get_object(made, "rebuild"), "localPath"),
                            "/given");
        json_decref(made);
}

static void test_ssh(void **state)
{
        struct lease lease = plain;
        json_t *made;

        (void)state;
        lease.provider = NULL;
        lease.provider_lease_id = "ssh://u@h:2222/srv";
        lease.metadata = "{\"driver\":\"ssh\",\"host\":\"h\",\"port\":2222,\"username\":\"u\","
                         "\"remoteCwd\":\"/srv\"}";
        made = record("ssh", &lease, "{\"localPath\":\"/w\"}", "/srv");
        assert_string_equal(json_get_string(made, "transport"), "ssh");
        assert_string_equal(json_get_string(made, "provider"), "ssh");
        assert_json(json_get_object(made, "remote"),
                    "{\"path\":\"/srv\",\"host\":\"h\",\"port\":2222,\"username\":\"u\"}");
        assert_string_equal(json_get_string(json_get_object(made, "sync"), "strategy"),
                            "ssh_git_import_export");
        assert_string_equal(json_get_string(made, "summary"),
                            "SSH workspace realized at u@h:2222:/srv.");
        json_decref(made);

        lease.metadata = "{}";
        made = record("ssh", &lease, "{\"localPath\":\"/w\"}", NULL);
        assert_string_equal(json_get_string(made, "summary"),
                            "SSH workspace realized at user@host:22:/w.");
        json_decref(made);
}

static void test_sandbox(void **state)
{
        struct lease lease = plain;
        json_t *made;

        (void)state;
        lease.provider = "fake";
        lease.provider_lease_id = "sandbox://fake/env-1";
        lease.metadata = "{\"remoteCwd\":\"/work\",\"sandboxId\":\"s-1\"}";
        made = record("sandbox", &lease, "{\"localPath\":\"/w\"}", "/work");
        assert_json(json_get_object(made, "remote"), "{\"path\":\"/work\",\"sandboxId\":\"s-1\"}");
        assert_string_equal(json_get_string(json_get_object(made, "sync"), "strategy"),
                            "sandbox_archive_upload_download");
        assert_string_equal(json_get_string(made, "summary"),
                            "Sandbox workspace realized at /work in s-1.");
        assert_string_equal(json_get_string(made, "providerLeaseId"), "sandbox://fake/env-1");
        json_decref(made);

        lease.metadata = "{}";
        made = record("sandbox", &lease, "{\"localPath\":\"/w\"}", "/w");
        assert_string_equal(json_get_string(made, "summary"), "Sandbox workspace realized at /.");
        json_decref(made);
}

static void test_plugin_and_unknown(void **state)
{
        struct lease lease = plain;
        json_t *made;

        (void)state;
        lease.provider = NULL;
        made = record("plugin", &lease, "{\"localPath\":\"/w\"}", "/in");
        assert_string_equal(json_get_string(made, "transport"), "plugin");
        assert_true(json_is_null(json_object_get(made, "provider")));
        assert_string_equal(json_get_string(json_get_object(made, "sync"), "strategy"),
                            "provider_defined");
        assert_string_equal(json_get_string(made, "summary"), "Plugin workspace realized at /in.");
        json_decref(made);
        made = record("something", &lease, "{\"localPath\":\"/w\"}", "/w");
        assert_string_equal(json_get_string(made, "transport"), "local");
        assert_string_equal(json_get_string(made, "provider"), "local");
        json_decref(made);
}

static void test_answer(void **state)
{
        struct arena arena;
        struct op op = { .arena = &arena };

        (void)state;
        arena_init(&arena);
        assert_string_equal(
                json_to_arena(&arena, realization_answer(&op, "/w", parse("{\"version\":1}"))),
                "{\"cwd\":\"/w\",\"metadata\":{\"workspaceRealization\":"
                "{\"version\":1}}}");
        arena_done(&arena);
}

/* What the provider said comes first, where a driver keeps it apart. */
static void test_what_the_provider_said(void **state)
{
        struct lease lease = plain;
        json_t *made;

        (void)state;
        lease.provider = "daytona";
        lease.metadata = "{\"remoteCwd\":\"/lease\",\"providerMetadata\":{\"remoteCwd\":\"/said\","
                         "\"remotePath\":\"/last\",\"sandboxId\":\"s-2\"}}";
        made = record("plugin", &lease, "{\"localPath\":\"/w\"}", NULL);
        assert_json(json_get_object(made, "remote"), "{\"path\":\"/said\",\"sandboxId\":\"s-2\"}");
        assert_json(json_get_object(json_get_object(json_get_object(made, "rebuild"), "metadata"),
                                    "providerMetadata"),
                    "{\"remoteCwd\":\"/said\",\"remotePath\":\"/last\",\"sandboxId\":\"s-2\"}");
        assert_string_equal(json_get_string(made, "summary"),
                            "Plugin workspace realized at /said.");
        json_decref(made);

        lease.metadata = "{\"providerMetadata\":{\"remotePath\":\"/last\"}}";
        made = record("plugin", &lease, "{\"localPath\":\"/w\"}", NULL);
        assert_json(json_get_object(made, "remote"), "{\"path\":\"/last\"}");
        json_decref(made);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_local_to_the_byte),
                cmocka_unit_test(test_path_of_a_made_up_request),
                cmocka_unit_test(test_request_of_the_caller),
                cmocka_unit_test(test_requests_that_do_not_count),
                cmocka_unit_test(test_meagre_request),
                cmocka_unit_test(test_ssh),
                cmocka_unit_test(test_sandbox),
                cmocka_unit_test(test_what_the_provider_said),
                cmocka_unit_test(test_plugin_and_unknown),
                cmocka_unit_test(test_answer),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
