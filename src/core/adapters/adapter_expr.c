/* Evaluates the language of descriptors: paths, patterns, conditions and templates. */
#include "core/adapters/adapter_expr.h"

#include <ctype.h>
#include <stdio.h>

/* Paths */

/* One step of a path: `name`, `name[]` or `name[key=value]`. */
struct step {
        char name[ADAPTER_PATH_MAX], key[ADAPTER_PATH_MAX], value[ADAPTER_PATH_MAX];
        bool each;
};

/* Copy up to a byte of `stops`; the length, or 0 when it does not fit. */
static size_t copy_until(char *to, const char *from, const char *stops)
{
        size_t n = strcspn(from, stops);

        if (n >= ADAPTER_PATH_MAX)
                return 0;
        memcpy(to, from, n);
        to[n] = '\0';
        return n;
}

/* Where the next step begins, "" at the end, NULL when it is not a path. */
static const char *read_step(const char *path, struct step *ret)
{
        size_t n = copy_until(ret->name, path, ".[");

        ret->each = false;
        ret->key[0] = '\0';
        ret->value[0] = '\0';
        if (n == 0)
                return NULL;
        path += n;
        if (*path == '[') {
                ret->each = true;
                path++;
                if (*path != ']') {
                        n = copy_until(ret->key, path, "=].");
                        if (n == 0 || path[n] != '=')
                                return NULL;
                        path += n + 1;
                        path += copy_until(ret->value, path, "]");
                }
                if (*path != ']')
                        return NULL;
                path++;
        }
        if (*path == '.')
                return path[1] ? path + 1 : NULL;
        return *path ? NULL : path;
}

const char *adapter_path_fault(const char *path)
{
        struct step step;

        if (strlen(path) >= ADAPTER_PATH_MAX)
                return "is too long";
        do
                path = read_step(path, &step);
        while (path && *path);
        return path ? NULL : "is no path";
}

static bool is_wanted(const json_t *element, const struct step *step)
{
        const char *value;

        if (!step->key[0])
                return true;
        value = json_get_string(element, step->key);
        return value && streq(value, step->value);
}

void adapter_path_each(const json_t *root, const char *path, adapter_value_fn fn, void *ctx)
{
        struct step step;
        const char *rest;
        size_t i;
        json_t *element;

        if (!*path) {
                fn(ctx, root);
                return;
        }
        rest = read_step(path, &step);
        if (rest && streq(step.name, "*") && !step.each) { /* every member */
                const char *name;

                json_object_foreach((json_t *)root, name, element)
                        adapter_path_each(element, rest, fn, ctx);
                return;
        }
        root = rest ? json_object_get(root, step.name) : NULL;
        if (!root)
                return;
        if (!step.each) {
                adapter_path_each(root, rest, fn, ctx);
                return;
        }
        json_array_foreach((json_t *)root, i, element)
        {
                if (is_wanted(element, &step))
                        adapter_path_each(element, rest, fn, ctx);
        }
}

static void keep_last(void *ctx, const json_t *value)
{
        *(const json_t **)ctx = value;
}

const json_t *adapter_path_last(const json_t *root, const char *path)
{
        const json_t *found = NULL;

        adapter_path_each(root, path, keep_last, &found);
        return found;
}

const char *adapter_path_string(const json_t *root, const char *path)
{
        return json_string_value(adapter_path_last(root, path));
}

/* Patterns */

static bool same_letter(char a, char b)
{
        return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Whether text begins with the piece of a pattern up to `*`. */
static bool piece_at(const char *piece, size_t piece_len, const char *text, size_t len)
{
        if (piece_len > len)
                return false;
        for (size_t i = 0; i < piece_len; i++)
                if (!same_letter(piece[i], text[i]))
                        return false;
        return true;
}

/* Greedy from the left is enough: pieces are found at their first place, one after the other. Only
 * the last one of a pattern that ends in `$` has to be at the end instead. */
static bool line_like(const char *pattern, const char *line, size_t len)
{
        bool anchored = *pattern == '^';
        const char *end;

        pattern += anchored;
        end = pattern + strlen(pattern);
        while (pattern < end) {
                size_t n = strcspn(pattern, "*");
                bool last = pattern[n] == '\0';

                if (last && n > 0 && pattern[n - 1] == '$') {
                        n--;
                        return len >= n && (!anchored || len == n) &&
                               piece_at(pattern, n, line + (len - n), n);
                }
                while (!piece_at(pattern, n, line, len)) {
                        if (anchored || len == 0)
                                return false;
                        line++;
                        len--;
                }
                line += n;
                len -= n;
                anchored = false;
                pattern += n + !last;
        }
        return true;
}

bool adapter_like(const char *pattern, const char *text, size_t len)
{
        const char *end = text + len;

        while (text <= end) {
                const char *stop = memchr(text, '\n', (size_t)(end - text));

                stop = stop ? stop : end;
                if (line_like(pattern, text, (size_t)(stop - text)))
                        return true;
                text = stop + 1;
        }
        return false;
}

bool adapter_like_any(const json_t *patterns, const char *text, size_t len)
{
        size_t i;
        json_t *pattern;

        if (json_is_string(patterns))
                return adapter_like(json_string_value(patterns), text, len);
        json_array_foreach((json_t *)patterns, i, pattern)
        {
                if (json_is_string(pattern) && adapter_like(json_string_value(pattern), text, len))
                        return true;
        }
        return false;
}

/* Conditions */

bool adapter_is_set(const json_t *value)
{
        switch (value ? json_typeof(value) : JSON_NULL) {
        case JSON_STRING: {
                const char *s = json_string_value(value);

                return s[strspn(s, " \t\r\n\f\v")] != '\0';
        }
        case JSON_INTEGER:
        case JSON_REAL:
                return json_number_value(value) > 0;
        case JSON_ARRAY:
                return json_array_size(value) > 0;
        case JSON_OBJECT:
                return json_object_size(value) > 0;
        default:
                return json_is_true(value);
        }
}

struct test {
        const json_t *is, *like;
        bool held;
};

static bool is_one_of(const json_t *value, const json_t *list)
{
        size_t i;
        json_t *one;

        if (!json_is_array(list))
                return json_equal(value, list);
        json_array_foreach((json_t *)list, i, one)
        {
                if (json_equal(value, one))
                        return true;
        }
        return false;
}

static void test_value(void *ctx, const json_t *value)
{
        struct test *t = ctx;

        if (t->is && is_one_of(value, t->is))
                t->held = true;
        if (t->like && json_is_string(value) &&
            adapter_like_any(t->like, json_string_value(value), json_string_length(value)))
                t->held = true;
}

static bool holds_any(const json_t *list, const json_t *scope)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)list, i, one)
        {
                if (adapter_holds(one, scope))
                        return true;
        }
        return false;
}

static bool holds_all(const json_t *list, const json_t *scope)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)list, i, one)
        {
                if (!adapter_holds(one, scope))
                        return false;
        }
        return true;
}

static bool holds_path(const json_t *condition, const json_t *scope)
{
        struct test t = { .is = json_object_get(condition, "is"),
                          .like = json_object_get(condition, "like") };

        adapter_path_each(scope, json_get_string(condition, "path"), test_value, &t);
        return t.held;
}

bool adapter_holds(const json_t *condition, const json_t *scope)
{
        const char *path = json_string_value(condition);
        const json_t *part;

        if (path && *path == '!')
                return !adapter_is_set(adapter_path_last(scope, path + 1));
        if (path)
                return adapter_is_set(adapter_path_last(scope, path));
        if ((part = json_object_get(condition, "all")))
                return holds_all(part, scope);
        if ((part = json_object_get(condition, "any")))
                return holds_any(part, scope);
        if ((part = json_object_get(condition, "not")))
                return !adapter_holds(part, scope);
        return json_object_get(condition, "path") ? holds_path(condition, scope) : true;
}

static const char *condition_fault(const json_t *condition, int depth);

static const char *list_fault(const json_t *list, int depth)
{
        const char *fault = json_is_array(list) ? NULL : "has to be a list of conditions";
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)list, i, one)
        {
                if (!fault)
                        fault = condition_fault(one, depth);
        }
        return fault;
}

static const char *test_fault(const json_t *condition)
{
        const char *path = json_get_string(condition, "path");
        const json_t *like = json_object_get(condition, "like");

        if (!path || json_object_size(condition) != 2 ||
            (!like && !json_object_get(condition, "is")))
                return "needs `path`, and `is` or `like`";
        if (like && !json_is_string(like) && !json_is_array(like))
                return "`like` has to be a text or a list of texts";
        return adapter_path_fault(path);
}

static const char *condition_fault(const json_t *condition, int depth)
{
        const char *path = json_string_value(condition);

        if (depth >= ADAPTER_CONDITION_DEPTH)
                return "is nested too deeply";
        if (path)
                return adapter_path_fault(path + (*path == '!'));
        if (!json_is_object(condition))
                return "has to be a path or an object";
        if (json_object_get(condition, "path"))
                return test_fault(condition);
        if (json_object_size(condition) != 1)
                return "needs one of `path`, `all`, `any`, `not`";
        if (json_object_get(condition, "not"))
                return condition_fault(json_object_get(condition, "not"), depth + 1);
        if (json_object_get(condition, "all"))
                return list_fault(json_object_get(condition, "all"), depth + 1);
        return list_fault(json_object_get(condition, "any"), depth + 1);
}

const char *adapter_condition_fault(const json_t *condition)
{
        return condition_fault(condition, 0);
}

/* Templates */

static void put_value(struct buf *b, const json_t *value)
{
        if (json_is_string(value))
                buf_append(b, json_string_value(value), json_string_length(value));
        else if (value && !json_is_null(value))
                json_put(b, value);
}

/* The length of `{{ path }}` at s, 0 when there is none; the path is copied out. */
static size_t read_hole(const char *s, char path[ADAPTER_PATH_MAX])
{
        const char *at = s + 2;
        size_t n;

        if (!str_starts(s, "{{"))
                return 0;
        at += strspn(at, " \t\r\n");
        n = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
        if (n == 0 || n >= ADAPTER_PATH_MAX)
                return 0;
        memcpy(path, at, n);
        path[n] = '\0';
        at += n;
        at += strspn(at, " \t\r\n");
        return str_starts(at, "}}") ? (size_t)(at + 2 - s) : 0;
}

void adapter_fill(struct buf *b, const char *template, const json_t *scope)
{
        char path[ADAPTER_PATH_MAX];

        while (*template) {
                size_t hole = read_hole(template, path), text;

                if (hole) {
                        put_value(b, adapter_path_last(scope, path));
                        template += hole;
                        continue;
                }
                text = 1 + strcspn(template + 1, "{");
                buf_append(b, template, text);
                template += text;
        }
}

char *adapter_fill_arena(struct arena *arena, const char *template, const json_t *scope)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        adapter_fill(&b, template, scope);
        return arena_strndup(arena, buf_str(&b), b.len);
}
