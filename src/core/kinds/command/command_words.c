/* How commands and their input are put together from options. */
#include <stdio.h>

#include "core/kinds/command/command_internal.h"

#define TOTAL_MAX ((size_t)96 << 10)

const json_t *command_of(const json_t *descriptor, enum command_verb verb)
{
        return json_object_get(json_object_get(descriptor, "commands"), command_verbs[verb]);
}

int64_t command_ms(const json_t *command, const char *member, int64_t fallback_s)
{
        const json_t *v = json_object_get(command, member);

        return 1000 * (json_is_integer(v) ? json_integer_value(v) : fallback_s);
}

bool command_next_holder(const char *text, struct command_place_holder *ret)
{
        for (const char *at = text; (at = strchr(at, '$')); at++) {
                const char *close;

                if (str_starts(at, "$${")) {
                        at += 2;
                        continue;
                }
                if (at[1] != '{' || !(close = strchr(at, '}')))
                        continue;
                *ret = (struct command_place_holder){ .begin = at,
                                                      .end = close + 1,
                                                      .name = at + 2,
                                                      .len = (size_t)(close - at - 2) };
                return true;
        }
        return false;
}

static const char *word_value(const struct command_vars *vars, const char *name, size_t len)
{
        for (int i = 0; i < WORD_N; i++)
                if (strlen(command_word_names[i]) == len &&
                    strncmp(command_word_names[i], name, len) == 0)
                        return vars->words[i];
        return NULL;
}

/* NULL and an empty text count as not set. */
static const json_t *option_value(const struct command_vars *vars, const char *name, size_t len)
{
        CLEAN(cleanup_free) char *key = xstrndup(name, len);
        const json_t *v = json_object_get(vars->options, key);

        return json_is_null(v) || (json_is_string(v) && json_string_length(v) == 0) ? NULL : v;
}

/* NULL: a list or an object is no text. */
static const char *value_text(struct arena *arena, const json_t *v)
{
        if (json_is_string(v))
                return json_string_value(v);
        if (json_is_integer(v))
                return arena_printf(arena, "%lld", (long long)json_integer_value(v));
        if (json_is_real(v))
                return arena_printf(arena, "%g", json_real_value(v));
        if (json_is_boolean(v))
                return json_is_true(v) ? "true" : "false";
        return NULL;
}

/* `item` stands for the option that is a list. 1: done, 0: something is not set. */
static int fill(struct arena *arena, const char *text, const struct command_vars *vars,
                const json_t *item, const char **ret)
{
        CLEAN(buf_done) struct buf out = { .max = TOTAL_MAX };
        struct command_place_holder p;
        const char *at = text;
        bool more;

        do {
                more = command_next_holder(at, &p);
                const char *stop = more ? p.begin : at + strlen(at);

                for (; at < stop; at++)
                        if (!(str_starts(at, "$${")))
                                buf_putc(&out, *at);
                if (more) {
                        const json_t *v = option_value(vars, p.name, p.len);
                        const char *word = word_value(vars, p.name, p.len);

                        if (!word && v)
                                word = value_text(arena, json_is_array(v) && item ? item : v);
                        if (!word)
                                return 0;
                        buf_puts(&out, word);
                        at = p.end;
                }
        } while (more);
        *ret = buf_failed(&out) ? NULL : arena_strdup(arena, buf_str(&out));
        return *ret ? 1 : 0;
}

const char *command_fill_text(struct arena *arena, const char *text,
                              const struct command_vars *vars)
{
        const char *ret;

        return fill(arena, text, vars, NULL, &ret) ? ret : NULL;
}

/* Lists of words */

struct filling {
        struct arena *arena;
        const struct command_vars *vars;
        const char **list;
        size_t n, total;
        struct err *err;
};

static int add(struct filling *f, const char *word)
{
        f->total += strlen(word) + 1;
        if (f->n == COMMAND_ARGS_MAX || f->total > TOTAL_MAX)
                return err_set(f->err, ERR_UNPROCESSABLE,
                               "The configuration makes a command that is too long.");
        f->list[f->n++] = word;
        return 0;
}

/* The list that a group is repeated for, and whether everything that it names is set. */
static const json_t *group_list(const struct filling *f, const json_t *group, bool *ret_is_set)
{
        const json_t *one, *list = NULL;
        struct command_place_holder p;
        size_t i;

        *ret_is_set = true;
        json_array_foreach((json_t *)group, i, one)
        {
                for (const char *at = json_string_value(one); command_next_holder(at, &p);
                     at = p.end) {
                        const json_t *v = option_value(f->vars, p.name, p.len);

                        if (word_value(f->vars, p.name, p.len))
                                continue;
                        if (!v || json_is_false(v) || json_is_object(v))
                                *ret_is_set = false;
                        if (json_is_array(v))
                                list = v;
                }
        }
        return list;
}

static int add_group(struct filling *f, const json_t *group, const json_t *item)
{
        const json_t *one;
        const char *word;
        size_t i;
        int r = 0;

        json_array_foreach((json_t *)group, i, one)
        {
                if (r >= 0 && fill(f->arena, json_string_value(one), f->vars, item, &word))
                        r = add(f, word);
        }
        return r;
}

static int add_optional(struct filling *f, const json_t *group)
{
        const json_t *list, *item;
        bool is_set;
        size_t i;
        int r = 0;

        list = group_list(f, group, &is_set);
        if (!is_set)
                return 0;
        if (!list)
                return add_group(f, group, NULL);
        json_array_foreach((json_t *)list, i, item)
        {
                if (r >= 0)
                        r = add_group(f, group, item);
        }
        return r;
}

static bool condition_holds(const struct filling *f, const json_t *condition)
{
        const char *name = json_get_string(condition, "if");
        const json_t *v = option_value(f->vars, name, strlen(name));

        return v && !json_is_false(v);
}

int command_fill_args(struct arena *arena, const json_t *list, const struct command_vars *vars,
                      const char ***ret, struct err *err)
{
        struct filling f = {
                .arena = arena,
                .vars = vars,
                .list = arena_alloc(arena, (COMMAND_ARGS_MAX + 1) * sizeof(*f.list)),
                .err = err,
        };
        const json_t *one;
        const char *word;
        size_t i;
        int r = 0;

        json_array_foreach((json_t *)list, i, one)
        {
                if (json_is_array(one))
                        r = add_optional(&f, one);
                else if (json_is_object(one))
                        r = condition_holds(&f, one)
                                    ? add_group(&f, json_object_get(one, "args"), NULL)
                                    : 0;
                else if (fill(arena, json_string_value(one), vars, NULL, &word))
                        r = add(&f, word);
                else
                        r = err_set(err, ERR_UNPROCESSABLE,
                                    "The configuration lacks a value for \"%s\".",
                                    json_string_value(one));
                if (r < 0)
                        return r;
        }
        f.list[f.n] = NULL;
        *ret = f.list;
        return 0;
}

/* Documents */

/* A new reference; NULL: left out. */
static json_t *fill_value(struct arena *arena, const json_t *v, const struct command_vars *vars)
{
        json_t *copy, *inner;
        const json_t *one;
        const char *key, *text;
        struct command_place_holder p;
        size_t i;

        if (json_is_string(v)) {
                text = json_string_value(v);
                if (command_next_holder(text, &p) && p.begin == text && !*p.end &&
                    !word_value(vars, p.name, p.len)) {
                        const json_t *option = option_value(vars, p.name, p.len);

                        return option ? json_deep_copy(option) : NULL;
                }
                text = command_fill_text(arena, text, vars);
                return text ? json_string(text) : NULL;
        }
        if (json_is_object(v)) {
                copy = json_object();
                json_object_foreach((json_t *)v, key, one)
                {
                        if ((inner = fill_value(arena, one, vars)))
                                json_object_set_new(copy, key, inner);
                }
                if (json_object_size(copy) > 0 || json_object_size(v) == 0)
                        return copy;
        } else if (json_is_array(v)) {
                copy = json_array();
                json_array_foreach((json_t *)v, i, one)
                {
                        if ((inner = fill_value(arena, one, vars)))
                                json_array_append_new(copy, inner);
                }
                if (json_array_size(copy) > 0 || json_array_size(v) == 0)
                        return copy;
        } else {
                return json_deep_copy(v);
        }
        json_decref(copy);
        return NULL;
}

int command_fill_input(struct arena *arena, const json_t *input, const struct command_vars *vars,
                       const char **ret, struct err *err)
{
        json_t *document;

        *ret = NULL;
        if (!input)
                return 0;
        if (json_is_string(input)) {
                *ret = command_fill_text(arena, json_string_value(input), vars);
                return *ret ? 0
                            : err_set(err, ERR_UNPROCESSABLE,
                                      "The configuration lacks a value for the input of a command.");
        }
        document = fill_value(arena, input, vars);
        if (document)
                *ret = json_to_arena(arena, document);
        json_decref(document);
        return 0;
}
