#include "test.h"

#include "core/kinds/provision.h"
#include "core/kinds/realization.h"

static const struct runtime kinds = { .kinds = builtin_kinds };

static json_t *request(const char *command)
{
        json_t *config = json_pack("{s:s?}", "provisionCommand", command);
        struct realization_input in = {
                .adapter_type = "codex_local",
                .company_id = "c",
                .environment_id = "e",
                .run_id = "r",
                .source_kind = "project_primary",
                .strategy = "git_worktree",
                .local_path = "/w",
                .config = config,
        };
        json_t *made = realization_request(&in);

        json_decref(config);
        return made;
}

/* What we make is a request that we know ourselves. */
static void test_the_request_is_taken(void **state)
{
        static const struct lease lease = { .id = "l", .company_id = "c", .environment_id = "e" };
        static const struct environment env = { .id = "e", .driver = "ssh", .config = "{}" };
        json_t *workspace = json_pack("{s:{s:o}}", "metadata", "workspaceRealizationRequest",
                                      request("make deps"));
        json_t *made = realization_record(kind_find(&kinds, env.driver, NULL), &env, &lease,
                                          workspace, NULL);

        (void)state;
        assert_string_equal(json_get_string(json_get_object(made, "local"), "path"), "/w");
        assert_string_equal(json_get_string(json_get_object(made, "bootstrap"), "command"),
                            "make deps");
        json_decref(made);
        json_decref(workspace);
}

static void test_the_command(void **state)
{
        CLEAN(arena_done) struct arena a;
        json_t *r = request(" make deps ");

        (void)state;
        arena_init(&a);
        assert_string_equal(provision_script(r, false), " make deps ");
        assert_string_equal(provision_cwd(&a, " /there ", "/lease", "/w"), "/there");
        assert_string_equal(provision_cwd(&a, "  ", " /lease", "/w"), "/lease");
        assert_string_equal(provision_cwd(&a, NULL, NULL, "/w"), "/w");
        assert_null(provision_script(r, true));
        json_decref(r);
        r = request(" \n ");
        assert_null(provision_script(r, false));
        json_decref(r);
        r = request(NULL);
        assert_null(provision_script(r, false));
        json_decref(r);
}

static void test_the_text_of_a_failure(void **state)
{
#define PREFIX "Failed to provision workspace for environment \"box\" (ssh): "
        static const struct {
                struct provision_end end;
                const char *text;
        } cases[] = {
                { { .has_code = true }, NULL },
                { { .timed_out = true, .has_code = true }, PREFIX "provision command timed out" },
                { { .has_code = true, .code = 127, .err = "\n  no such thing \nmore" },
                  PREFIX "exit code 127: no such thing" },
                { { .has_code = true, .code = 1, .err = " \n", .out = "said\r\n" },
                  PREFIX "exit code 1: said" },
                { { .signal = "SIGKILL" }, PREFIX "exit code null (signal SIGKILL)" },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                CLEAN(cleanup_free) char *text = provision_failure("box", "ssh", &cases[i].end);

                if (cases[i].text)
                        assert_string_equal(text, cases[i].text);
                else
                        assert_null(text);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_the_request_is_taken),
                cmocka_unit_test(test_the_command),
                cmocka_unit_test(test_the_text_of_a_failure),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
