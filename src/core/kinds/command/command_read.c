/* What the output of a command means. */
#include <regex.h>

#include "base/utf8.h"
#include "base/uuid.h"
#include "core/kinds/command/command_internal.h"

#define THINGS_MAX 100000
#define VALUE_MAX  256
#define SAID_MAX   8192

const char *const command_failures[] = { "other",       "gone",   "exists",  "busy",
                                         "unreachable", "denied", "refused", NULL };

bool command_matches(struct arena *arena, const char *pattern, const char *text,
                     const char **ret_group)
{
        regmatch_t found[2];
        regex_t compiled;

        if (regcomp(&compiled, pattern, REG_EXTENDED | REG_NEWLINE) != 0)
                return false;
        bool matches = regexec(&compiled, text, ARRAY_LEN(found), found, 0) == 0;
        if (matches && ret_group) {
                const regmatch_t *m = found[1].rm_so >= 0 ? &found[1] : &found[0];

                *ret_group = arena_strndup(arena, text + m->rm_so, (size_t)(m->rm_eo - m->rm_so));
        }
        regfree(&compiled);
        return matches;
}

enum command_failure command_failure_of(struct arena *arena, const json_t *descriptor,
                                        const char *said, const char **ret_hint)
{
        const char *text = arena_strndup(arena, said, strnlen(said, SAID_MAX));
        const json_t *one;
        size_t i;

        if (ret_hint)
                *ret_hint = NULL;
        json_array_foreach(json_object_get(descriptor, "errors"), i, one)
        {
                const char *is = json_get_string(one, "is");
                int f = 0;

                if (!command_matches(arena, json_get_string(one, "match"), text, NULL))
                        continue;
                if (ret_hint)
                        *ret_hint = json_get_string(one, "hint");
                while (!streq(command_failures[f], is))
                        f++;
                return (enum command_failure)f;
        }
        return FAILURE_OTHER;
}

/* Listing */

struct reading {
        struct arena *arena;
        command_thing_fn fn;
        void *ctx;
        size_t n;
        struct err *err;
};

/* The tag may carry the prefix that names have. Other things are not ours. */
static int found(struct reading *r, const char *tag, const char *ref, const char *node)
{
        struct uuid id, maker;

        if (tag && str_starts(tag, "berth-"))
                tag += strlen("berth-");
        if (!tag || !uuid_parse(tag, &id))
                return 0;
        if (++r->n > THINGS_MAX)
                return err_set(r->err, ERR_PROVIDER, "The list has too many lines.");
        return r->fn(r->ctx, &(struct command_thing){
                                     arena_strdup(r->arena, id.s), ref && *ref ? ref : NULL,
                                     node && uuid_parse(node, &maker) ? node : NULL });
}

static int read_line(struct reading *r, const json_t *columns, const char *separator, char *line)
{
        const char *values[3] = { NULL }; /* tag, ref, node */
        const json_t *one;
        char *at = line;
        size_t i;

        json_array_foreach((json_t *)columns, i, one)
        {
                const char *name = json_string_value(one);
                char *end = at ? strstr(at, separator) : NULL, *next = NULL;

                if (end) {
                        *end = '\0';
                        next = end + strlen(separator);
                }
                if (at && !streq(name, "-"))
                        values[streq(name, "tag")   ? 0
                               : streq(name, "ref") ? 1
                                                    : 2] = arena_strtrim(r->arena, at);
                at = next;
        }
        return found(r, values[0], values[1], values[2]);
}

/* A path of names and numbers, joined by dots; a dot of a name has a backslash before it. */
static const json_t *value_at(const json_t *v, const char *path)
{
        while (v && path && *path) {
                char name[VALUE_MAX];
                size_t n = 0;

                for (; *path && *path != '.' && n + 1 < sizeof(name); path++) {
                        if (*path == '\\' && path[1] == '.')
                                path++;
                        name[n++] = *path;
                }
                if (n == 0 || (*path && *path != '.'))
                        return NULL;
                name[n] = '\0';
                v = json_is_array(v) ? json_array_get(v, strtoul(name, NULL, 10))
                                     : json_object_get(v, name);
                path += *path == '.';
        }
        return v;
}

static const char *text_at(struct arena *arena, const json_t *item, const char *path)
{
        const json_t *v = path ? value_at(item, path) : NULL;

        if (json_is_integer(v))
                return arena_printf(arena, "%lld", (long long)json_integer_value(v));
        return json_is_string(v) ? json_string_value(v) : NULL;
}

static int read_item(struct reading *r, const json_t *spec, const json_t *item)
{
        return found(r, text_at(r->arena, item, json_get_string(spec, "tag")),
                     text_at(r->arena, item, json_get_string(spec, "ref")),
                     text_at(r->arena, item, json_get_string(spec, "node")));
}

static int read_items(struct reading *r, const json_t *spec, const json_t *document)
{
        const char *items = json_get_string(spec, "items");
        const json_t *list = items ? value_at(document, items) : document, *one;
        size_t i;
        int code = 0;

        if (json_is_object(list) && !items)
                return read_item(r, spec, list);
        if (!json_is_array(list) && !json_is_null(list))
                return err_set(r->err, ERR_PROVIDER, "The list is not where the descriptor says.");
        json_array_foreach((json_t *)list, i, one)
        {
                if (code >= 0)
                        code = read_item(r, spec, one);
        }
        return code;
}

int command_read_list(struct arena *arena, const json_t *command, const char *text, size_t len,
                      command_thing_fn fn, void *ctx, struct err *err)
{
        struct reading q = { .arena = arena, .fn = fn, .ctx = ctx, .err = err };
        const json_t *spec = json_object_get(command, "json");
        const char *separator = json_get_string(command, "separator");
        json_t *document = NULL;
        int r = 0;

        if (!utf8_is_valid(text, len) || memchr(text, '\0', len))
                return err_set(err, ERR_PROVIDER, "The list is no text.");
        if (spec && json_parse(text, len, &document, NULL) >= 0)
                return read_items(&q, spec, json_keep(arena, document));
        /* Lines: of columns, or each a document. */
        for (const char *at = text, *end = text + len; r >= 0 && at < end;) {
                size_t n = strcspn(at, "\r\n");
                char *line = arena_strndup(arena, at, n);

                at += n + (at[n] != '\0');
                if (line[strspn(line, " \t")] == '\0')
                        continue;
                if (!spec)
                        r = read_line(&q, json_object_get(command, "columns"),
                                      separator ? separator : "\t", line);
                else if (json_parse(line, strlen(line), &document, NULL) >= 0)
                        r = read_items(&q, spec, json_keep(arena, document));
                else
                        r = err_set(err, ERR_PROVIDER, "The list is no JSON.");
        }
        return r;
}
