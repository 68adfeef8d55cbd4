/* What is made of the output of every adapter. */
#include "adapter_fixture.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "core/adapters/adapter_parse.h"

struct parsed {
        struct adapter_fixture f;
        struct adapter_parser *p;
        struct adapter_result res;
};

static void begin(struct parsed *t, const char *type, const char *config, const char *session)
{
        fixture_init(&t->f, type, "local", config);
        if (session)
                fixture_session(&t->f, session);
        assert_int_equal(fixture_build(&t->f, NULL), 0);
        assert_int_equal(adapter_parser_new(NULL, &t->f.in, &t->f.command, &t->p, NULL), 0);
}

static void finish(struct parsed *t, int64_t code)
{
        struct adapter_exit end = { .code = code };

        adapter_parser_finish(t->p, &end, &t->f.arena, &t->res);
        adapter_parser_free(t->p);
}

static void feed(struct parsed *t, bool is_stderr, const char *text)
{
        adapter_parser_feed(t->p, is_stderr, text, strlen(text));
}

/* All of it, byte by byte: where the pieces end must not matter. */
static void run(struct parsed *t, const char *type, const char *config, const char *session,
                const char *out, const char *err, int64_t code)
{
        begin(t, type, config, session);
        for (; *out; out++)
                adapter_parser_feed(t->p, false, out, 1);
        for (; *err; err++)
                adapter_parser_feed(t->p, true, err, 1);
        finish(t, code);
}

static void done(struct parsed *t)
{
        fixture_done(&t->f);
}

static void assert_text(const char *value, const char *expected)
{
        if (!expected) {
                if (value)
                        fail_msg("\"%s\" instead of nothing", value);
                return;
        }
        assert_non_null(value);
        assert_string_equal(value, expected);
}

static void assert_usage(const struct parsed *t, int64_t input, int64_t cached, int64_t output)
{
        assert_true(t->res.has_usage);
        assert_int_equal(t->res.input_tokens, input);
        assert_int_equal(t->res.cached_input_tokens, cached);
        assert_int_equal(t->res.output_tokens, output);
}

#define CLAUDE_BEGIN                                                                               \
        "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s-9\",\"model\":\"opus\"}\n"   \
        "{\"type\":\"assistant\",\"session_id\":\"s-9\",\"message\":{\"content\":["                \
        "{\"type\":\"text\",\"text\":\"One\"},{\"type\":\"tool_use\",\"text\":\"no\"},"            \
        "{\"type\":\"text\",\"text\":\"Two\"}]}}\n"
#define CLAUDE_END                                                                                 \
        "{\"type\":\"result\",\"session_id\":\"s-9\",\"result\":\"Done.\",\"total_cost_usd\":"     \
        "0.25,\"usage\":{\"input_tokens\":10,\"cache_read_input_tokens\":4,\"output_tokens\":6}}"

static void test_claude(void **state)
{
        struct parsed t;

        (void)state;
        run(&t, "claude_local", NULL, NULL, CLAUDE_BEGIN CLAUDE_END, "", 0);
        assert_text(t.res.error_message, NULL);
        assert_text(t.res.session_id, "s-9");
        assert_text(t.res.session_display_id, "s-9");
        assert_text(json_get_string(t.res.session_params, "cwd"), "/w");
        assert_text(t.res.model, "opus");
        assert_text(t.res.summary, "Done.");
        assert_usage(&t, 10, 4, 6);
        assert_true(t.res.has_cost);
        assert_true(t.res.cost_usd > 0.24 && t.res.cost_usd < 0.26);
        assert_text(t.res.provider, "anthropic");
        assert_text(t.res.biller, "anthropic");
        assert_text(t.res.billing_type, "subscription");
        assert_text(json_get_string(t.res.result_json, "result"), "Done.");
        done(&t);
}

static void test_claude_without_a_result(void **state)
{
        struct parsed t;

        (void)state;
        run(&t, "claude_local", "{\"env\":{\"ANTHROPIC_API_KEY\":\"k\"}}", NULL, CLAUDE_BEGIN, "",
            0);
        assert_text(t.res.error_message, "Failed to parse claude JSON output");
        assert_text(t.res.summary, "One\n\nTwo");
        assert_text(t.res.billing_type, "api");
        done(&t);
        run(&t, "claude_local", NULL, NULL, "", "\nno such thing\nmore\n", 3);
        assert_text(t.res.error_message, "Claude exited with code 3: no such thing");
        assert_int_equal(t.res.exit_code, 3);
        assert_text(t.res.session_id, NULL);
        done(&t);
        run(&t, "claude_local", NULL, "old", "", "", 2);
        assert_text(t.res.error_message, "Claude exited with code 2");
        assert_text(t.res.session_id, "old");
        done(&t);
}

/* What claude says when it fails, and what is made of it. */
static void check_claude_error(const char *result, const char *stderr_text, const char *code,
                               bool clears)
{
        struct parsed t;

        run(&t, "claude_local", NULL, "old", result, stderr_text, 1);
        assert_text(t.res.error_code, code);
        assert_int_equal(t.res.clear_session, clears);
        assert_int_equal(t.res.session_id == NULL, clears);
        assert_false(t.res.unknown_session);
        done(&t);
}

static void test_claude_errors(void **state)
{
        (void)state;
        check_claude_error("", "Please log in at https://claude.ai/login.\n",
                           "claude_auth_required", false);
        check_claude_error("{\"type\":\"result\",\"is_error\":true,\"subtype\":"
                           "\"error_max_turns\"}",
                           "", "max_turns_exhausted", true);
        check_claude_error("{\"type\":\"result\",\"is_error\":true,\"result\":\"API Error: 529 "
                           "Overloaded\"}",
                           "", "claude_transient_upstream", false);
        check_claude_error("", "something else", NULL, false);
        /* what it talks about is no error */
        check_claude_error("{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\","
                           "\"text\":\"rate limit\"}]}}",
                           "", NULL, false);
}

static void test_a_login_address(void **state)
{
        struct parsed t;

        (void)state;
        run(&t, "claude_local", NULL, NULL, "",
            "Not logged in. Open https://claude.ai/login?x=1, please.\n", 1);
        assert_text(json_get_string(t.res.error_meta, "loginUrl"), "https://claude.ai/login?x=1");
        done(&t);
}

static void test_when_to_try_again(void **state)
{
        struct parsed t;

        (void)state;
        run(&t, "claude_local", NULL, NULL,
            "{\"type\":\"result\",\"is_error\":true,\"result\":"
            "\"Claude AI usage limit reached|1999999999\"}",
            "", 1);
        assert_text(t.res.error_code, "claude_transient_upstream");
        assert_text(t.res.error_family, "transient_upstream");
        assert_int_equal(t.res.retry_not_before, INT64_C(1999999999) * 1000000);
        done(&t);
        run(&t, "claude_local", NULL, NULL, "", "You've hit your limit. It resets at 3:30pm.\n", 1);
        assert_int_equal(t.res.retry_not_before % (INT64_C(60) * 1000000), 0);
        assert_true(t.res.retry_not_before > 0);
        done(&t);
        run(&t, "codex_local", NULL, NULL,
            "{\"type\":\"turn.failed\",\"error\":{\"message\":\"You've hit your usage limit. Try again "
            "in 2 days 3 hours 5 minutes.\"}}",
            "", 1);
        assert_in_range(t.res.retry_not_before / 1000000 - clock_wall_us() / 1000000, 183800,
                        183900);
        done(&t);
        run(&t, "gemini_local", NULL, NULL,
            "{\"type\":\"result\",\"status\":\"error\",\"error\":{\"message\":\"RESOURCE_EXHAUSTED. "
            "Please retry in 34.07s.\"}}",
            "", 1);
        assert_text(t.res.error_code, "gemini_transient_upstream");
        assert_in_range(t.res.retry_not_before / 1000000 - clock_wall_us() / 1000000, 0, 35);
        done(&t);
}

/* What the programs really print, by what is wrong. */
static void test_failures(void **state)
{
        static const struct {
                const char *type, *out, *err, *code, *message;
                int64_t exit;
        } all[] = {
                { "claude_local",
                  "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,"
                  "\"api_error_status\":401,\"result\":\"Failed to authenticate. API Error: 401 "
                  "Invalid API key.\"}",
                  "", "claude_auth_required",
                  "Claude is not logged in, or its key is not accepted: Failed to authenticate. API "
                  "Error: 401 Invalid API key.",
                  1 },
                { "claude_local",
                  "{\"type\":\"result\",\"is_error\":true,\"api_error_status\":404,\"result\":\"no\"}",
                  "", "claude_model_unavailable", "Claude cannot use the model a/b: no", 1 },
                { "claude_local",
                  "{\"type\":\"result\",\"is_error\":true,\"result\":\"API Error: Unable to connect to "
                  "API (ConnectionRefused)\"}",
                  "", "claude_unreachable", NULL, 1 },
                { "claude_local",
                  "{\"type\":\"result\",\"is_error\":true,\"api_error_status\":400,\"result\":\"Credit "
                  "balance is too low\"}",
                  "", "claude_out_of_budget", NULL, 1 },
                { "codex_local",
                  "{\"type\":\"turn.failed\",\"error\":{\"message\":\"unexpected status 401 Unauthorized: "
                  "Invalid API key., url: http://127.0.0.1/v1/responses\"}}",
                  "WARNING: proceeding, even though we could not create PATH aliases: no\n",
                  "codex_auth_required", NULL, 1 },
                { "codex_local",
                  "{\"type\":\"turn.failed\",\"error\":{\"message\":\"unexpected status 503 Service "
                  "Unavailable: no\"}}",
                  "", "codex_transient_upstream", NULL, 1 },
                { "codex_local",
                  "{\"type\":\"error\",\"message\":\"Reconnecting... waiting for network (Connection "
                  "failed: error sending request)\"}",
                  "", "codex_unreachable", NULL, 1 },
                /* Its own sandbox refuses every command, and it ends well. */
                { "codex_local",
                  "{\"type\":\"item.completed\",\"item\":{\"type\":\"command_execution\",\"exit_code\":1,"
                  "\"aggregated_output\":\"bwrap: No permissions to create a new namespace\\n\"}}\n"
                  "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":1}}",
                  "", "codex_sandbox_unavailable", NULL, 0 },
                { "gemini_local",
                  "{\"type\":\"result\",\"status\":\"error\",\"error\":{\"message\":\"[API Error: "
                  "{\\\"error\\\":{\\\"code\\\":401,\\\"status\\\":\\\"UNAUTHENTICATED\\\"}}]\"}}",
                  "YOLO mode is enabled. All tool calls will be automatically approved.\n",
                  "gemini_auth_required", NULL, 145 },
                { "gemini_local", "", "YOLO mode is enabled. All tool calls\nout of luck\n", NULL,
                  "Gemini exited with code 3: out of luck", 3 },
                { "opencode_local",
                  "{\"type\":\"error\",\"error\":{\"name\":\"APIError\",\"data\":{\"message\":\"no\","
                  "\"statusCode\":429}}}",
                  "", "opencode_transient_upstream", "no", 1 },
                { "pi_local",
                  "{\"type\":\"turn_end\",\"message\":{\"stopReason\":\"error\",\"errorMessage\":\"401 "
                  "{\\\"type\\\":\\\"error\\\"}\"}}",
                  "", "pi_auth_required", NULL, 0 },
                { "pi_local",
                  "{\"type\":\"turn_end\",\"message\":{\"stopReason\":\"error\",\"errorMessage\":\"503 "
                  "busy\"}}\n{\"type\":\"turn_end\",\"message\":{\"stopReason\":\"stop\"}}",
                  "", NULL, NULL, 0 },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                struct parsed t;

                run(&t, all[i].type, "{\"model\":\"a/b\"}", NULL, all[i].out, all[i].err,
                    all[i].exit);
                assert_text(t.res.error_code, all[i].code);
                if (all[i].message)
                        assert_text(t.res.error_message, all[i].message);
                assert_true((t.res.error_message != NULL) == (all[i].code || all[i].message));
                done(&t);
        }
}

/* Counters of the whole session, less what was there before. */
static void test_counters_of_a_session(void **state)
{
        static const char out[] = "{\"type\":\"thread.started\",\"thread_id\":\"t-1\"}\n"
                                  "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":200,"
                                  "\"cached_input_tokens\":80,\"output_tokens\":40}}\n";
        struct parsed t;
        json_t *saved;

        (void)state;
        run(&t, "codex_local", NULL, NULL, out, "", 0);
        assert_usage(&t, 200, 80, 40);
        saved = json_deep_copy(t.res.session_params);
        done(&t);
        fixture_init(&t.f, "codex_local", "local", NULL);
        t.f.in.session = saved;
        assert_int_equal(fixture_build(&t.f, NULL), 0);
        assert_text(t.f.command.session_id, "t-1");
        assert_int_equal(adapter_parser_new(NULL, &t.f.in, &t.f.command, &t.p, NULL), 0);
        feed(&t, false,
             "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":300,"
             "\"cached_input_tokens\":120,\"output_tokens\":41}}\n");
        finish(&t, 0);
        assert_usage(&t, 100, 40, 1);
        assert_int_equal(json_number_value(json_object_get(
                                 json_get_object(t.res.session_params, "totals"), "input")),
                         300);
        done(&t);
        json_decref(saved);
        run(&t, "claude_local", NULL, "s",
            "{\"type\":\"result\",\"total_cost_usd\":4,\"model_usage_since_last_result\":{\"a.b\":"
            "{\"costUSD\":0.5},\"c\":{\"costUSD\":0.25}}}",
            "", 0);
        assert_true(t.res.cost_usd == 0.75);
        done(&t);
}

/* What people see of the events of each program. */
static void test_transcripts(void **state)
{
        static const struct {
                const char *type, *line, *records;
        } all[] = {
                { "claude_local",
                  "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"thinking\",\"thinking\":"
                  "\"hm\"},{\"type\":\"text\",\"text\":\"Hi\"},{\"type\":\"tool_use\",\"id\":\"t\","
                  "\"name\":\"Bash\",\"input\":{\"command\":\"ls\"}}]}}",
                  "[{\"kind\":\"thinking\",\"text\":\"hm\"},{\"kind\":\"text\",\"text\":\"Hi\"},"
                  "{\"kind\":\"tool\",\"id\":\"t\",\"name\":\"Bash\",\"input\":{\"command\":\"ls\"}}]" },
                { "claude_local",
                  "{\"type\":\"user\",\"message\":{\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":"
                  "\"t\",\"content\":[{\"type\":\"text\",\"text\":\"no\"}],\"is_error\":true}]}}",
                  "[{\"kind\":\"result\",\"id\":\"t\",\"text\":\"no\",\"failed\":true}]" },
                { "claude_local", "{\"type\":\"result\",\"usage\":{\"input_tokens\":3}}",
                  "[{\"kind\":\"usage\",\"tokens\":{\"input\":3}}]" },
                { "claude_local", "{\"type\":\"other\"}", "[]" },
                { "claude_local", "plain", "[{\"kind\":\"output\",\"text\":\"plain\"}]" },
                { "codex_local",
                  "{\"type\":\"item.completed\",\"item\":{\"id\":\"i\",\"type\":\"command_execution\","
                  "\"command\":\"ls\",\"aggregated_output\":\"a\",\"exit_code\":0}}",
                  "[{\"kind\":\"tool\",\"id\":\"i\",\"name\":\"command_execution\",\"input\":\"ls\"},"
                  "{\"kind\":\"result\",\"id\":\"i\",\"text\":\"a\",\"failed\":false}]" },
                { "gemini_local",
                  "{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"Do\",\"delta\":true}",
                  "[{\"kind\":\"delta\",\"text\":\"Do\"}]" },
                { "opencode_local",
                  "{\"type\":\"tool_use\",\"part\":{\"tool\":\"bash\",\"callID\":\"c\",\"state\":{\"status\":"
                  "\"completed\",\"input\":{\"command\":\"ls\"},\"output\":\"a\"}}}",
                  "[{\"kind\":\"tool\",\"id\":\"c\",\"name\":\"bash\",\"input\":{\"command\":\"ls\"}},"
                  "{\"kind\":\"result\",\"id\":\"c\",\"text\":\"a\",\"failed\":false}]" },
                { "pi_local",
                  "{\"type\":\"tool_execution_end\",\"toolCallId\":\"c\",\"result\":{\"content\":[{\"type\":"
                  "\"text\",\"text\":\"a\"}]},\"isError\":false}",
                  "[{\"kind\":\"result\",\"id\":\"c\",\"text\":\"a\",\"failed\":false}]" },
        };

        (void)state;
        assert_true(adapter_has_transcript("pi_local"));
        assert_false(adapter_has_transcript("process"));
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                json_t *records = json_array(), *wanted = fixture_json(all[i].records);

                adapter_transcript(all[i].type, all[i].line, strlen(all[i].line), records);
                if (!json_equal(records, wanted))
                        fail_msg("%s: %s", all[i].type, json_dumps(records, 0));
                json_decref(records);
                json_decref(wanted);
        }
}

static void check_unknown(const char *type, const char *config, const char *text)
{
        struct parsed t;

        run(&t, type, config, "old", "", text, 1);
        assert_true(t.res.unknown_session);
        assert_text(t.res.session_id, NULL);
        done(&t);
        run(&t, type, config, NULL, "", text, 1); /* nothing was resumed */
        assert_false(t.res.unknown_session);
        done(&t);
        run(&t, type, config, "old", "", text, 0); /* and it went well */
        assert_false(t.res.unknown_session);
        done(&t);
}

static void test_unknown_sessions(void **state)
{
        static const char model[] = "{\"model\":\"a/b\"}";

        (void)state;
        check_unknown("claude_local", NULL, "No conversation found with session ID: x\n");
        check_unknown("codex_local", NULL, "Error: no rollout found for thread id x");
        check_unknown("codex_local", NULL, "thread 12 not found");
        check_unknown("cursor", NULL, "Could not resume chat");
        check_unknown("gemini_local", NULL, "Session abc was NOT FOUND\nwell: session x not found");
        check_unknown("gemini_local", NULL,
                      "Error resuming session: Invalid session identifier \"x\"");
        check_unknown("opencode_local", model, "\033[91m\033[1mError: \033[0mSession not found");
        check_unknown("opencode_local", model, "Resource not found: /x/session/y.json");
        check_unknown("pi_local", model, "Session file /x not found");
}

static void test_codex(void **state)
{
        struct parsed t;

        (void)state;
        run(&t, "codex_local", "{\"env\":{\"OPENAI_API_KEY\":{\"type\":\"secret_ref\"}}}", NULL,
            "{\"type\":\"thread.started\",\"thread_id\":\"t-1\"}\nnoise\n"
            "{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"a\"}}\n"
            "{\"type\":\"item.completed\",\"item\":{\"type\":\"reasoning\",\"text\":\"no\"}}\n"
            "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}\n"
            "{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"b\"}}\n"
            "{\"type\":\"error\",\"message\":\"Reconnecting\"}\n"
            "{\"type\":\"turn.completed\",\"usage\":{\"input_tokens\":9,\"cached_input_tokens\":3,"
            "\"output_tokens\":2}}\n",
            "", 0);
        assert_text(t.res.error_message, NULL);
        assert_text(t.res.session_id, "t-1");
        assert_text(t.res.summary, "b");
        assert_usage(&t, 9, 3, 2);
        assert_false(t.res.has_cost);
        assert_text(t.res.billing_type, "api");
        assert_text(t.res.biller, "openai");
        done(&t);
        run(&t, "codex_local", NULL, NULL,
            "{\"type\":\"turn.failed\",\"error\":{\"message\":\"We are at high demand\"}}",
            "2026 ERROR state db missing rollout path for thread x\n", 1);
        assert_text(t.res.error_message, "We are at high demand");
        assert_text(t.res.error_code, "codex_transient_upstream");
        assert_text(t.res.biller, "chatgpt");
        done(&t);
        run(&t, "codex_local", NULL, NULL, "",
            "ERROR state db missing rollout path for thread x\nreal trouble\n", 1);
        assert_text(t.res.error_message, "Codex exited with code 1: real trouble");
        done(&t);
}

static void test_cursor(void **state)
{
        struct parsed t;

        (void)state;
        run(&t, "cursor", "{\"model\":\"gpt-5\"}", NULL,
            "stdout: {\"type\":\"system\",\"subtype\":\"init\",\"sessionId\":\"c-1\"}\n"
            "stdout:{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"text\","
            "\"text\":\"hi\"}]}}\n"
            "{\"type\":\"result\",\"usage\":{\"inputTokens\":5,\"cachedInputTokens\":1,"
            "\"outputTokens\":2},\"total_cost_usd\":0}\n",
            "", 0);
        assert_text(t.res.session_id, "c-1");
        assert_text(t.res.summary, "hi");
        assert_usage(&t, 5, 1, 2);
        assert_false(t.res.has_cost);
        assert_text(t.res.provider, "openai");
        assert_text(t.res.biller, "cursor");
        done(&t);
}

static void test_gemini(void **state)
{
        struct parsed t;

        (void)state;
        run(&t, "gemini_local", "{\"env\":{\"GOOGLE_API_KEY\":\"k\"}}", NULL,
            "{\"type\":\"init\",\"checkpoint_id\":\"g-1\",\"model\":\"gemini-2.5-pro\"}\n"
            "{\"type\":\"message\",\"role\":\"user\",\"content\":\"no\"}\n"
            "{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"he\",\"delta\":true}\n"
            "{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"llo\",\"delta\":true}\n"
            "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"question\",\"prompt\":"
            "\"Which?\"}]}}\n"
            "{\"type\":\"result\",\"status\":\"success\",\"stats\":{\"input_tokens\":7,"
            "\"cached\":2,\"output_tokens\":3}}\n",
            "", 0);
        assert_text(t.res.session_id, "g-1");
        assert_text(t.res.summary, "hello");
        assert_text(t.res.model, "gemini-2.5-pro");
        assert_usage(&t, 7, 2, 3);
        assert_text(json_get_string(t.res.question, "prompt"), "Which?");
        assert_text(t.res.billing_type, "api");
        done(&t);
        run(&t, "gemini_local", NULL, "old", "", "", 53);
        assert_text(t.res.error_code, "max_turns_exhausted");
        assert_true(t.res.clear_session);
        done(&t);
        run(&t, "gemini_local", NULL, NULL, "", "Please set an Auth method in settings\n", 1);
        assert_text(t.res.error_code, "gemini_auth_required");
        done(&t);
}

static void test_opencode(void **state)
{
        struct parsed t;

        (void)state;
        run(&t, "opencode_local", "{\"model\":\"openai/gpt-5\"}", NULL,
            "{\"type\":\"text\",\"sessionID\":\"o-1\",\"part\":{\"text\":\"a\"}}\n"
            "{\"type\":\"step_finish\",\"part\":{\"tokens\":{\"input\":3,\"output\":2,"
            "\"reasoning\":1,\"cache\":{\"read\":4}},\"cost\":0.5}}\n"
            "{\"type\":\"text\",\"part\":{\"text\":\"b\"}}\n"
            "{\"type\":\"step_finish\",\"part\":{\"tokens\":{\"input\":1,\"output\":1},"
            "\"cost\":0.25}}\n",
            "", 0);
        assert_text(t.res.session_id, "o-1");
        assert_text(t.res.summary, "a\n\nb");
        assert_usage(&t, 4, 4, 4);
        assert_true(t.res.cost_usd > 0.74 && t.res.cost_usd < 0.76);
        assert_text(t.res.provider, "openai");
        assert_text(t.res.model, "openai/gpt-5");
        done(&t);
        run(&t, "opencode_local", "{\"model\":\"openai/gpt-5\"}", NULL,
            "{\"type\":\"error\",\"error\":{\"name\":\"X\",\"data\":{\"message\":\"bad\"}}}\n", "",
            0);
        assert_text(t.res.error_message, "bad");
        assert_int_equal(t.res.exit_code, 1);
        done(&t);
}

static void test_pi(void **state)
{
        struct parsed t;

        (void)state;
        run(&t, "pi_local", "{\"model\":\"xai/grok\"}", "/s/x.jsonl",
            "{\"type\":\"message_update\",\"assistantMessageEvent\":{\"type\":\"text_delta\","
            "\"delta\":\"par\"}}\n"
            "{\"type\":\"turn_end\",\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"hi\"}],"
            "\"usage\":{\"input\":5,\"output\":2,\"cacheRead\":1,\"cost\":{\"total\":0.1}}}}\n"
            "{\"type\":\"agent_end\",\"messages\":[{\"role\":\"user\",\"content\":\"q\"},"
            "{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"final\"}]}]}\n",
            "", 0);
        assert_text(t.res.session_id, "/s/x.jsonl");
        assert_text(t.res.summary, "final");
        assert_usage(&t, 5, 1, 2);
        assert_text(t.res.provider, "xai");
        done(&t);
        run(&t, "pi_local", "{\"model\":\"xai/grok\"}", NULL,
            "{\"type\":\"auto_retry_end\",\"success\":false,\"finalError\":\"gave up\"}\n", "", 0);
        assert_text(t.res.error_message, "gave up");
        assert_int_equal(t.res.exit_code, 1);
        assert_non_null(t.res.session_id); /* the file that it was told */
        done(&t);
}

static void test_process(void **state)
{
        struct parsed t;
        CLEAN(cleanup_free) char *text = NULL;

        (void)state;
        run(&t, "process", "{\"command\":\"x\"}", NULL, "out \xff\n", "err\n", 4);
        assert_text(t.res.error_message, "Process exited with code 4");
        assert_text(t.res.session_id, NULL);
        assert_false(t.res.has_usage);
        text = json_to_text(t.res.result_json);
        assert_string_equal(text, "{\"stdout\":\"out \xef\xbf\xbd\\n\",\"stderr\":\"err\\n\"}");
        done(&t);
        run(&t, "process", "{\"command\":\"x\"}", NULL, "", "", 0);
        assert_text(t.res.error_message, NULL);
        done(&t);
}

static void test_ends_of_other_kinds(void **state)
{
        struct parsed t;
        struct adapter_exit late = { .code = -1, .signal = "SIGTERM", .timed_out = true };
        struct adapter_exit killed = { .code = -1, .signal = "SIGKILL" };

        (void)state;
        begin(&t, "claude_local", "{\"timeoutSec\":7}", NULL);
        adapter_parser_finish(t.p, &late, &t.f.arena, &t.res);
        adapter_parser_free(t.p);
        assert_text(t.res.error_code, "timeout");
        assert_text(t.res.error_message, "Timed out after 7s");
        assert_int_equal(t.res.exit_code, -1);
        done(&t);
        begin(&t, "process", "{\"command\":\"x\"}", NULL);
        adapter_parser_finish(t.p, &killed, &t.f.arena, &t.res);
        adapter_parser_free(t.p);
        assert_text(t.res.error_message, "Process was ended by SIGKILL");
        done(&t);
}

static void check_http(int64_t status, bool timed_out, const char *message, const char *summary)
{
        struct parsed t;
        struct adapter_exit end = { .code = status, .timed_out = timed_out };

        begin(&t, "http", "{\"url\":\"http://u:p@h/x?token=t\",\"timeoutMs\":50}", NULL);
        feed(&t, false, "ok");
        adapter_parser_finish(t.p, &end, &t.f.arena, &t.res);
        adapter_parser_free(t.p);
        assert_text(t.res.error_message, message);
        assert_text(t.res.summary, summary);
        assert_text(t.res.error_code, timed_out ? "timeout" : NULL);
        done(&t);
}

static void test_http(void **state)
{
        (void)state;
        check_http(204, false, NULL, "HTTP POST http://h/x");
        check_http(404, false, "HTTP invoke failed with status 404", NULL);
        check_http(-1, true, "HTTP POST http://h/x timed out after 50ms", NULL);
        check_http(-1, false, "HTTP POST http://h/x got no answer", NULL);
}

/* A line of so many bytes is read, one more is left out; what follows is read again. */
static void check_line(size_t bytes, const char *expected)
{
        static const char head[] = "{\"type\":\"result\",\"result\":\"big\",\"x\":\"";
        struct parsed t;
        CLEAN(cleanup_free) char *line = xcalloc(1, bytes + 1);

        begin(&t, "claude_local", NULL, NULL);
        memset(line, 'a', bytes);
        memcpy(line, head, sizeof(head) - 1);
        line[bytes - 2] = '"';
        line[bytes - 1] = '}';
        adapter_parser_feed(t.p, false, line, bytes / 2);
        adapter_parser_feed(t.p, false, line + bytes / 2, bytes - bytes / 2);
        feed(&t, false, "\n{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s\"}\n");
        finish(&t, 0);
        assert_text(t.res.summary, expected);
        assert_text(t.res.session_id, "s");
        done(&t);
}

static void test_long_lines(void **state)
{
        (void)state;
        check_line(ADAPTER_LINE_MAX, "big");
        check_line(ADAPTER_LINE_MAX + 1, NULL);
}

/* However much it says, what is kept has a bound. */
static void test_endless_output(void **state)
{
        static const char line[] = "{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":"
                                   "\"text\",\"text\":\"0123456789\"}]}}\n";
        struct parsed t;

        (void)state;
        begin(&t, "claude_local", NULL, NULL);
        for (int i = 0; i < 50000; i++) {
                feed(&t, false, line);
                feed(&t, true, "trouble \xc3\xa9\n");
        }
        assert_in_range(t.p->text.len, ADAPTER_TEXT_MAX, 2 * ADAPTER_TEXT_MAX);
        assert_in_range(t.p->trouble.len, ADAPTER_TROUBLE_MAX, 2 * ADAPTER_TROUBLE_MAX);
        assert_in_range(t.p->err.tail.len, ADAPTER_EXCERPT_MAX, 2 * ADAPTER_EXCERPT_MAX);
        finish(&t, 1);
        assert_true(strlen(json_get_string(t.res.result_json, "stderr")) <= ADAPTER_EXCERPT_MAX);
        assert_true(strlen(t.res.summary) <= 64 << 10);
        done(&t);
}

/* What goes into rows and events is text, whatever the program prints. */
static void test_bytes_that_are_no_text(void **state)
{
        CLEAN(buf_done) struct buf line = { .max = ADAPTER_LINE_MAX };
        struct parsed t;

        (void)state;
        run(&t, "claude_local", NULL, NULL, "", "a\xff\xfe\n", 1);
        assert_text(t.res.error_message,
                    "Claude exited with code 1: a" UTF8_REPLACEMENT UTF8_REPLACEMENT);
        done(&t);
        begin(&t, "claude_local", NULL, NULL);
        buf_puts(&line, "{\"type\":\"system\",\"subtype\":\"init\",\"model\":\"x");
        while (line.len < ADAPTER_TEXT_MAX + 1000)
                buf_puts(&line, "\xe2\x82\xac"); /* a cut is inside of one */
        buf_puts(&line, "\"}\n");
        adapter_parser_feed(t.p, false, line.data, line.len);
        finish(&t, 0);
        assert_true(utf8_is_valid(t.res.model, strlen(t.res.model)));
        done(&t);
}

static void test_numbers_that_are_none(void **state)
{
        struct parsed t;

        (void)state;
        run(&t, "claude_local", NULL, NULL,
            "{\"type\":\"result\",\"usage\":{\"input_tokens\":-5,\"output_tokens\":1e300,"
            "\"cache_read_input_tokens\":\"x\"}}",
            "", 0);
        assert_usage(&t, 0, 0, INT64_C(9007199254740991));
        done(&t);
}

#define CODEX_WAITS "{\"type\":\"error\",\"message\":\"Reconnecting... waiting for network (x)\"}"

static bool is_last(const char *type, const char *line)
{
        return adapter_last_word(type, line, strlen(line)) > 0;
}

static void test_last_word(void **state)
{
        assert_true(adapter_has_last_word("claude_local"));
        assert_false(adapter_has_last_word("gemini_local"));
        assert_false(adapter_has_last_word("nobody"));
        assert_int_equal(adapter_linger_ms("claude_local"), 5000);
        assert_true(is_last("claude_local", CLAUDE_END));
        assert_true(is_last("claude_local", "  {\"a\":1, \"type\" : \"result\"} "));
        assert_false(is_last("claude_local", "{\"type\":\"result\""));
        assert_false(is_last("claude_local", "{\"type\":\"assistant\",\"x\":\"result\"}"));
        assert_false(is_last("claude_local", "[\"type\",\"result\"]"));
        assert_false(is_last("claude_local", "\"result\""));
        assert_false(is_last("claude_local", ""));
        assert_false(is_last("codex_local", CLAUDE_END));
        assert_int_equal(adapter_last_word("codex_local", CODEX_WAITS, strlen(CODEX_WAITS)), 4);
        assert_false(is_last("codex_local", "{\"type\":\"error\",\"message\":\"no\"}"));
}

/* Whom we ended after his last word has ended as that says; whom we ended without one was killed.
 */
static void ask(struct parsed *t, const char *out, bool timed_out)
{
        struct adapter_exit end = {
                .code = -1, .signal = "SIGTERM", .was_asked = true, .timed_out = timed_out
        };

        begin(t, "claude_local", NULL, NULL);
        feed(t, false, out);
        adapter_parser_finish(t->p, &end, &t->f.arena, &t->res);
        adapter_parser_free(t->p);
}

static void test_asked_to_end(void **state)
{
        struct parsed t;

        ask(&t, CLAUDE_BEGIN CLAUDE_END, false);
        assert_true(t.res.as_said);
        assert_int_equal(t.res.exit_code, 0);
        assert_text(t.res.error_message, NULL);
        done(&t);
        ask(&t, "{\"type\":\"result\",\"is_error\":true,\"result\":\"no luck\"}\n", false);
        assert_true(t.res.as_said);
        assert_int_equal(t.res.exit_code, 1);
        assert_text(t.res.error_message, "no luck");
        done(&t);
        ask(&t, CLAUDE_BEGIN, false);
        assert_false(t.res.as_said);
        assert_text(t.res.error_message, "Claude was ended by SIGTERM");
        done(&t);
        ask(&t, CLAUDE_BEGIN CLAUDE_END, true);
        assert_false(t.res.as_said);
        assert_text(t.res.error_code, "timeout");
        done(&t);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_claude),
                cmocka_unit_test(test_last_word),
                cmocka_unit_test(test_asked_to_end),
                cmocka_unit_test(test_claude_without_a_result),
                cmocka_unit_test(test_claude_errors),
                cmocka_unit_test(test_a_login_address),
                cmocka_unit_test(test_when_to_try_again),
                cmocka_unit_test(test_failures),
                cmocka_unit_test(test_transcripts),
                cmocka_unit_test(test_counters_of_a_session),
                cmocka_unit_test(test_unknown_sessions),
                cmocka_unit_test(test_codex),
                cmocka_unit_test(test_cursor),
                cmocka_unit_test(test_gemini),
                cmocka_unit_test(test_opencode),
                cmocka_unit_test(test_pi),
                cmocka_unit_test(test_process),
                cmocka_unit_test(test_ends_of_other_kinds),
                cmocka_unit_test(test_http),
                cmocka_unit_test(test_long_lines),
                cmocka_unit_test(test_endless_output),
                cmocka_unit_test(test_bytes_that_are_no_text),
                cmocka_unit_test(test_numbers_that_are_none),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
