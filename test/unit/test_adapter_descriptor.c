/* The language of descriptors, what is accepted as one, and where they come from. */
#include "adapter_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "core/adapters/adapter_descriptor.h"
#include "core/adapters/adapter_expr.h"

static bool like(const char *pattern, const char *text)
{
        return adapter_like(pattern, text, strlen(text));
}

static void test_patterns(void **state)
{
        (void)state;
        assert_true(like("rate limit", "a RATE Limit was hit"));
        assert_false(like("rate limit", "rate  limit"));
        assert_true(like("session * not found", "the session 12 was not found"));
        assert_false(like("session * not found", "the session\n12 was not found"));
        assert_true(like("b", "a\nb\nc"));
        assert_true(like("^b$", "a\nb\nc"));
        assert_false(like("^b$", "a\nbb\nc"));
        assert_true(like("^a*c$", "abbbc"));
        assert_false(like("^a*c$", "abbbcd"));
        assert_true(like("c$", "abc abc"));
        assert_true(like("a*b*c", "xaxbxcx"));
        assert_false(like("a*b*c", "xaxcxbx"));
        assert_true(like("", ""));
        assert_true(like("*", ""));
        assert_false(like("a", ""));
        assert_false(like("^aa$", "a"));
        assert_true(like("*a", "ba"));
}

static const char *found(const char *document, const char *path)
{
        static char text[256];
        json_t *root = fixture_json(document);
        CLEAN(cleanup_free) char *value = NULL;
        const json_t *v = adapter_path_last(root, path);

        value = json_to_text(v);
        (void)snprintf(text, sizeof(text), "%s", v ? value : "none");
        json_decref(root);
        return text;
}

static void test_paths(void **state)
{
        static const char doc[] = "{\"a\":{\"b\":[{\"t\":\"x\",\"n\":1},{\"t\":\"y\",\"n\":2},"
                                  "{\"t\":\"x\",\"n\":3},7]},\"c\":[[1]]}";

        (void)state;
        assert_string_equal(found(doc, "a.b[].n"), "3");
        assert_string_equal(found(doc, "a.b[t=y].n"), "2");
        assert_string_equal(found(doc, "a.b[t=z].n"), "none");
        assert_string_equal(found(doc, "a.b.n"), "none");
        assert_string_equal(found(doc, "a.b[]"), "7");
        assert_string_equal(found(doc, "c[]"), "[1]");
        assert_string_equal(found(doc, "x.y"), "none");
        assert_string_equal(found("[1]", "a"), "none");
        assert_null(adapter_path_fault("a.b[t=y z].c"));
        assert_non_null(adapter_path_fault(""));
        assert_non_null(adapter_path_fault("a..b"));
        assert_non_null(adapter_path_fault("a."));
        assert_non_null(adapter_path_fault(".a"));
        assert_non_null(adapter_path_fault("a["));
        assert_non_null(adapter_path_fault("a[b]"));
        assert_non_null(adapter_path_fault("a[]b"));
        assert_non_null(adapter_path_fault("a[=x]"));
}

static bool holds(const char *condition, const char *scope)
{
        json_t *c = fixture_json(condition), *s = fixture_json(scope);
        bool held;

        assert_null(adapter_condition_fault(c));
        held = adapter_holds(c, s);
        json_decref(c);
        json_decref(s);
        return held;
}

static void test_conditions(void **state)
{
        (void)state;
        assert_true(holds("\"a\"", "{\"a\":\"x\"}"));
        assert_false(holds("\"a\"", "{\"a\":\" \"}"));
        assert_false(holds("\"a\"", "{\"a\":false}"));
        assert_false(holds("\"a\"", "{\"a\":0}"));
        assert_false(holds("\"a\"", "{\"a\":[]}"));
        assert_true(holds("\"!a\"", "{}"));
        assert_true(holds("{\"path\":\"a\",\"is\":[1,2]}", "{\"a\":2}"));
        assert_false(holds("{\"path\":\"a\",\"is\":\"x\"}", "{}"));
        assert_true(holds("{\"path\":\"a[]\",\"like\":\"^-f$\"}", "{\"a\":[\"x\",\"-f\"]}"));
        assert_false(holds("{\"all\":[\"a\",\"b\"]}", "{\"a\":1}"));
        assert_true(holds("{\"any\":[\"a\",\"b\"]}", "{\"a\":1}"));
        assert_true(holds("{\"all\":[]}", "{}"));
        assert_false(holds("{\"any\":[]}", "{}"));
        assert_true(holds("{\"not\":{\"path\":\"a\",\"is\":false}}", "{\"a\":true}"));
}

static void check_fault(const char *condition)
{
        json_t *c = fixture_json(condition);

        assert_non_null(adapter_condition_fault(c));
        json_decref(c);
}

static void test_conditions_that_are_none(void **state)
{
        (void)state;
        check_fault("7");
        check_fault("{}");
        check_fault("\"\"");
        check_fault("\"!\"");
        check_fault("{\"path\":\"a\"}");
        check_fault("{\"path\":7,\"is\":1}");
        check_fault("{\"path\":\"a\",\"is\":1,\"like\":\"x\"}");
        check_fault("{\"path\":\"a\",\"like\":7}");
        check_fault("{\"all\":\"a\"}");
        check_fault("{\"any\":[{\"not\":7}]}");
        check_fault("{\"not\":{\"not\":{\"not\":{\"not\":{\"not\":{\"not\":{\"not\":{\"not\":"
                    "\"a\"}}}}}}}}");
}

static void check_fill(const char *template, const char *expected)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        json_t *scope = fixture_json("{\"a\":{\"b\":\"x{{ a.b }}\"},\"n\":7,\"t\":true,"
                                     "\"z\":null}");

        adapter_fill(&b, template, scope);
        assert_string_equal(buf_str(&b), expected);
        json_decref(scope);
}

static void test_templates(void **state)
{
        (void)state;
        check_fill("{{a.b}}|{{ n }}|{{\tt\n}}|{{ z }}|{{ no.thing }}", "x{{ a.b }}|7|true||");
        check_fill("{{ a }}", "{\"b\":\"x{{ a.b }}\"}");
        check_fill("{{ a b }} {{}} {{ a.b", "{{ a b }} {{}} {{ a.b");
        check_fill("{ {{{n}}} {", "{ {7} {");
        check_fill("", "");
}

/* The built-in ones, in the order that clients know. */
static void test_built_in(void **state)
{
        static const char *const order[] = {
                "process",        "http",        "acp",          "acpx_local",
                "claude_local",   "codex_local", "cursor_cloud", "gemini_local",
                "opencode_local", "pi_local",    "cursor",       "openclaw_gateway",
                "gemini_acp",     "kimi_local",  "grok_local",   "hermes_local",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(order); i++) {
                assert_string_equal(adapter_at(i)->type, order[i]);
                assert_ptr_equal(adapter_find(order[i]), adapter_at(i));
                assert_int_equal(adapter_descriptor_check(adapter_at(i)->json, NULL), 0);
        }
        assert_null(adapter_at(ARRAY_LEN(order)));
        assert_null(adapter_find("nonsense"));
}

static void check_refused(const char *descriptor, const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *json = fixture_json(descriptor);

        assert_int_equal(adapter_descriptor_check(json, &e), ERR_INVALID);
        assert_string_equal(e.msg, expected);
        json_decref(json);
}

static void test_what_is_refused(void **state)
{
        (void)state;
        check_refused("{\"type\":\"x\"}", "command is missing");
        check_refused("{\"type\":\"X y\",\"command\":\"x\"}",
                      "type has to be a word of a-z, 0-9, _ and -");
        check_refused("{\"type\":\"x\",\"command\":\"x\",\"key\":\"../x\"}",
                      "key has to be a word of a-z, 0-9, _ and -");
        check_refused("{\"type\":\"x\",\"command\":\"x\",\"arg\":[]}", "arg is not known");
        check_refused("{\"type\":\"x\",\"command\":\"x\",\"args\":\"-p\"}",
                      "args has to be a list");
        check_refused("{\"type\":\"x\",\"command\":\"x\",\"args\":[\"a\",{\"when\":7}]}",
                      "args[1].when has to be a path or an object");
        check_refused("{\"type\":\"x\",\"command\":\"x\",\"args\":[{\"args\":[7]}]}",
                      "args[0].args has to be a list of texts");
        check_refused("{\"type\":\"x\",\"command\":\"x\",\"prompt\":\"file\"}",
                      "prompt is none of its values");
        check_refused("{\"type\":\"x\",\"command\":\"x\",\"env\":[{\"name\":\"A\"}]}",
                      "env needs `name` and `value`");
        check_refused("{\"type\":\"x\",\"command\":\"x\",\"graceSec\":-1}",
                      "graceSec has to be a number");
        check_refused("{\"type\":\"x\",\"command\":\"x\",\"errors\":[{\"like\":\"x\"}]}",
                      "errors needs `code`");
        check_refused("{\"type\":\"x\",\"command\":\"x\",\"output\":{\"events\":[{\"set\":"
                      "{\"session\":\"a..b\"}}]}}",
                      "output.events[0].set.session is no path");
        check_refused("{\"type\":\"x\",\"command\":\"x\",\"output\":{\"events\":[{\"match\":"
                      "{\"\":1}}]}}",
                      "output.events[0].match is no path");
}

static void write_file(const char *dir, const char *name, const char *text)
{
        char path[SCRATCH_PATH_MAX + 32];

        (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
        assert_int_equal(file_write_at(-100, path, text, strlen(text), 0600, NULL), 0);
}

static void remove_file(const char *dir, const char *name)
{
        char path[SCRATCH_PATH_MAX + 32];

        (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
        assert_int_equal(unlink(path), 0);
}

static void complain(void *ctx, const char *text)
{
        buf_appendf(ctx, "%s\n", strrchr(text, '/') + 1);
}

/* Last: it changes the list. */
static void test_an_operators_own(void **state)
{
        char dir[SCRATCH_PATH_MAX];
        CLEAN(buf_done) struct buf said = BUF_INIT;
        struct adapter_fixture f;

        (void)state;
        make_scratch(dir);
        write_file(dir, "a.json",
                   "{\"type\":\"mine\",\"command\":\"m\",\"remote\":true,"
                   "\"prompt\":\"argument\",\"args\":[\"-p\",\"{{ prompt }}\"]}");
        write_file(dir, "b.json", "{\"type\":\"mine\",\"args\":7}");
        write_file(dir, "c.json", "nonsense");
        write_file(dir, "d.json", "{\"type\":\"pi_local\",\"command\":\"my-pi\"}");
        write_file(dir, "e.txt", "not looked at");
        write_file(dir, "f.json", "{\"type\":\"goose\",\"base\":\"acp\",\"command\":\"goose\"}");
        write_file(dir, "g.json", "{\"type\":\"gander\",\"base\":\"nobody\"}");
        assert_int_equal(adapter_load(dir, complain, &said, NULL), 0);
        assert_non_null(strstr(buf_str(&said), "b.json: args has to be a list\n"));
        assert_non_null(strstr(buf_str(&said), "c.json: "));
        assert_non_null(strstr(buf_str(&said), "g.json: base names no adapter\n"));
        assert_null(strstr(buf_str(&said), "a.json"));
        assert_null(strstr(buf_str(&said), "e.txt"));
        assert_true(adapter_find("mine")->is_remote);
        assert_false(adapter_find("pi_local")->is_remote);
        assert_string_equal(adapter_at(9)->type, "pi_local");

        fixture_init(&f, "mine", "local", "{\"promptTemplate\":\"go\"}");
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_string_equal(f.command.command, "m");
        assert_string_equal(f.command.args[1], "go");
        fixture_done(&f);

        fixture_init(&f, "goose", "local", "{\"model\":\"m\"}");
        assert_int_equal(fixture_build(&f, NULL), 0);
        assert_string_equal(f.command.command, "goose");
        assert_string_equal(adapter_find("goose")->label, "goose");
        assert_string_equal(f.command.acp[0], "model=m");
        assert_string_equal(f.command.acp[1], "permissions=reject");
        assert_null(f.command.acp[2]);
        fixture_done(&f);

        remove_file(dir, "f.json");
        remove_file(dir, "g.json");
        remove_file(dir, "a.json");
        remove_file(dir, "b.json");
        remove_file(dir, "c.json");
        remove_file(dir, "d.json");
        remove_file(dir, "e.txt");
        assert_int_equal(rmdir(dir), 0);
        assert_int_equal(adapter_load(dir, complain, &said, NULL), 0); /* there is none */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_patterns),
                cmocka_unit_test(test_paths),
                cmocka_unit_test(test_conditions),
                cmocka_unit_test(test_conditions_that_are_none),
                cmocka_unit_test(test_templates),
                cmocka_unit_test(test_built_in),
                cmocka_unit_test(test_what_is_refused),
                cmocka_unit_test(test_an_operators_own),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
