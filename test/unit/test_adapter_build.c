/* Exact command lines, variables and prompts of every adapter. */
#include "adapter_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "core/adapters/adapter_internal.h"

static void assert_args(const struct adapter_fixture *f, const char *expected)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        buf_puts(&b, f->command.command);
        for (const char *const *arg = f->command.args; *arg; arg++)
                buf_appendf(&b, "|%s", *arg);
        assert_string_equal(buf_str(&b), expected);
}

/* The command line for a type, a kind of place, a configuration and a saved session. */
static void check_args(const char *type, const char *kind, const char *config, const char *session,
                       const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };
        struct adapter_fixture f;

        fixture_init(&f, type, kind, config);
        if (session)
                fixture_session(&f, session);
        if (fixture_build(&f, &e) < 0)
                fail_msg("%s", e.msg);
        assert_args(&f, expected);
        fixture_done(&f);
}

static void check_error(const char *type, const char *config, const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };
        struct adapter_fixture f;

        fixture_init(&f, type, "local", config);
        assert_int_equal(fixture_build(&f, &e), ERR_UNPROCESSABLE);
        assert_string_equal(e.msg, expected);
        fixture_done(&f);
}

#define TOOLS                                                                                      \
        "Task AskUserQuestion Bash(*) CronCreate CronDelete CronList Edit EnterPlanMode "          \
        "EnterWorktree ExitPlanMode ExitWorktree Glob Grep Monitor NotebookEdit PushNotification " \
        "Read RemoteTrigger ScheduleWakeup Skill TaskOutput TaskStop TodoWrite ToolSearch "        \
        "WebFetch WebSearch Write"

static void test_claude(void **state)
{
        static const char base[] = "claude|--print|--output-format|stream-json|--verbose";
        char expected[1024];

        (void)state;
        (void)snprintf(expected, sizeof(expected), "%s|--dangerously-skip-permissions", base);
        check_args("claude_local", "local", NULL, NULL, expected);
        (void)snprintf(expected, sizeof(expected), "%s|--resume|s-1|--dangerously-skip-permissions",
                       base);
        check_args("claude_local", "local", NULL, "s-1", expected);
        (void)snprintf(expected, sizeof(expected), "%s|--allowedTools|%s", base, TOOLS);
        check_args("claude_local", "sandbox", NULL, NULL, expected);
        (void)snprintf(expected, sizeof(expected), "%s|--resume|s-1|--allowedTools|%s", base,
                       TOOLS);
        check_args("claude_local", "ssh", NULL, "s-1", expected);
        (void)snprintf(expected, sizeof(expected),
                       "%s|--chrome|--model|m|--effort|high|--max-turns|7|-x|-y", base);
        check_args("claude_local", "local",
                   "{\"dangerouslySkipPermissions\":false,\"chrome\":true,\"model\":\" m \","
                   "\"effort\":\"high\",\"maxTurnsPerRun\":7,\"extraArgs\":[\"-x\",\"-y\"],"
                   "\"args\":[\"-z\"]}",
                   NULL, expected);
}

static void test_claude_on_bedrock(void **state)
{
        static const char base[] = "claude|--print|--output-format|stream-json|--verbose|"
                                   "--dangerously-skip-permissions";
        char expected[1024];

        (void)state;
        check_args("claude_local", "local",
                   "{\"model\":\"opus\",\"env\":{\"CLAUDE_CODE_USE_BEDROCK\":\"1\"}}", NULL, base);
        (void)snprintf(expected, sizeof(expected), "%s|--model|us.anthropic.opus", base);
        check_args("claude_local", "local",
                   "{\"model\":\"us.anthropic.opus\",\"env\":{\"CLAUDE_CODE_USE_BEDROCK\":\"1\"}}",
                   NULL, expected);
}

#define CODEX "codex|exec|--json|--skip-git-repo-check"
#define OWN   "|-c|sandbox_mode=\"workspace-write\"|-c|sandbox_workspace_write.network_access=true"
#define KEYS  "-c|shell_environment_policy.ignore_default_excludes=true"

/* remote-execution 8.87 */
static void test_codex(void **state)
{
        (void)state;
        check_args("codex_local", "ssh", NULL, NULL, CODEX OWN "|" KEYS "|-");
        check_args("codex_local", "ssh", NULL, "t-1", CODEX OWN "|" KEYS "|resume|t-1|-");
        check_args("codex_local", "sandbox", NULL, NULL,
                   CODEX "|--dangerously-bypass-approvals-and-sandbox|" KEYS "|-");
        check_args("codex_local", "sandbox", "{\"dangerouslyBypassApprovalsAndSandbox\":false}",
                   NULL, CODEX OWN "|" KEYS "|-");
        check_args("codex_local", "local",
                   "{\"extraArgs\":[\"--skip-git-repo-check\",\"--sandbox=read-only\"]}", NULL,
                   "codex|exec|--json|" KEYS "|--skip-git-repo-check|--sandbox=read-only|-");
        check_args("codex_local", "local",
                   "{\"search\":true,\"dangerouslyBypassApprovalsAndSandbox\":true,"
                   "\"model\":\"gpt-5.4\",\"modelReasoningEffort\":\"high\",\"fastMode\":true,"
                   "\"args\":[\"--foo\"]}",
                   "t-1",
                   "codex|--search|exec|--json|--skip-git-repo-check|"
                   "--dangerously-bypass-approvals-and-sandbox|" KEYS "|--model|"
                   "gpt-5.4|-c|model_reasoning_effort=\"high\"|-c|service_tier=\"fast\"|-c|"
                   "features.fast_mode=true|--foo|resume|t-1|-");
        check_args("codex_local", "local", "{\"model\":\"o3\",\"fastMode\":true}", NULL,
                   CODEX OWN "|" KEYS "|--model|o3|-");
}

static void test_cursor(void **state)
{
        (void)state;
        check_args("cursor", "local", NULL, NULL,
                   "agent|-p|--output-format|stream-json|--workspace|/w|--model|auto|--yolo");
        check_args("cursor", "ssh", "{\"mode\":\"plan\",\"extraArgs\":[\"--trust\"]}", "c-1",
                   "agent|-p|--output-format|stream-json|--workspace|/w|--resume|c-1|--model|auto|"
                   "--mode|plan|--trust");
        check_args("cursor", "local", "{\"mode\":\"other\",\"model\":\"gpt-5\"}", NULL,
                   "agent|-p|--output-format|stream-json|--workspace|/w|--model|gpt-5|--yolo");
}

static void test_gemini(void **state)
{
        (void)state;
        check_args("gemini_local", "local", "{\"promptTemplate\":\"go {{ run.id }}\"}", NULL,
                   "gemini|--output-format|stream-json|--approval-mode|yolo|--sandbox=none");
        check_args("gemini_local", "ssh",
                   "{\"promptTemplate\":\"go\",\"model\":\"gemini-2.5-pro\",\"sandbox\":true}",
                   "g-1",
                   "gemini|--output-format|stream-json|--resume|g-1|--model|gemini-2.5-pro|"
                   "--approval-mode|yolo|--sandbox");
}

static void test_opencode(void **state)
{
        (void)state;
        check_args("opencode_local", "local", "{\"model\":\"openai/gpt-5\"}", NULL,
                   "opencode|run|--format|json|--model|openai/gpt-5");
        check_args("opencode_local", "ssh",
                   "{\"model\":\"openai/gpt-5\",\"variant\":\"high\",\"extraArgs\":[\"-q\"]}",
                   "o-1",
                   "opencode|run|--format|json|--session|o-1|--model|openai/gpt-5|--variant|high|"
                   "-q");
        check_error("opencode_local", "{}",
                    "OpenCode requires an explicit model in provider/model form "
                    "(adapterConfig.model).");
}

static void test_pi(void **state)
{
        (void)state;
        check_args("pi_local", "ssh",
                   "{\"model\":\"xai/grok/4\",\"thinking\":\"low\",\"promptTemplate\":\"go\"}",
                   NULL,
                   "pi|--mode|json|-p|--provider|xai|--model|grok/4|--thinking|low|--tools|"
                   "read,bash,edit,write,grep,find,ls|--session|"
                   "/w/.paperclip-runtime/pi/sessions/2026-05-10T10-00-00-123456Z-agent-1.jsonl");
        check_args("pi_local", "ssh", "{\"model\":\"xai/grok\",\"promptTemplate\":\"go\"}",
                   "/s/old.jsonl",
                   "pi|--mode|json|-p|--provider|xai|--model|grok|--tools|"
                   "read,bash,edit,write,grep,find,ls|--session|/s/old.jsonl");
        check_error("pi_local", "{\"model\":\"grok\"}",
                    "Pi requires an explicit model in provider/model form (adapterConfig.model).");
}

static void test_process(void **state)
{
        struct adapter_fixture f;

        (void)state;
        check_args("process", "sandbox",
                   "{\"command\":\" bash \",\"args\":[\"-c\",\"echo {{ x }}\"]}", NULL,
                   "bash|-c|echo {{ x }}");
        check_error("process", "{\"command\":\"  \"}", "Process adapter missing command");
        check_error("http", "{}", "HTTP adapter missing url");
        check_error("nonsense", "{}", "Unknown adapter type: nonsense");
        check_error("cursor_cloud", "{}", "Adapter \"cursor_cloud\" cannot run agents here");
        check_error("acp", "{}", "ACP adapter missing command");

        fixture_init(&f, "process", "local", "{\"command\":\"x\"}");
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_null(f.command.stdin_text);
        assert_int_equal(f.command.grace_ms, 15000);
        assert_int_equal(f.command.timeout_ms, 0);
        assert_string_equal(json_get_string(f.command.env, "PAPERCLIP_RUN_ID"), "run-1");
        assert_string_equal(json_get_string(f.command.env, "PAPERCLIP_AGENT_ID"), "agent-1");
        assert_string_equal(json_get_string(f.command.env, "PAPERCLIP_COMPANY_ID"), "company-1");
        fixture_done(&f);
}

static void test_http(void **state)
{
        struct adapter_fixture f;
        CLEAN(cleanup_free) char *text = NULL;

        (void)state;
        fixture_init(&f, "http", "local",
                     "{\"url\":\"http://h/\",\"payloadTemplate\":{\"a\":1,\"runId\":\"no\"},"
                     "\"headers\":{\"X\":\"y\"},\"timeoutMs\":50}");
        fixture_context(&f, "{\"issueId\":\"i\"}");
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_true(f.command.is_http);
        assert_int_equal(f.command.timeout_ms, 50);
        text = json_to_text(f.command.request);
        assert_string_equal(text,
                            "{\"method\":\"POST\",\"url\":\"http://h/\",\"headers\":{\"X\":\"y\"},"
                            "\"body\":{\"a\":1,\"runId\":\"run-1\",\"agentId\":\"agent-1\","
                            "\"context\":{\"issueId\":\"i\"}}}");
        fixture_done(&f);
}

/* remote-execution 8.48, with the four hours of newer versions */
static void test_timeouts(void **state)
{
        static const struct {
                const char *kind, *config;
                int64_t ms;
                const char *source;
        } all[] = {
                { "sandbox", "{}", 14400000, "default" },
                { "ssh", "{}", 0, "default" },
                { "sandbox", "{\"timeoutSec\":90.9}", 90000, "configured" },
                { "ssh", "{\"timeoutSec\":90}", 90000, "configured" },
                { "sandbox", "{\"timeoutSec\":-1}", 0, "configured" },
                { "sandbox", "{\"timeoutSec\":\"x\"}", 14400000, "default" },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                struct adapter_fixture f;

                fixture_init(&f, "claude_local", all[i].kind, all[i].config);
                assert_int_equal(fixture_build(&f, NULL), 0);
                assert_int_equal(f.command.timeout_ms, all[i].ms);
                assert_string_equal(f.command.timeout_source, all[i].source);
                assert_int_equal(f.command.grace_ms, 20000);
                fixture_done(&f);
        }
}

/* Whether a session is resumed that was saved with this. */
static bool resumes(const char *kind, const char *saved)
{
        struct adapter_fixture f;
        bool resumed;

        fixture_init(&f, "codex_local", kind, NULL);
        f.session = fixture_json(saved);
        f.in.session = f.session;
        assert_int_equal(fixture_build(&f, NULL), 0);
        resumed = f.command.session_id != NULL;
        fixture_done(&f);
        return resumed;
}

/* remote-execution 8.47, 8.83 */
static void test_resuming(void **state)
{
        (void)state;
        assert_true(resumes("local", "{\"sessionId\":\"s\"}"));
        assert_true(resumes("local", "{\"session_id\":\"s\",\"workdir\":\"/w\"}"));
        assert_false(resumes("local", "{\"sessionId\":\" \"}"));
        assert_false(resumes("local", "{\"sessionId\":\"s\",\"cwd\":\"/v\"}"));
        assert_false(resumes("local", "{\"sessionId\":\"s\",\"remoteExecution\":{\"a\":1}}"));
        assert_false(resumes("ssh", "{\"sessionId\":\"s\",\"cwd\":\"/w\"}"));
        assert_false(resumes("ssh", "{\"sessionId\":\"s\",\"remoteExecution\":{\"transport\":"
                                    "\"ssh\",\"host\":\"h\",\"port\":23,\"username\":\"u\","
                                    "\"remoteCwd\":\"/w\"}}"));
        assert_true(resumes("ssh", "{\"sessionId\":\"s\",\"remoteExecution\":{\"transport\":"
                                   "\"ssh\",\"host\":\"h\",\"port\":22,\"username\":\"u\","
                                   "\"remoteCwd\":\"/w\"}}"));
        assert_false(resumes("sandbox", "{\"sessionId\":\"s\",\"remoteExecution\":{\"transport\":"
                                        "\"sandbox\",\"providerKey\":\"berth\",\"environmentId\":"
                                        "\"e\",\"leaseId\":\"other\",\"remoteCwd\":\"/w\"}}"));
}

static void test_a_fresh_session_is_asked_for(void **state)
{
        struct adapter_fixture f;

        (void)state;
        fixture_init(&f, "codex_local", "local", NULL);
        fixture_session(&f, "s");
        assert_int_equal(adapter_build(&f.op, NULL, &f.in, true, &f.command, NULL), 0);
        assert_null(f.command.session_id);
        assert_args(&f, CODEX OWN "|" KEYS "|-");
        fixture_done(&f);
}

#define WAKE "{" WAKE_MEMBER
#define WAKE_MEMBER                                                                                \
        "\"paperclipWake\":{\"reason\":\"issue_commented\",\"issue\":{\"id\":\"i\","               \
        "\"identifier\":\"ACM-1\"},\"comments\":[{\"id\":\"c\",\"body\":\"please\"}]}}"

#define TASK                                                                                           \
        "{\"paperclipIssue\":{\"identifier\":\"ACM-1\",\"title\":\"Mend it\",\"description\":\"It is " \
        "broken.\",\"priority\":\"high\",\"comments\":[{\"id\":\"b\",\"body\":\"since Monday\"},"      \
        "{\"id\":\"c\",\"body\":\"please\"}]},"

static void test_the_prompt(void **state)
{
        struct adapter_fixture f;
        const char *said;

        (void)state;
        fixture_init(&f, "claude_local", "local",
                     "{\"promptTemplate\":\"I am {{agent.name}} of {{ company.name }}"
                     "{{ missing.x }}: {{ context.paperclipWake.issue }}\","
                     "\"bootstrapPromptTemplate\":\"first {{runId}}\"}");
        fixture_context(&f, TASK WAKE_MEMBER);
        assert_int_equal(fixture_build(&f, NULL), 0);
        said = f.command.stdin_text;
        assert_true(str_starts(said, "first run-1\n\n## How this run works\n\n"));
        assert_non_null(strstr(said, "$PAPERCLIP_API_URL/api$2"));
        assert_string_equal(strstr(said, "## Your task"),
                            "## Your task: ACM-1, Mend it\n\nIt is broken.\n\n"
                            "Said about it so far, the latest last:\n\n1. comment b\n"
                            "since Monday\n\n## Paperclip Wake Payload\n\n"
                            "This is why you were woken; act on it before anything else.\n\n"
                            "- reason: issue_commented\n- issue: ACM-1\n- issue id: i\n\n"
                            "1. comment c\nplease\n\n"
                            "I am Ada of Acme: {\"id\":\"i\",\"identifier\":\"ACM-1\"}");
        assert_int_equal(f.command.stdin_len, strlen(f.command.stdin_text));
        fixture_done(&f);
}

/* A template has every field, and says where the ready texts go. */
static void test_a_template_of_the_task(void **state)
{
        struct adapter_fixture f;

        (void)state;
        fixture_init(&f, "opencode_local", "local",
                     "{\"model\":\"a/b\",\"promptTemplate\":\"{{ task }} | {{ issue.priority }} "
                     "{{ wake.reason }} {{ target.cwd }} {{ model.name }} | {{contract}}\"}");
        fixture_context(&f, TASK WAKE_MEMBER);
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_true(str_starts(f.command.stdin_text, "## Paperclip Wake Payload"));
        assert_non_null(strstr(f.command.stdin_text,
                               "\n\n## Your task: ACM-1, Mend it\n\nIt is broken.\n"));
        assert_non_null(strstr(f.command.stdin_text,
                               "| high issue_commented /w b | ## How this run works"));
        fixture_done(&f);
}

static void test_the_prompt_of_a_resumed_session(void **state)
{
        struct adapter_fixture f;

        (void)state;
        fixture_init(&f, "claude_local", "local",
                     "{\"promptTemplate\":\"again\",\"bootstrapPromptTemplate\":\"begin\"}");
        fixture_context(&f, WAKE);
        fixture_session(&f, "s");
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_ptr_equal(strstr(f.command.stdin_text, "## Paperclip Resume Delta"),
                         f.command.stdin_text);
        assert_null(strstr(f.command.stdin_text, "again"));
        assert_null(strstr(f.command.stdin_text, "How this run works"));
        assert_null(strstr(f.command.stdin_text, "begin"));
        fixture_done(&f);

        fixture_init(&f, "claude_local", "local", "{\"promptTemplate\":\"again\"}");
        fixture_session(&f, "s");
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_string_equal(f.command.stdin_text, "again");
        fixture_done(&f);
}

static void with_instructions(const char *type, const char *kind, bool resumed, const char *path,
                              struct adapter_fixture *f)
{
        CLEAN(cleanup_free)
        char *config =
                xasprintf("{\"instructionsFilePath\":\"%s\",\"promptTemplate\":\"go\"}", path);

        fixture_init(f, type, kind, config);
        if (resumed) {
                fixture_session(f, "s");
                fixture_context(f, WAKE);
        }
        assert_int_equal(fixture_build(f, NULL), 0);
}

static bool has_arg(const struct adapter_fixture *f, const char *wanted)
{
        for (const char *const *arg = f->command.args; *arg; arg++)
                if (streq(*arg, wanted))
                        return true;
        return false;
}

static void test_instructions(void **state)
{
        char dir[SCRATCH_PATH_MAX], path[SCRATCH_PATH_MAX + 16];
        struct adapter_fixture f;

        (void)state;
        make_scratch(dir);
        (void)snprintf(path, sizeof(path), "%s/AGENTS.md", dir);
        assert_int_equal(file_write_at(-100, path, "Be kind.\n", 9, 0600, NULL), 0);

        with_instructions("codex_local", "local", false, path, &f);
        assert_ptr_equal(strstr(f.command.stdin_text, "Be kind."), f.command.stdin_text);
        assert_non_null(strstr(f.command.stdin_text, path));
        fixture_done(&f);
        with_instructions("codex_local", "local", true, path, &f);
        assert_null(strstr(f.command.stdin_text, "Be kind."));
        fixture_done(&f);
        with_instructions("cursor", "local", true, path, &f);
        assert_non_null(strstr(f.command.stdin_text, "Be kind."));
        fixture_done(&f);
        with_instructions("claude_local", "local", false, path, &f);
        assert_true(has_arg(&f, "--append-system-prompt-file") && has_arg(&f, path));
        assert_string_equal(f.command.stdin_text, "go");
        fixture_done(&f);
        with_instructions("claude_local", "local", true, path, &f);
        assert_false(has_arg(&f, "--append-system-prompt-file"));
        fixture_done(&f);
        with_instructions("claude_local", "ssh", false, path, &f);
        assert_true(has_arg(&f, "--append-system-prompt"));
        assert_false(has_arg(&f, path));
        fixture_done(&f);

        assert_int_equal(unlink(path), 0);
        with_instructions("codex_local", "local", false, path, &f);
        assert_string_equal(f.command.stdin_text, "go");
        assert_int_equal(json_array_size(json_object_get(f.command.invocation, "commandNotes")), 1);
        fixture_done(&f);
        assert_int_equal(rmdir(dir), 0);
}

static void assert_left_out(const char *kind, const char *path, const char *workspace)
{
        CLEAN(cleanup_free)
        char *config =
                xasprintf("{\"instructionsFilePath\":\"%s\",\"promptTemplate\":\"go\"}", path);
        struct adapter_fixture f;

        fixture_init(&f, "codex_local", kind, config);
        f.in.target.local_cwd = workspace;
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_string_equal(f.command.stdin_text, "go");
        assert_int_equal(json_array_size(json_object_get(f.command.invocation, "commandNotes")), 1);
        fixture_done(&f);
}

/* A workspace that an agent had its hands on: no link leads to what only the daemon may read, and
 * nothing makes it wait. */
static void test_instructions_that_are_none(void **state)
{
        char dir[SCRATCH_PATH_MAX], inner[SCRATCH_PATH_MAX + 16], secret[SCRATCH_PATH_MAX + 16];
        char link[SCRATCH_PATH_MAX + 32], pipe[SCRATCH_PATH_MAX + 32];
        char there[SCRATCH_PATH_MAX + 32], deep[SCRATCH_PATH_MAX + 64];

        (void)state;
        make_scratch(dir);
        (void)snprintf(inner, sizeof(inner), "%s/ws", dir);
        (void)snprintf(secret, sizeof(secret), "%s/secret", dir);
        (void)snprintf(link, sizeof(link), "%s/ws/link", dir);
        (void)snprintf(pipe, sizeof(pipe), "%s/ws/pipe", dir);
        (void)snprintf(there, sizeof(there), "%s/ws/there", dir);
        (void)snprintf(deep, sizeof(deep), "%s/ws/there/secret", dir);
        assert_int_equal(mkdir(inner, 0700), 0);
        assert_int_equal(file_write_at(-100, secret, "x", 1, 0600, NULL), 0);
        assert_int_equal(symlink("../secret", link), 0);
        assert_int_equal(symlink("..", there), 0);
        assert_int_equal(mkfifo(pipe, 0600), 0);
        assert_left_out("sandbox", link, inner);
        assert_left_out("sandbox", deep, inner);
        assert_left_out("sandbox", pipe, inner);
        assert_left_out("sandbox", link, NULL);
        assert_left_out("sandbox", inner, NULL);
        assert_left_out("local", link, NULL);
        assert_left_out("local", "relative", NULL);
        assert_int_equal(unlink(link) + unlink(there) + unlink(pipe) + unlink(secret), 0);
        assert_int_equal(rmdir(inner) + rmdir(dir), 0);
}

#define CONTEXT                                                                                    \
        "{\"issueId\":\"i\",\"wakeReason\":\"w\",\"commentId\":\"c\",\"issueIds\":[\"a\",\"b\"],"  \
        "\"paperclipWorkspace\":{\"source\":\"project_primary\",\"worktreePath\":\"/t\","          \
        "\"agentHome\":\"/h\"},\"paperclipWorkspaces\":[{\"cwd\":\"/l\",\"id\":1},"                \
        "{\"cwd\":\"/other\",\"id\":2}],\"paperclipRuntimePrimaryUrl\":\"http://x\"}"

static void assert_env(const struct adapter_fixture *f, const char *name, const char *expected)
{
        const char *value = json_get_string(f->command.env, name);

        if (!expected) {
                assert_null(value);
                return;
        }
        assert_non_null(value);
        assert_string_equal(value, expected);
}

/* remote-execution 8.64 */
static void test_variables(void **state)
{
        struct adapter_fixture f;

        (void)state;
        fixture_init(&f, "claude_local", "local", NULL);
        fixture_context(&f, CONTEXT);
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_env(&f, "PAPERCLIP_TASK_ID", "i");
        assert_env(&f, "PAPERCLIP_WAKE_REASON", "w");
        assert_env(&f, "PAPERCLIP_WAKE_COMMENT_ID", "c");
        assert_env(&f, "PAPERCLIP_LINKED_ISSUE_IDS", "a,b");
        assert_env(&f, "PAPERCLIP_WORKSPACE_CWD", "/w");
        assert_env(&f, "PAPERCLIP_WORKSPACE_WORKTREE_PATH", "/t");
        assert_env(&f, "AGENT_HOME", "/h");
        assert_env(&f, "PAPERCLIP_RUNTIME_PRIMARY_URL", "http://x");
        assert_env(&f, "PAPERCLIP_API_KEY", NULL);
        fixture_done(&f);

        fixture_init(&f, "gemini_local", "sandbox",
                     "{\"env\":{\"MY_WORKSPACE_CWD\":\"/l\",\"HOME_WORKSPACE_CWD\":\"/x\","
                     "\"PAPERCLIP_TASK_ID\":\"mine\"}}");
        f.in.target.local_cwd = "/l";
        fixture_context(&f, CONTEXT);
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_env(&f, "PAPERCLIP_WORKSPACE_CWD", "/w");
        assert_env(&f, "PAPERCLIP_WORKSPACE_WORKTREE_PATH", NULL);
        assert_env(&f, "PAPERCLIP_WORKSPACES_JSON", "[{\"cwd\":\"/w\",\"id\":1},{\"id\":2}]");
        assert_env(&f, "MY_WORKSPACE_CWD", "/w");
        assert_env(&f, "HOME_WORKSPACE_CWD", NULL);
        assert_env(&f, "PAPERCLIP_TASK_ID", NULL); /* the agent's own value is added later */
        assert_env(&f, "PAPERCLIP_RUNTIME_PRIMARY_URL", NULL);
        assert_env(&f, "GEMINI_CLI_TRUST_WORKSPACE", "true");
        assert_env(&f, "HOME", "/w/.paperclip-runtime/gemini");
        fixture_done(&f);
}

/* Variables that an adapter needs, and those that the agent may set instead. */
static void test_described_variables(void **state)
{
        struct adapter_fixture f;

        (void)state;
        fixture_init(&f, "opencode_local", "sandbox",
                     "{\"model\":\"a/b\",\"env\":{\"HOME\":\"/root\","
                     "\"OPENCODE_DISABLE_PROJECT_CONFIG\":\"no\"}}");
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_env(&f, "OPENCODE_DISABLE_PROJECT_CONFIG", "true");
        assert_env(&f, "HOME", NULL);
        fixture_done(&f);
}

static void test_what_the_event_shows(void **state)
{
        struct adapter_fixture f;
        const json_t *event, *env;

        (void)state;
        fixture_init(&f, "gemini_local", "ssh",
                     "{\"promptTemplate\":\"h\\u00e9llo\",\"env\":{\"A\":{\"type\":\"plain\","
                     "\"value\":\"b\"},\"GEMINI_API_KEY\":\"k\",\"S\":{\"type\":\"secret_ref\","
                     "\"secretId\":\"x\"}}}");
        assert_int_equal(fixture_build(&f, NULL), 0);
        event = f.command.invocation;
        env = json_get_object(event, "env");
        assert_string_equal(json_get_string(event, "command"), "ssh://u@h:22/w :: gemini");
        assert_string_equal(json_get_string(env, "PAPERCLIP_RESOLVED_COMMAND"),
                            "ssh://u@h:22/w :: gemini");
        assert_string_equal(json_get_string(env, "A"), "b");
        assert_string_equal(json_get_string(env, "GEMINI_API_KEY"), "***REDACTED***");
        assert_string_equal(json_get_string(env, "S"), "***REDACTED***");
        assert_string_equal(
                json_string_value(json_array_get(json_object_get(event, "commandArgs"), 5)),
                "<stdin prompt 5 chars>");
        assert_string_equal(f.command.redact_env[0], "GEMINI_API_KEY");
        assert_string_equal(f.command.redact_env[1], "S");
        assert_null(f.command.redact_env[2]);
        fixture_done(&f);

        fixture_init(&f, "opencode_local", "sandbox",
                     "{\"model\":\"a/b\",\"promptTemplate\":\"x\"}");
        assert_int_equal(fixture_build(&f, NULL), 0);
        event = f.command.invocation;
        assert_string_equal(json_get_string(event, "command"), "sandbox://berth/l/w :: opencode");
        assert_string_equal(
                json_string_value(json_array_get(json_object_get(event, "commandArgs"), 5)),
                "<stdin prompt 1 chars>");
        fixture_done(&f);
}

/* remote-execution 8.16, 8.43, 8.44 */
static void test_setup(void **state)
{
        struct adapter_fixture f;

        (void)state;
        fixture_init(&f, "claude_local", "sandbox", NULL);
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_non_null(strstr(
                f.command.setup,
                "if [ \"$(id -u)\" -eq 0 ]; then npm "
                "install -g '@anthropic-ai/claude-code'; elif command -v sudo >/dev/null 2>&1 && "
                "sudo -n true >/dev/null 2>&1; then sudo -E npm install -g "
                "'@anthropic-ai/claude-code'; else mkdir -p \"$HOME/.local\" && npm install -g "
                "--prefix \"$HOME/.local\" '@anthropic-ai/claude-code'; fi\n}"));
        assert_string_equal(f.command.setup_error, "claude could not be installed in this sandbox");
        assert_int_equal(f.command.setup_timeout_ms, 14400000);
        fixture_done(&f);
        fixture_init(&f, "claude_local", "sandbox", NULL);
        f.in.target.is_offline = true;
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_null(strstr(f.command.setup, "npm"));
        assert_true(
                str_starts(f.command.setup_error,
                           "claude is not in this sandbox, which has no network to install it: "));
        fixture_done(&f);
        fixture_init(&f, "claude_local", "sandbox", "{\"command\":\"/opt/claude\"}");
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_null(f.command.setup);
        fixture_done(&f);
        fixture_init(&f, "claude_local", "ssh", NULL);
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_null(f.command.setup);
        fixture_done(&f);
}

/* remote-execution 8.17 */
static void test_names_of_packages_are_quoted(void **state)
{
        json_t *json = fixture_json("{\"install\":{\"npm\":\"odd'pkg\"}}");
        struct adapter_descriptor d = { .json = json };
        struct arena arena = { 0 };

        (void)state;
        assert_non_null(strstr(adapter_install_script(&d, &arena),
                               "then npm install -g 'odd'\"'\"'pkg'; elif"));
        arena_done(&arena);
        json_decref(json);
}

/* What the installing script says, and that it goes no further, with these programs to be found. */
static void check_install(const char *programs, const char *expected)
{
        json_t *json = fixture_json("{\"install\":{\"npm\":\"pkg\",\"node\":20}}");
        struct adapter_descriptor d = { .json = json };
        struct arena arena = { 0 };
        char said[512] = "";
        FILE *shell;

        assert_int_equal(setenv("SCRIPT", adapter_install_script(&d, &arena), 1), 0);
        /* What is tested is a script of the shell. NOLINTNEXTLINE(cert-env33-c) */
        shell = popen(arena_printf(&arena, "PATH=/nowhere; %s\neval \"$SCRIPT\"", programs), "r");
        assert_non_null(shell);
        said[fread(said, 1, sizeof(said) - 1, shell)] = '\0';
        assert_int_equal(pclose(shell), 1 << 8);
        if (!str_starts(said, expected))
                assert_string_equal(said, expected);
        arena_done(&arena);
        json_decref(json);
}

static void test_what_an_installation_needs(void **state)
{
        (void)state;
        check_install(":", "npm is missing: install Node 20 or newer with npm. A built-in sandbox");
        check_install("npm() { echo ran; }; node() { echo 18.19.0; }",
                      "Node 18.19.0 is too old: install Node 20 or newer with npm. A built-in");
        check_install("npm() { echo ran; exit 1; }; node() { echo 20.0.1; }; id() { echo 0; }",
                      "ran\n");
}

static void test_the_directory(void **state)
{
        struct adapter_fixture f;

        (void)state;
        fixture_init(&f, "process", "local", "{\"command\":\"x\",\"cwd\":\"/mine\"}");
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_string_equal(f.command.cwd, "/w");
        fixture_done(&f);
        fixture_init(&f, "process", "local", "{\"command\":\"x\",\"cwd\":\"/mine\"}");
        fixture_context(&f, "{\"paperclipWorkspace\":{\"source\":\"agent_home\"}}");
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_string_equal(f.command.cwd, "/mine");
        fixture_done(&f);
}

/* What others write to an agent must not keep it from being started: one variable has at most
 * 128 KiB. */
static void test_a_wake_that_is_too_long(void **state)
{
        struct adapter_fixture f;
        char *text = xcalloc(1, 200001);
        json_t *context, *wake;
        const char *got;

        (void)state;
        memset(text, 'x', 200000);
        context = json_pack("{s:{s:[s], s:[{s:s}], s:{s:s}}}", "paperclipWake", "commentIds", "c",
                            "comments", "body", text, "payload", "k", "v");
        fixture_init(&f, "claude_local", "local", NULL);
        f.context = context;
        f.in.context = context;
        assert_int_equal(fixture_build(&f, NULL), 0);
        got = json_get_string(f.command.env, "PAPERCLIP_WAKE_PAYLOAD_JSON");
        assert_string_equal(got, "{\"commentIds\":[\"c\"],\"payload\":{\"k\":\"v\"},"
                                 "\"fallbackFetchNeeded\":true}");
        wake = json_get_object(context, "paperclipWake");
        json_object_set_new(json_get_object(wake, "payload"), "k", json_string(text));
        assert_int_equal(fixture_build(&f, NULL), 0);
        got = json_get_string(f.command.env, "PAPERCLIP_WAKE_PAYLOAD_JSON");
        assert_string_equal(got, "{\"commentIds\":[\"c\"],\"fallbackFetchNeeded\":true}");
        fixture_done(&f);
        free(text);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_claude),
                cmocka_unit_test(test_claude_on_bedrock),
                cmocka_unit_test(test_codex),
                cmocka_unit_test(test_cursor),
                cmocka_unit_test(test_gemini),
                cmocka_unit_test(test_opencode),
                cmocka_unit_test(test_pi),
                cmocka_unit_test(test_process),
                cmocka_unit_test(test_http),
                cmocka_unit_test(test_timeouts),
                cmocka_unit_test(test_resuming),
                cmocka_unit_test(test_a_fresh_session_is_asked_for),
                cmocka_unit_test(test_the_prompt),
                cmocka_unit_test(test_a_template_of_the_task),
                cmocka_unit_test(test_the_prompt_of_a_resumed_session),
                cmocka_unit_test(test_instructions),
                cmocka_unit_test(test_instructions_that_are_none),
                cmocka_unit_test(test_variables),
                cmocka_unit_test(test_described_variables),
                cmocka_unit_test(test_what_the_event_shows),
                cmocka_unit_test(test_a_wake_that_is_too_long),
                cmocka_unit_test(test_setup),
                cmocka_unit_test(test_names_of_packages_are_quoted),
                cmocka_unit_test(test_what_an_installation_needs),
                cmocka_unit_test(test_the_directory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
