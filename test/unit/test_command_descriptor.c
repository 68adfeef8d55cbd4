/* Descriptors of kinds made by commands: which are accepted, how commands are put together, and how
 * output is read. */
#include "core/kinds/command/command_descriptor.h"

#include "base/embedded.h"
#include "core/kinds/command/command_load.h"
#include "test.h"

static const char good[] =
        "{\"name\":\"crate\",\"displayName\":\"Crate\",\"description\":\"d\",\"isolated\":true,"
        "\"isolation\":\"own\",\"workdir\":\"/work\",\"options\":{"
        "\"image\":{\"type\":\"string\"},\"mb\":{\"type\":\"integer\"},"
        "\"big\":{\"type\":\"boolean\"},\"env\":{\"type\":\"array\"},"
        "\"key\":{\"type\":\"string\",\"format\":\"secret-ref\"}},\"required\":[\"image\"],"
        "\"environment\":{\"set\":{\"KEY\":\"${key}\"}},\"commands\":{"
        "\"create\":{\"run\":[\"crate\",\"--name\",\"${name}\",[\"--mb\",\"${mb}m\"],"
        "[\"--env\",\"${env}\"],{\"if\":\"big\",\"args\":[\"--big\"]},\"${image}\"]},"
        "\"reach\":{\"run\":[\"crate\",\"sh\",\"-c\",\"${sh}\"]},"
        "\"destroy\":{\"run\":[\"crate\",\"rm\",\"${name}\"]},"
        "\"list\":{\"run\":[\"crate\",\"ls\"],\"columns\":[\"tag\",\"ref\"]}},"
        "\"errors\":[{\"match\":\"no such\",\"is\":\"gone\",\"hint\":\"h\"}]}";

static json_t *parse(const char *text)
{
        json_t *v;

        assert_int_equal(json_parse(text, strlen(text), &v, NULL), 0);
        return v;
}

/* The good one with one text replaced. */
static void refused(const char *from, const char *to, const char *why)
{
        const char *at = strstr(good, from);
        CLEAN(err_done) struct err err = { 0 };
        char *text;
        json_t *d;

        assert_non_null(at);
        text = xasprintf("%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
        d = parse(text);
        assert_int_equal(command_descriptor_check(d, &err), ERR_INVALID);
        if (!strstr(err.msg, why))
                fail_msg("%s: \"%s\" is not about \"%s\"", to, err.msg, why);
        json_decref(d);
        free(text);
}

static void test_which_are_accepted(void **state)
{
        CLEAN(json_decrefp) json_t *d = parse(good);

        (void)state;
        assert_int_equal(command_descriptor_check(d, NULL), 0);
        refused("\"crate\",\"displayName\"", "\"Crate!\",\"displayName\"", "name");
        refused("\"isolated\":true", "\"isolated\":1", "isolated");
        refused("\"workdir\":\"/work\"", "\"workdir\":\"${mb}\"", "without a value");
        /* A place that shares its files with others has a directory of its own. */
        refused("\"isolated\":true", "\"isolated\":false", "not isolated");
        refused("\"${image}\"]", "\"${mb}\"]", "without a value");
        refused("\"${image}\"]", "\"${nothing}\"]", "neither an option nor a word");
        refused("\"${image}\"]", "\"${sh}\"]", "not known to this command");
        refused("\"${image}\"]", "\"${key}\"]", "secret");
        refused("\"rm\",\"${name}\"", "\"rm\",\"${ref}\"", "not known to this command");
        refused("\"if\":\"big\"", "\"if\":\"other\"", "if");
        refused("\"columns\":[\"tag\",\"ref\"]", "\"columns\":[\"ref\"]", "needs tag");
        refused("\"columns\":[\"tag\",\"ref\"]", "\"seconds\":5", "columns");
        refused("\"is\":\"gone\"", "\"is\":\"away\"", "is none of");
        refused("\"match\":\"no such\"", "\"match\":\"(\"", "regular expression");
        refused("\"reach\"", "\"run\"", "no command that Berth knows");
        refused("\"mb\":{\"type\":\"integer\"}", "\"mb\":{\"type\":\"int\"}", "type");
        refused("\"mb\":{", "\"id\":{", "no name for an option");
        refused("\"required\":[\"image\"]", "\"required\":[\"other\"]", "no option");
        refused("\"description\":\"d\"", "\"about\":\"d\"", "is not known");
}

static const char *filled(struct arena *arena, const char *options)
{
        CLEAN(json_decrefp) json_t *d = parse(good);
        CLEAN(json_decrefp) json_t *config = parse(options);
        struct command_vars vars = { .options = config, .words = { [WORD_NAME] = "berth-1" } };
        CLEAN(buf_done) struct buf out = BUF_INIT;
        const char **args;

        assert_int_equal(command_fill_args(arena,
                                           json_object_get(command_of(d, COMMAND_CREATE), "run"),
                                           &vars, &args, NULL),
                         0);
        for (; *args; args++)
                buf_appendf(&out, "[%s]", *args);
        return arena_strdup(arena, buf_str(&out));
}

static void test_words(void **state)
{
        CLEAN(arena_done) struct arena arena = { 0 };

        (void)state;
        arena_init(&arena);
        assert_string_equal(filled(&arena, "{\"image\":\"a b;$(x)\"}"),
                            "[crate][--name][berth-1][a b;$(x)]");
        assert_string_equal(filled(&arena, "{\"image\":\"i\",\"mb\":5,\"big\":true,"
                                           "\"env\":[\"A=1\",\"B=${name}\"]}"),
                            "[crate][--name][berth-1][--mb][5m][--env][A=1][--env][B=${name}]"
                            "[--big][i]");
        assert_string_equal(filled(&arena, "{\"image\":\"i\",\"big\":false,\"env\":[]}"),
                            "[crate][--name][berth-1][i]");
}

static void test_texts_and_documents(void **state)
{
        CLEAN(json_decrefp) json_t *config = parse("{\"n\":5,\"on\":false,\"l\":{\"a\":\"b\"}}");
        CLEAN(json_decrefp)
        json_t *input =
                parse("{\"n\":\"${n}\",\"t\":\"${n}m\",\"on\":\"${on}\",\"l\":\"${l}\",\"none\":"
                      "\"${none}\",\"in\":{\"none\":\"${none}\"},\"list\":[\"${none}\"],"
                      "\"empty\":{},\"fixed\":[1,null]}");
        struct command_vars vars = { .options = config };
        CLEAN(arena_done) struct arena arena = { 0 };
        const char *text;

        (void)state;
        arena_init(&arena);
        assert_string_equal(command_fill_text(&arena, "a$${n}b${n}$c", &vars), "a${n}b5$c");
        assert_null(command_fill_text(&arena, "${none}", &vars));
        assert_int_equal(command_fill_input(&arena, input, &vars, &text, NULL), 0);
        assert_string_equal(text, "{\"n\":5,\"t\":\"5m\",\"on\":false,\"l\":{\"a\":\"b\"},"
                                  "\"empty\":{},\"fixed\":[1,null]}");
}

struct seen {
        char text[400];
};

static int see(void *ctx, const struct command_thing *t)
{
        struct seen *s = ctx;
        size_t n = strlen(s->text);

        snprintf(s->text + n, sizeof(s->text) - n, "%.8s/%s/%s;", t->tag, t->ref ? t->ref : "-",
                 t->node ? t->node : "-");
        return 0;
}

#define ID "01a1f006-c333-4432-97af-6345c903314d"

static const char *listed(struct arena *arena, const char *command, const char *text, int wanted)
{
        CLEAN(json_decrefp) json_t *c = parse(command);
        struct seen s = { "" };

        assert_int_equal(command_read_list(arena, c, text, strlen(text), see, &s, NULL), wanted);
        return arena_strdup(arena, s.text);
}

static void test_lists(void **state)
{
        CLEAN(arena_done) struct arena arena = { 0 };
        const char *json = "{\"json\":{\"items\":\"a.0.l\",\"tag\":\"t\\\\.x\",\"ref\":\"n.1\"}}";
        const char *lines = "{\"json\":{\"tag\":\"t\"}}";

        (void)state;
        arena_init(&arena);
        assert_string_equal(listed(&arena, "{\"columns\":[\"-\",\"tag\",\"ref\",\"node\"]}",
                                   "x\tberth-" ID "\t 5 \t" ID "\n\nnot ours\nx\t" ID "\n", 0),
                            "01a1f006/5/" ID ";01a1f006/-/-;");
        assert_string_equal(
                listed(&arena, json,
                       "{\"a\":[{\"l\":[{\"t.x\":\"" ID "\",\"n\":[1,7]},{\"t.x\":5},3]}]}", 0),
                "01a1f006/7/-;");
        assert_string_equal(listed(&arena, lines, "{\"t\":\"" ID "\"}\n{\"t\":\"" ID "\"}\n", 0),
                            "01a1f006/-/-;01a1f006/-/-;");
        assert_string_equal(listed(&arena, lines, "[]", 0), "");
        assert_string_equal(listed(&arena, lines, "oops", ERR_PROVIDER), "");
        assert_string_equal(listed(&arena, json, "{}", ERR_PROVIDER), "");
}

static void test_failures(void **state)
{
        CLEAN(json_decrefp) json_t *d = parse(good);
        CLEAN(arena_done) struct arena arena = { 0 };
        const char *hint, *group;

        (void)state;
        arena_init(&arena);
        assert_int_equal(command_failure_of(&arena, d, "Error: no such crate", &hint),
                         FAILURE_GONE);
        assert_string_equal(hint, "h");
        assert_int_equal(command_failure_of(&arena, d, "else", &hint), FAILURE_OTHER);
        assert_true(command_matches(&arena, "^([0-9]+)", "123;main\n", &group));
        assert_string_equal(group, "123");
}

static void never(void *ctx, const char *text)
{
        fail_msg("%s", text);
}

/* The ones that come with the program, each with all that a kind needs. */
static void test_those_of_the_program(void **state)
{
        struct command_kinds *all = command_kinds_load(NULL, never, NULL);
        size_t n = 0;

        (void)state;
        for (const struct kind *const *k = command_kinds_list(all); *k; k++) {
                const json_t *d = command_kind_descriptor(*k, NULL);

                if (!d)
                        continue;
                n++;
                assert_string_equal((*k)->driver, "sandbox");
                assert_string_equal((*k)->provider, json_get_string(d, "name"));
                assert_int_equal((*k)->isolated, json_is_true(json_object_get(d, "isolated")));
                assert_true(!(*k)->park == !command_of(d, COMMAND_PAUSE));
        }
        for (const struct embedded_file *f = kind_files; f->name; f++)
                n--;
        assert_int_equal(n, 0);
        command_kinds_free(all);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_which_are_accepted),
                cmocka_unit_test(test_words),
                cmocka_unit_test(test_texts_and_documents),
                cmocka_unit_test(test_lists),
                cmocka_unit_test(test_failures),
                cmocka_unit_test(test_those_of_the_program),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
