/* What descriptors say of assets: which are accepted, which are due where, and what becomes of them
 * in command lines and sessions. */
#include "adapter_fixture.h"

#include "core/adapters/adapter_descriptor.h"

static void check_refused(const char *asset, const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(cleanup_free)
        char *text = xasprintf("{\"type\":\"x\",\"command\":\"x\",\"assets\":[%s]}", asset);
        json_t *json = fixture_json(text);
        int r = adapter_descriptor_check(json, &e);

        if (expected) {
                assert_int_equal(r, ERR_INVALID);
                assert_string_equal(e.msg, expected);
        } else {
                assert_int_equal(r, 0);
        }
        json_decref(json);
}

#define FROM(part) "{\"key\":\"a\",\"from\":[" part "]}"

static void test_what_is_refused(void **state)
{
        static const char key[] = "assets[0].key has to be a word of letters, 0-9, _ and -, and "
                                  "not `workspace`";

        (void)state;
        check_refused(FROM("{\"skills\":\"\"}"), NULL);
        check_refused(FROM("{\"skills\":\".a/b..c\"}"), NULL);
        check_refused("7", "assets[0] has to be an object");
        check_refused("{\"from\":[]}", key);
        check_refused("{\"key\":\"../x\",\"from\":[]}", key);
        check_refused("{\"key\":\"\",\"from\":[]}", key);
        check_refused("{\"key\":\"workspace\",\"from\":[]}", key);
        check_refused("{\"key\":\"git-workspace\",\"from\":[]}", key);
        check_refused("{\"key\":\"a\"}", "assets[0].from is missing");
        check_refused("{\"key\":\"a\",\"from\":[]},{\"key\":\"a\",\"from\":[]}",
                      "assets[1].key is there twice");
        check_refused("{\"key\":\"a\",\"from\":[],\"keep\":[\"a/b\"]}",
                      "assets[0].keep has to be a list of names");
        check_refused("{\"key\":\"a\",\"from\":[],\"keep\":[7]}",
                      "assets[0].keep has to be a list of texts");
        check_refused("{\"key\":\"a\",\"from\":[],\"when\":7}",
                      "assets[0].when has to be a path or an object");
        check_refused(FROM("{}"), "assets[0].from[0] needs one of `skills`, `instructions`, "
                                  "`user`, `keyFile`");
        check_refused(FROM("{\"skills\":\"\",\"user\":\"x\"}"),
                      "assets[0].from[0] needs one of `skills`, `instructions`, `user`, `keyFile`");
        check_refused(FROM("{\"skills\":\"a/../b\"}"),
                      "assets[0].from[0].skills has to be a relative path");
        check_refused(FROM("{\"skills\":\"..\"}"),
                      "assets[0].from[0].skills has to be a relative path");
        check_refused(FROM("{\"skills\":\"/a\"}"),
                      "assets[0].from[0].skills has to be a relative path");
        check_refused(FROM("{\"skills\":\"a/\"}"),
                      "assets[0].from[0].skills has to be a relative path");
        check_refused(FROM("{\"skills\":\"a//b\"}"),
                      "assets[0].from[0].skills has to be a relative path");
        check_refused(FROM("{\"instructions\":\"\"}"),
                      "assets[0].from[0].instructions has to name a file");
        check_refused(FROM("{\"user\":\".x\",\"files\":[\"..\"]}"),
                      "assets[0].from[0].files has to be a list of names");
        check_refused(FROM("{\"user\":\".x\",\"files\":[\"\"]}"),
                      "assets[0].from[0].files has to be a list of names");
        check_refused(FROM("{\"user\":\".x\",\"link\":[\"a/b\"]}"),
                      "assets[0].from[0].link has to be a list of names");
        check_refused(FROM("{\"user\":\".x\",\"into\":\"../y\"}"),
                      "assets[0].from[0].into has to be a relative path");
        check_refused(FROM("{\"user\":\".x\",\"company\":\"../y\"}"),
                      "assets[0].from[0].company has to be a word of a-z, 0-9, _ and -");
        check_refused(FROM("{\"user\":\".x\",\"variable\":\"A;rm\"}"),
                      "assets[0].from[0].variable has to be the name of a variable");
        check_refused(FROM("{\"keyFile\":\"auth.json\"}"),
                      "assets[0].from[0].keyFile has to name a file, and needs `variable`");
        check_refused(FROM("{\"keyFile\":\"\",\"variable\":\"A\"}"),
                      "assets[0].from[0].keyFile has to name a file, and needs `variable`");
}

/* Which are due: "key=dir>copyTo", one after the other. */
static void check_due(const char *type, const char *kind, const char *config, const char *expected)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct adapter_fixture f;
        size_t i;
        json_t *one;

        fixture_init(&f, type, kind, config);
        json_array_foreach((json_t *)adapter_assets(&f.op, &f.in), i, one)
        {
                const char *dir = json_get_string(one, "dir"), *to = json_get_string(one, "copyTo");

                assert_null(json_object_get(one, "when"));
                buf_appendf(&b, "%s%s", i ? " " : "", json_get_string(one, "key"));
                buf_appendf(&b, "%s%s%s%s", dir ? "=" : "", dir ? dir : "", to ? ">" : "",
                            to ? to : "");
        }
        assert_string_equal(buf_str(&b), expected);
        fixture_done(&f);
}

/* Where several work in one directory, each has its own beside the work. */
static void test_apart(void **state)
{
        struct adapter_fixture f;
        const json_t *due;

        (void)state;
        fixture_init(&f, "codex_local", "ssh", NULL);
        f.in.target.apart = "agent-1";
        due = adapter_assets(&f.op, &f.in);
        assert_string_equal(json_get_string(json_array_get(due, 0), "dir"),
                            "/w/.paperclip-runtime/codex/agent-1/home");
        f.in.target.cwd = "/";
        due = adapter_assets(&f.op, &f.in);
        assert_string_equal(json_get_string(json_array_get(due, 0), "dir"),
                            "/.paperclip-runtime/codex/agent-1/home");
        fixture_done(&f);
}

static void test_what_is_due(void **state)
{
        static const char model[] = "{\"model\":\"a/b\"}";

        (void)state;
        check_due("claude_local", "local", NULL, "skills");
        check_due("claude_local", "ssh", NULL, "skills=/w/.paperclip-runtime/claude/skills");
        check_due("claude_local", "sandbox", NULL,
                  "skills=/w/.paperclip-runtime/claude/skills "
                  "config-seed=/w/.paperclip-runtime/claude/config-seed>"
                  "/w/.paperclip-runtime/claude/config");
        check_due("claude_local", "sandbox", "{\"env\":{\"CLAUDE_CONFIG_DIR\":\"/x\"}}",
                  "skills=/w/.paperclip-runtime/claude/skills");
        check_due("codex_local", "ssh", NULL, "home=/w/.paperclip-runtime/codex/home");
        check_due("codex_local", "ssh", "{\"env\":{\"CODEX_HOME\":\"/x\"}}", "");
        check_due("cursor", "local", NULL, "");
        check_due("cursor", "ssh", NULL,
                  "skills=/w/.paperclip-runtime/cursor/skills>~/.cursor/skills");
        check_due("gemini_local", "plugin", NULL,
                  "skills=/w/.paperclip-runtime/gemini/skills>~/.gemini/skills");
        check_due("opencode_local", "sandbox", model,
                  "skills=/w/.paperclip-runtime/opencode/skills>~/.claude/skills "
                  "xdgConfig=/w/.paperclip-runtime/opencode/xdgConfig");
        check_due("pi_local", "local", model, "skills instructions");
        check_due("process", "sandbox", NULL, "");
        check_due("nonsense", "sandbox", NULL, "");
}

static const json_t *first_asset(struct adapter_fixture *f, const char *type, const char *kind,
                                 const char *config)
{
        fixture_init(f, type, kind, config);
        return json_array_get(adapter_assets(&f->op, &f->in), 0);
}

/* Files that are made of a variable only when the agent has it, a secret or not; a home only where
 * it is not that of the place. */
static void test_parts(void **state)
{
        static const char secret[] = "{\"env\":{\"OPENAI_API_KEY\":{\"type\":\"secret_ref\","
                                     "\"secretId\":\"s\"}}}";
        struct adapter_fixture f;
        const json_t *a;

        (void)state;
        a = first_asset(&f, "codex_local", "ssh", NULL);
        assert_int_equal(json_array_size(json_object_get(a, "from")), 2);
        assert_null(json_object_get(a, "home"));
        fixture_done(&f);
        a = first_asset(&f, "codex_local", "ssh", secret);
        assert_int_equal(json_array_size(json_object_get(a, "from")), 3);
        fixture_done(&f);
        a = first_asset(&f, "cursor", "sandbox", NULL);
        assert_string_equal(json_get_string(a, "home"), "/w/.paperclip-runtime/cursor");
        fixture_done(&f);
        a = first_asset(&f, "cursor", "sandbox", "{\"env\":{\"HOME\":\"/own\"}}");
        assert_null(json_object_get(a, "home")); /* the agent's own variables are set anyway */
        fixture_done(&f);
}

/* How the program is told. */
static void check_told(const char *type, const char *assets, const char *expected,
                       const char *variable, const char *value)
{
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct adapter_fixture f;
        json_t *known = fixture_json(assets);

        fixture_init(&f, type, "ssh", "{\"model\":\"a/b\"}");
        f.in.assets = known;
        assert_int_equal(fixture_build(&f, &e), 0);
        for (const char *const *arg = f.command.args; *arg; arg++)
                buf_appendf(&b, " %s", *arg);
        if (expected)
                assert_non_null(strstr(buf_str(&b), expected));
        else
                assert_null(strstr(buf_str(&b), "/skl"));
        if (variable && value)
                assert_string_equal(json_get_string(f.command.env, variable), value);
        if (variable && !value)
                assert_null(json_get_string(f.command.env, variable));
        fixture_done(&f);
        json_decref(known);
}

static void test_how_it_is_told(void **state)
{
        (void)state;
        check_told("claude_local", "{\"skills\":{\"dir\":\"/skl\"}}", " --add-dir /skl",
                   "CLAUDE_CONFIG_DIR", NULL);
        check_told("claude_local", "{\"config-seed\":{\"dir\":\"/skl\"}}", NULL,
                   "CLAUDE_CONFIG_DIR", "/w/.paperclip-runtime/claude/config");
        check_told("codex_local", "{\"home\":{\"dir\":\"/h\"}}", NULL, "CODEX_HOME", "/h");
        check_told("codex_local", "{}", NULL, "CODEX_HOME", NULL);
        check_told("opencode_local", "{\"xdgConfig\":{\"dir\":\"/h\"}}", NULL, "XDG_CONFIG_HOME",
                   "/h");
        check_told("pi_local", "{\"skills\":{\"dir\":\"/skl\"}}", " --skill /skl", NULL, NULL);
        check_told("pi_local", "{}", NULL, NULL, NULL);
}

/* remote-execution 8.83: what was told first would hold otherwise. */
static void check_bundle(const char *saved, const char *now, bool resumed)
{
        struct adapter_fixture f;
        json_t *assets = now ? json_pack("{s:{s:s, s:s}}", "skills", "dir", "/s", "key", now)
                             : json_object();

        fixture_init(&f, "claude_local", "local", NULL);
        f.in.assets = assets;
        fixture_session(&f, "s-1");
        if (saved)
                json_object_set_new(f.session, "promptBundleKey", json_string(saved));
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_int_equal(f.command.session_id != NULL, resumed);
        fixture_done(&f);
        json_decref(assets);
}

static void test_a_session_belongs_to_its_bundle(void **state)
{
        (void)state;
        check_bundle(NULL, NULL, true);
        check_bundle(NULL, "k1", true);
        check_bundle("", "k1", true);
        check_bundle("k1", "k1", true);
        check_bundle("k1", "k2", false);
        check_bundle("k1", NULL, false);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_what_is_refused),
                cmocka_unit_test(test_what_is_due),
                cmocka_unit_test(test_apart),
                cmocka_unit_test(test_parts),
                cmocka_unit_test(test_how_it_is_told),
                cmocka_unit_test(test_a_session_belongs_to_its_bundle),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
