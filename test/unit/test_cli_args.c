#include "test.h"

#include "cli/args.h"
#include "cli/command.h"
#include "cli/suggest.h"

static const struct cli_option global[] = {
        { "json", NULL, "" },
        { "company", "ID", "", 'C' },
        { 0 },
};

static const struct cli_option own[] = {
        { "ttl", "TIME", "" },
        { "option", "KEY=VALUE", "", 'o', true },
        { "yes", NULL, "", 'y' },
        { 0 },
};

/* Read all of a NULL-terminated command line with both tables. */
static int parse(struct args *a, const char *const *words, struct err *err)
{
        int n = 0;

        while (words[n])
                n++;
        args_init(a, n, (char **)words);
        args_add_table(a, global);
        args_add_table(a, own);
        return args_rest(a, SIZE_MAX, err);
}

static void test_forms(void **state UNUSED)
{
        CLEAN(args_done) struct args a;

        assert_int_equal(
                parse(&a,
                      (const char *[]){ "one", "--ttl", "5m", "--json", "-C", "acme", "two",
                                        "-oa=1", "-o", "b=2", "--option=c=3", "--", "--yes", NULL },
                      NULL),
                0);
        assert_int_equal(a.n_words, 3);
        assert_string_equal(a.words[0], "one");
        assert_string_equal(a.words[1], "two");
        assert_string_equal(a.words[2], "--yes");
        assert_string_equal(args_value(&a, "ttl"), "5m");
        assert_string_equal(args_value(&a, "company"), "acme");
        assert_true(args_flag(&a, "json"));
        assert_false(args_flag(&a, "yes"));
        assert_string_equal(args_item(&a, "option", 0), "a=1");
        assert_string_equal(args_item(&a, "option", 1), "b=2");
        assert_string_equal(args_item(&a, "option", 2), "c=3");
        assert_null(args_item(&a, "option", 3));
}

/* After its own words a command line may be somebody else's. */
static void test_command_in_it(void **state UNUSED)
{
        static const struct {
                const char *words[10];
                size_t own, n_words;
                bool json;
        } cases[] = {
                { { "--json", "ls", "--json", "-l", NULL }, 0, 3, true },
                { { "ls", "--json", NULL }, 0, 2, false },
                { { "lease", "--json", "ls", "-y", NULL }, 1, 3, true },
                { { "lease", "ls", "--json", "--", "x", NULL }, 1, 5, false },
                { { "--", "ls", "--", "--json", NULL }, 0, 3, false },
                { { "--json", "--", "lease", "ls", "-y", NULL }, 1, 3, true },
        };

        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                CLEAN(args_done) struct args a;
                int n = 0;

                while (cases[i].words[n])
                        n++;
                args_init(&a, n, (char **)cases[i].words);
                args_add_table(&a, global);
                args_add_table(&a, own);
                assert_int_equal(args_rest(&a, cases[i].own, NULL), 0);
                assert_int_equal(a.n_words, cases[i].n_words);
                assert_int_equal(args_flag(&a, "json"), cases[i].json);
                assert_false(args_flag(&a, "yes"));
        }
}

static void test_last_value_counts(void **state UNUSED)
{
        CLEAN(args_done) struct args a;

        assert_int_equal(
                parse(&a, (const char *[]){ "--ttl=1s", "--ttl=2s", "-", "--ttl=", NULL }, NULL),
                0);
        assert_string_equal(args_value(&a, "ttl"), "");
        assert_string_equal(a.words[0], "-");
        assert_null(args_value(&a, "company"));
}

static void check_wrong(const char *const *words, const char *expected)
{
        CLEAN(args_done) struct args a;
        CLEAN(err_done) struct err err = { 0 };

        assert_int_equal(parse(&a, words, &err), ERR_USAGE);
        assert_string_equal(err.msg, expected);
}

static void test_wrong(void **state UNUSED)
{
        check_wrong((const char *[]){ "--tlt", "5m", NULL },
                    "unknown option --tlt; did you mean --ttl?");
        check_wrong((const char *[]){ "--compnay=x", NULL },
                    "unknown option --compnay; did you mean --company?");
        check_wrong((const char *[]){ "--frobnicate", NULL }, "unknown option --frobnicate");
        check_wrong((const char *[]){ "-x", NULL }, "unknown option -x");
        check_wrong((const char *[]){ "--ttl", NULL }, "option --ttl needs a value: TIME");
        check_wrong((const char *[]){ "--json=yes", NULL }, "option --json takes no value");
        check_wrong((const char *[]){ "-yes", NULL }, "option --yes takes no value");
        check_wrong((const char *[]){ "--=x", NULL }, "unknown option --");
}

static const char *nearest(const char *typed)
{
        struct suggest s;

        suggest_init(&s, typed);
        for (const struct cli_command *c = cli_commands; c->name; c++)
                suggest_offer(&s, c->name);
        return s.best;
}

static void test_suggestions(void **state UNUSED)
{
        assert_string_equal(nearest("evn"), "env");
        assert_string_equal(nearest("leas"), "lease");
        assert_string_equal(nearest("leak"), "leaks");
        assert_string_equal(nearest("comp"), "company");
        assert_string_equal(nearest("doctro"), "doctor");
        assert_null(nearest("xyz"));
        assert_null(nearest("a-word-that-is-longer-than-any-command-there-is"));
}

static bool has_option(const struct cli_command *c, const char *name)
{
        for (const struct cli_option *o = c->options; o && o->name; o++)
                if (streq(o->name, name))
                        return true;
        return false;
}

/* What a request is made of must be on the command line: reading an option that is not known there
 * aborts. */
static void check_action(const struct cli_command *c)
{
        const struct cli_action *act = &c->act;

        assert_true(act->kind || act->method);
        assert_true(!act->kind || c->words > 0);
        if (act->method)
                assert_true(act->kind ? act->kind->path != NULL : act->path != NULL);
        assert_true(!act->columns || act->none);
        for (const struct cli_member *m = act->members; m && m->name; m++) {
                if (m->option && !has_option(c, m->option))
                        fail_msg("%s reads --%s, which it does not have", c->name, m->option);
                assert_true(m->word <= c->words);
                assert_true(m->type != MEMBER_ID || m->kind);
                if (m->type == MEMBER_CONFIG)
                        assert_true(has_option(c, "config") && has_option(c, "option"));
        }
}

/* Every row must be able to run or lead on, and explain itself. */
static void check_table(const struct cli_command *table)
{
        for (const struct cli_command *c = table; c->name; c++) {
                assert_non_null(c->summary);
                assert_non_null(c->synopsis);
                assert_non_null(c->example);
                assert_true(str_starts(c->example, "berth "));
                assert_ptr_equal(cli_find_command(table, c->name), c);
                if (c->sub)
                        check_table(c->sub);
                else if (!c->run)
                        check_action(c);
        }
}

static void test_command_table(void **state UNUSED)
{
        check_table(cli_commands);
        assert_null(cli_find_command(cli_commands, "nothing"));
}

/* -- Picking by id, name or prefix ------------------------------------------------------------ */

#define ID_A "aaaa1111-0000-4000-8000-000000000001"
#define ID_B "aaaa2222-0000-4000-8000-000000000002"
#define ID_C "beef0000-0000-4000-8000-000000000003"

static json_t *some_list(void)
{
        return json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "id", ID_A, "name", "box", "id", ID_B,
                         "name", "beef", "id", ID_C, "name", "Box two");
}

static void check_pick(const char *given, int code, const char *id)
{
        static const struct cli_kind thing = { .what = "thing", .name = "name" };
        CLEAN(err_done) struct err err = { 0 };
        json_t *list = some_list();
        json_t *found = NULL;

        assert_int_equal(cli_pick(&thing, list, given, &found, &err), code);
        if (id)
                assert_string_equal(cli_text(found, "id"), id);
        else
                assert_null(found);
        json_decref(list);
}

static void test_pick(void **state UNUSED)
{
        check_pick(ID_A, 0, ID_A);
        check_pick("BOX", 0, ID_A);
        check_pick("Box two", 0, ID_C);
        check_pick("aaaa1", 0, ID_A);
        check_pick("AAAA2222-", 0, ID_B);
        check_pick("beef", 0, ID_B); /* a name wins over the beginning of an id */
        check_pick("beef0", 0, ID_C);
        check_pick("aaaa", ERR_USAGE, NULL);
        check_pick("bee", ERR_NOT_FOUND, NULL);
        check_pick("", ERR_NOT_FOUND, NULL);
}

/* -- Configuration ---------------------------------------------------------------------------- */

static const struct cli_option config_options[] = {
        { "config", "JSON", "" },
        { "option", "KEY=VALUE", "", 'o', true },
        { 0 },
};

static char *config_of(const char *const *words, int code)
{
        CLEAN(args_done) struct args a;
        CLEAN(err_done) struct err err = { 0 };
        json_t *config = NULL;
        char *text = NULL;
        int n = 0;

        while (words[n])
                n++;
        args_init(&a, n, (char **)words);
        args_add_table(&a, config_options);
        assert_int_equal(args_rest(&a, SIZE_MAX, NULL), 0);
        assert_int_equal(cli_config(&a, &config, &err), code);
        if (config)
                text = json_to_text(config);
        json_decref(config);
        return text;
}

static void check_config(const char *const *words, const char *expected)
{
        CLEAN(cleanup_free) char *text = config_of(words, 0);

        if (expected)
                assert_string_equal(text, expected);
        else
                assert_null(text);
}

static void test_config(void **state UNUSED)
{
        check_config((const char *[]){ NULL }, NULL);
        check_config((const char *[]){ "-oa=1", "-ob=-2", "-oc=x y", "-od=", "-oe=true", NULL },
                     "{\"a\":1,\"b\":-2,\"c\":\"x y\",\"d\":\"\",\"e\":true}");
        check_config((const char *[]){ "-oa=1.5", "-ob=1e3", "-oc=0x10", "-od=a=b", NULL },
                     "{\"a\":\"1.5\",\"b\":\"1e3\",\"c\":\"0x10\",\"d\":\"a=b\"}");
        check_config((const char *[]){ "-oa:=\"22\"", "-ob:=[1]", NULL },
                     "{\"a\":\"22\",\"b\":[1]}");
        check_config((const char *[]){ "--config={\"a\":{\"x\":1}}", "-oa.y=2", "-oz=null", NULL },
                     "{\"a\":{\"x\":1,\"y\":2},\"z\":null}");
        config_of((const char *[]){ "-onothing", NULL }, ERR_USAGE);
        config_of((const char *[]){ "-o=x", NULL }, ERR_USAGE);
        config_of((const char *[]){ "-oa:={", NULL }, ERR_USAGE);
        config_of((const char *[]){ "--config=[]", NULL }, ERR_USAGE);
        config_of((const char *[]){ "--config={", NULL }, ERR_USAGE);
        config_of((const char *[]){ "-oa=@/does/not/exist", NULL }, ERR_NOT_FOUND);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_forms),         cmocka_unit_test(test_last_value_counts),
                cmocka_unit_test(test_wrong),         cmocka_unit_test(test_suggestions),
                cmocka_unit_test(test_command_table), cmocka_unit_test(test_pick),
                cmocka_unit_test(test_config),        cmocka_unit_test(test_command_in_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
