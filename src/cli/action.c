/* Carries out a command that is one request: its path, its body, and how the answer is shown. */
#include "cli/action.h"

#include <stdarg.h>

#include "base/uuid.h"
#include "cli/command.h"

/* -- Paths and things ------------------------------------------------------------------------- */

int cli_path(struct cli *c, const char *pattern, const char *id, bool makes_company,
             const char **ret, struct err *err)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        const char *company;

        for (size_t n; *pattern; pattern += n) {
                n = strcspn(pattern, "{");
                buf_append(&b, pattern, n);
                if (str_starts(pattern + n, "{company}")) {
                        int r = cli_company(c, makes_company, &company, err);

                        if (r < 0)
                                return r;
                        buf_puts(&b, company);
                } else if (str_starts(pattern + n, "{id}")) {
                        buf_puts(&b, cli_escape(c, id));
                } else if (pattern[n]) {
                        abort(); /* patterns are constants of this program */
                }
                n += strcspn(pattern + n, "}");
                n += pattern[n] == '}';
        }
        *ret = cli_printf(c, "%s", buf_str(&b));
        return 0;
}

static int get_one(struct cli *c, const struct cli_kind *kind, const char *id, json_t **ret,
                   struct err *err)
{
        const char *path;
        int r = cli_path(c, cli_printf(c, "%s/{id}", kind->path), id, false, &path, err);

        return r < 0 ? r : cli_call(c, "GET", path, NULL, ret, err);
}

int cli_find(struct cli *c, const struct cli_kind *kind, const char *given, json_t **ret,
             struct err *err)
{
        const char *path;
        json_t *list;

        if (kind->find)
                return kind->find(c, given, ret, err);
        if (!kind->list || uuid_is_valid(given))
                return get_one(c, kind, given, ret, err);
        int r = cli_path(c, kind->list, NULL, false, &path, err);
        if (r >= 0)
                r = cli_call_list(c, path, &list, err);
        if (r >= 0)
                r = cli_pick(kind, list, given, ret, err);
        return r < 0 || !kind->is_partial ? r : get_one(c, kind, cli_text(*ret, "id"), ret, err);
}

int cli_find_id(struct cli *c, const struct cli_kind *kind, const char *given, const char **ret,
                struct err *err)
{
        json_t *found;
        int r = 0;

        *ret = given;
        if (uuid_is_valid(given) || !(kind->list || kind->find))
                return 0;
        r = cli_find(c, kind, given, &found, err);
        if (r >= 0)
                *ret = cli_text(found, "id");
        return r;
}

/* -- What is sent ----------------------------------------------------------------------------- */

int body_set(json_t *body, const char *key, const char *value, struct err *err)
{
        if (value && json_object_set_new(body, key, json_string(value)) < 0)
                return err_set(err, ERR_USAGE, "the value for %s is not UTF-8 text", key);
        return 0;
}

static int set_member(struct cli *c, const struct args *a, const struct cli_member *m,
                      const char *given, json_t *body, struct err *err)
{
        json_t *found = NULL;
        int r = 0;

        switch (m->type) {
        case MEMBER_NUMBER:
                if (given && (*given == '\0' || strspn(given, "0123456789") != strlen(given)))
                        return err_set(err, ERR_USAGE, "--%s: '%s' is not a number", m->option,
                                       given);
                return body_set(body, m->name, given, err);
        case MEMBER_TRUE:
        case MEMBER_BOOL:
                if (args_flag(a, m->option) || m->type == MEMBER_BOOL)
                        json_object_set_new(body, m->name, json_boolean(args_flag(a, m->option)));
                return 0;
        case MEMBER_CONFIG:
                r = cli_config(a, &found, err);
                if (r >= 0 && found)
                        json_object_set_new(body, m->name, found);
                return r;
        case MEMBER_ID:
                r = given ? cli_find(c, m->kind, given, &found, err) : 0;
                break;
        case MEMBER_PLACE:
                r = given ? cli_place(c, given, &found, err) : 0;
                break;
        default:
                return body_set(body, m->name, given, err);
        }
        if (r < 0)
                return m->kind && !m->kind->list ? err_wrap(err, r, "%s", given) : r;
        return given ? body_set(body, m->name, cli_text(found, "id"), err) : 0;
}

int cli_fill(struct cli *c, const struct args *a, const struct cli_member *members, json_t *body,
             struct err *err)
{
        int r = 0;

        for (const struct cli_member *m = members; m && m->name && r >= 0; m++) {
                const char *given = NULL;

                if (m->word)
                        given = a->words[m->word - 1];
                else if (m->option && m->type != MEMBER_TRUE && m->type != MEMBER_BOOL)
                        given = args_value(a, m->option);
                r = set_member(c, a, m, given ? given : m->otherwise, body, err);
        }
        return r;
}

static int send_action(struct cli *c, const struct cli_action *act, const char *id, json_t *members,
                       json_t **ret, struct err *err)
{
        bool has_body = !streq(act->method, "GET") && !streq(act->method, "DELETE");
        const char *pattern = act->path ? act->path : "", *path, *name;
        CLEAN(buf_done) struct buf query = BUF_INIT;
        json_t *value;

        if (act->kind && !str_starts(pattern, "/api/"))
                pattern = cli_printf(c, "%s/{id}%s", act->kind->path, pattern);
        int r = cli_path(c, pattern, id, act->makes_company, &path, err);
        if (r < 0)
                return r;
        if (has_body)
                return cli_call(c, act->method, path, json_incref(members), ret, err);
        json_object_foreach(members, name, value)
        {
                const char *text = json_string_value(value);

                buf_appendf(&query, "%c%s=%s", query.len > 0 || strchr(path, '?') ? '&' : '?', name,
                            text ? cli_escape(c, text) : "true");
        }
        path = cli_printf(c, "%s%s", path, buf_str(&query));
        if (act->columns && !act->within)
                return cli_call_list(c, path, ret, err);
        return cli_call(c, act->method, path, NULL, ret, err);
}

/* -- How it is shown -------------------------------------------------------------------------- */

void cli_show(struct cli *c, const struct cli_kind *kind, const json_t *object)
{
        if (c->json)
                out_json(object);
        else if (kind->print)
                kind->print(c, object);
        else
                fields_print(c, object, kind->fields);
}

int cli_send(struct cli *c, const char *method, const char *path, json_t *take_body,
             const struct cli_kind *kind, struct err *err)
{
        json_t *answer;
        int r = cli_call(c, method, path, take_body, &answer, err);

        if (r >= 0)
                cli_show(c, kind, answer);
        return r;
}

void cli_answer(struct cli *c, const json_t *answer, const char *fmt, ...)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        va_list ap;

        va_start(ap, fmt);
        buf_appendv(&b, fmt, ap);
        va_end(ap);
        if (c->json)
                out_json(answer);
        else
                out_line("%s", buf_str(&b));
}

static void show_answer(struct cli *c, const struct cli_action *act, const char *id,
                        const json_t *answer)
{
        const struct cli_kind *kind = act->answer ? act->answer : act->kind;

        if (c->json)
                out_json(answer);
        else if (act->columns)
                list_print(c, act->within ? json_object_get(answer, act->within) : answer,
                           act->columns, act->none);
        else if (act->done)
                out_line("%s %s", act->done, id);
        else if (act->print)
                act->print(c, answer);
        else if (kind)
                cli_show(c, kind, answer);
}

int cli_act(struct cli *c, const struct args *a, const struct cli_action *act, struct err *err)
{
        json_t *members = cli_keep(c, json_object()), *answer = NULL;
        const char *id = NULL;
        int r = cli_fill(c, a, act->members, members, err);

        if (r >= 0 && act->nothing && json_object_size(members) == 0)
                return err_set(err, ERR_USAGE, "%s", act->nothing);
        if (r >= 0 && act->is_new)
                r = cli_check_new(c, a, act->answer, a->words[0], err);
        if (r >= 0 && act->kind && (act->by_id || !act->kind->list) && act->method)
                r = cli_find_id(c, act->kind, a->words[0], &id, err);
        else if (r >= 0 && act->kind) {
                r = cli_find(c, act->kind, a->words[0], &answer, err);
                id = cli_text(answer, "id");
        }
        if (r >= 0 && act->method)
                r = send_action(c, act, id, members, &answer, err);
        if (r < 0)
                return r;
        show_answer(c, act, id, answer);
        return act->status ? act->status(answer) : 0;
}
