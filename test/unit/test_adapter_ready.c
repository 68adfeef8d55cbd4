/* What is asked in a place before an agent starts there. */
#include "adapter_fixture.h"

#include "core/kinds/provision.h"

#define MODEL "{\"model\":\"openai/gpt-5\"}"

static bool fits(const char *text)
{
        json_t *header = fixture_json("{\"type\":\"session\",\"cwd\":\"/w\"}");
        bool good = adapter_session_fits(header, text, strlen(text));

        json_decref(header);
        return good;
}

static void test_session(void **state)
{
        assert_true(fits("{\"type\":\"session\",\"cwd\":\"/w\"}"));
        assert_true(fits("{\"cwd\":\"/w\",\"version\":3,\"type\":\"session\"}\nnot json"));
        assert_false(fits(""));
        assert_false(fits("\n{\"type\":\"session\",\"cwd\":\"/w\"}"));
        assert_false(fits("{\"type\":\"session\"}"));
        assert_false(fits("{\"type\":\"session\",\"cwd\":\"/w/\"}"));
        assert_false(fits("{\"type\":\"session\",\"cwd\":[\"/w\"]}"));
        assert_false(fits("[\"session\",\"/w\"]"));
        assert_false(fits("{\"type\":\"session\",\"cwd\":\"/w\""));
}

static void test_what_is_asked(void **state)
{
        struct adapter_fixture f;

        fixture_init(&f, "pi_local", "ssh", "{\"model\":\"xai/grok\"}");
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_string_equal(json_get_string(f.command.session_header, "type"), "session");
        assert_string_equal(json_get_string(f.command.session_header, "cwd"), "/w");
        assert_null(f.command.list_argv);
        fixture_done(&f);

        fixture_init(&f, "opencode_local", "sandbox", MODEL);
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_null(f.command.session_header);
        assert_string_equal(f.command.list_argv[0], "opencode");
        assert_string_equal(f.command.list_argv[1], "models");
        assert_null(f.command.list_argv[2]);
        assert_int_equal(f.command.list_timeout_ms, 120000);
        fixture_done(&f);
}

static void check_model(const struct provision_end *how, const char *expected)
{
        struct adapter_fixture f;
        const char *fault;

        fixture_init(&f, "opencode_local", "local", MODEL);
        assert_int_equal(fixture_build(&f, NULL), 0);
        fault = adapter_model_fault(&f.arena, &f.in, &f.command, how);
        if (expected)
                assert_string_equal(fault ? fault : "nothing", expected);
        else
                assert_null(fault);
        fixture_done(&f);
}

static void check_list(const char *out, const char *expected)
{
        struct provision_end how = { .has_code = true, .out = out, .err = "" };

        check_model(&how, expected);
}

static void test_models(void **state)
{
        struct provision_end late = { .timed_out = true, .out = "openai/gpt-5", .err = "" };
        struct provision_end bad = { .has_code = true, .code = 1, .out = "a\nb", .err = " \n" };
        struct provision_end killed = { .signal = "SIGKILL", .out = "", .err = "" };

        check_list("openai/gpt-5", NULL);
        check_list("Models:\r\n\t openai/gpt-5 (default)\r\n", NULL);
        check_list("is openai/gpt-5\nopenai/gpt-55\nx/\033[1m\n",
                   "Configured OpenCode model is unavailable: openai/gpt-5. Available models: "
                   "openai/gpt-55");
        check_list("", "OpenCode names no models. Run `opencode models` there and see that it is "
                       "logged in with a provider.");
        check_model(&late, "`opencode models` timed out after 20s.");
        check_model(&bad, "`opencode models` failed: a");
        check_model(&killed, "`opencode models` failed.");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_session),
                cmocka_unit_test(test_what_is_asked),
                cmocka_unit_test(test_models),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
