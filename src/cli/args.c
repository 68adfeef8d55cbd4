/* Which arguments are options, values and words. */
#include "cli/args.h"

#include <stdio.h>

#include "cli/suggest.h"

struct arg_given {
        const struct cli_option *option;
        const char *value;
};

void args_init(struct args *a, int argc, char **argv)
{
        size_t n = argc > 0 ? (size_t)argc : 0;

        *a = (struct args){ .argv = argv, .argc = n };
        /* No argument gives more than one entry, so neither list ever grows; a cluster of letters
         * is not supported for that reason too. */
        a->given = xcalloc(n + 1, sizeof(*a->given));
        a->words = xcalloc(n + 1, sizeof(*a->words));
}

void args_done(struct args *a)
{
        free(a->given);
        free(a->words);
        a->given = NULL;
        a->words = NULL;
}

void args_add_table(struct args *a, const struct cli_option *table)
{
        if (!table)
                return;
        if (a->n_tables == ARGS_MAX_TABLES)
                abort();
        a->tables[a->n_tables++] = table;
}

static const struct cli_option *find_option(const struct args *a, const char *name, size_t len,
                                            char letter)
{
        for (size_t t = a->n_tables; t-- > 0;)
                for (const struct cli_option *o = a->tables[t]; o->name; o++)
                        if (letter ? o->letter == letter
                                   : name && strlen(o->name) == len &&
                                             memcmp(o->name, name, len) == 0)
                                return o;
        return NULL;
}

static int unknown_option(const struct args *a, const char *typed, size_t name_len, struct err *err)
{
        CLEAN(cleanup_free) char *name = xstrndup(typed + 2, name_len);
        struct suggest s;

        suggest_init(&s, name);
        for (size_t t = 0; t < a->n_tables; t++)
                for (const struct cli_option *o = a->tables[t]; o->name; o++)
                        if (o->help)
                                suggest_offer(&s, o->name);
        if (s.best)
                return err_set(err, ERR_USAGE, "unknown option --%s; did you mean --%s?", name,
                               s.best);
        return err_set(err, ERR_USAGE, "unknown option --%s", name);
}

/* `inline_value` is what followed `=`, or the rest of a letter's argument; NULL when there was
 * none. */
static int take_option(struct args *a, const struct cli_option *o, const char *inline_value,
                       struct err *err)
{
        const char *value = inline_value;

        if (!o->value && value)
                return err_set(err, ERR_USAGE, "option --%s takes no value", o->name);
        if (o->value && !value) {
                if (a->at == a->argc)
                        return err_set(err, ERR_USAGE, "option --%s needs a value: %s", o->name,
                                       o->value);
                value = a->argv[a->at++];
        }
        a->given[a->n_given++] = (struct arg_given){ o, value };
        return 0;
}

int args_next_word(struct args *a, const char **ret_word, struct err *err)
{
        while (a->at < a->argc) {
                const char *arg = a->argv[a->at++];
                int r;

                if (a->options_ended || arg[0] != '-' || arg[1] == '\0') {
                        *ret_word = arg;
                        return 0;
                }
                if (streq(arg, "--")) {
                        a->options_ended = true;
                        continue;
                }
                if (arg[1] == '-') {
                        size_t len = strcspn(arg + 2, "=");
                        const struct cli_option *o = find_option(a, arg + 2, len, 0);

                        r = o ? take_option(a, o, arg[2 + len] ? arg + 3 + len : NULL, err)
                              : unknown_option(a, arg, len, err);
                } else {
                        const struct cli_option *o = find_option(a, NULL, 0, arg[1]);

                        r = o ? take_option(a, o, arg[2] ? arg + 2 : NULL, err)
                              : err_set(err, ERR_USAGE, "unknown option -%c", arg[1]);
                }
                if (r < 0)
                        return r;
        }
        *ret_word = NULL;
        return 0;
}

int args_rest(struct args *a, size_t own, struct err *err)
{
        for (;;) {
                const char *word;
                int r = args_next_word(a, &word, err);

                if (r < 0 || !word)
                        return r;
                a->words[a->n_words++] = word;
                a->options_ended = a->options_ended || a->n_words > own;
        }
}

static const struct cli_option *known_option(const struct args *a, const char *name)
{
        const struct cli_option *o = find_option(a, name, strlen(name), 0);

        if (!o)
                abort();
        return o;
}

bool args_flag(const struct args *a, const char *name)
{
        return args_item(a, name, 0) != NULL;
}

const char *args_value(const struct args *a, const char *name)
{
        const struct cli_option *o = known_option(a, name);

        for (size_t i = a->n_given; i-- > 0;)
                if (a->given[i].option == o)
                        return a->given[i].value;
        return NULL;
}

const char *args_item(const struct args *a, const char *name, size_t index)
{
        const struct cli_option *o = known_option(a, name);

        for (size_t i = 0; i < a->n_given; i++)
                if (a->given[i].option == o && index-- == 0)
                        return o->value ? a->given[i].value : o->name;
        return NULL;
}
