/* Finding what a person meant: a whole id, a name, or the beginning or the end of an id. Ids are
 * ordered by time, so what was made on one day begins alike: it is the end that tells them apart.
 *
 * A whole id costs one request and needs no company. Anything else is looked up in the list of the
 * company, where it must fit exactly one thing: acting on the wrong one of two is worse than
 * asking. A name wins over a part, so that an environment called `beef` stays reachable. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <strings.h>
#include <sys/file.h>

#include "base/fd.h"
#include "base/uuid.h"
#include "cli/command.h"
#include "cli/output.h"

/* -- Picking from a list ---------------------------------------------------------------------- */

enum match { MATCH_NONE, MATCH_PART, MATCH_NAME, MATCH_ID };

static bool same_name(const json_t *item, const char *key, const char *given)
{
        const char *name = key ? json_get_string(item, key) : NULL;

        return name && strcasecmp(name, given) == 0;
}

static enum match match_item(const struct cli_kind *kind, const json_t *item, const char *given)
{
        const char *id = json_get_string(item, "id");
        size_t len = strlen(given), id_len = id ? strlen(id) : 0;

        if (id && strcasecmp(id, given) == 0)
                return MATCH_ID;
        if (same_name(item, kind->name, given) || same_name(item, kind->other, given))
                return MATCH_NAME;
        if (len >= CLI_PART_MIN && len <= id_len &&
            (strncasecmp(id, given, len) == 0 || strcasecmp(id + id_len - len, given) == 0))
                return MATCH_PART;
        return MATCH_NONE;
}

static void list_items(struct buf *b, json_t *list, const char *name_key)
{
        json_t *item;
        size_t i;

        json_array_foreach(list, i, item)
        {
                if (i == 8) {
                        buf_appendf(b, ", and %zu more", json_array_size(list) - i);
                        break;
                }
                buf_appendf(b, "%s%s", i ? ", " : "", cli_text(item, "id"));
                if (name_key)
                        buf_appendf(b, " (%s)", cli_text(item, name_key));
        }
}

int cli_pick(const struct cli_kind *kind, json_t *list, const char *given, json_t **ret,
             struct err *err)
{
        CLEAN(json_decrefp) json_t *matches = json_array();
        CLEAN(buf_done) struct buf names = BUF_INIT;
        enum match best = MATCH_NONE;
        json_t *item;
        size_t i;

        json_array_foreach(list, i, item)
        {
                enum match m = match_item(kind, item, given);

                if (m == MATCH_NONE || m < best)
                        continue;
                if (m > best)
                        json_array_clear(matches);
                best = m;
                json_array_append(matches, item);
        }
        if (json_array_size(matches) == 1) {
                *ret = json_array_get(matches, 0); /* the list keeps it alive */
                return 0;
        }
        if (json_array_size(matches) > 1) {
                list_items(&names, matches, kind->name);
                return err_set(err, ERR_USAGE, "'%s' fits more than one %s: %s", given, kind->what,
                               buf_str(&names));
        }
        if (!kind->command)
                return err_set(err, ERR_NOT_FOUND, "there is no %s '%s'", kind->what, given);
        return err_set(err, ERR_NOT_FOUND,
                       "there is no %s '%s'; 'berth %s list' shows those there are", kind->what,
                       given, kind->command);
}

int cli_check_new(struct cli *c, const struct args *a, const struct cli_kind *kind,
                  const char *name, struct err *err)
{
        const char *path;
        json_t *list, *item;
        size_t i;

        if (args_flag(a, "allow-duplicate"))
                return 0;
        int r = cli_path(c, kind->list, NULL, true, &path, err);

        if (r >= 0)
                r = cli_call_list(c, path, &list, err);
        if (r < 0)
                return r;
        json_array_foreach(list, i, item)
        {
                const char *status = cli_text(item, "status");

                if (same_name(item, kind->name, name) && !streq(status, "archived") &&
                    !streq(status, "terminated"))
                        return err_set(err, ERR_CONFLICT,
                                       "the %s '%s' already exists; 'berth %s show %s' shows it, "
                                       "'berth %s update' changes it, --allow-duplicate makes "
                                       "another one",
                                       kind->what, name, kind->command, name, kind->command);
        }
        return 0;
}

/* -- Companies -------------------------------------------------------------------------------- */

/* Several commands may need the first company at the same time; only one of them makes it. With a
 * daemon on another machine there is nothing to lock, and none is needed. */
static int create_default_company(struct cli *c, const char **ret_id, struct err *err)
{
        CLEAN(cleanup_fd) int turn = open(c->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        json_t *company, *list;

        while (turn >= 0 && flock(turn, LOCK_EX) < 0 && errno == EINTR)
                ;
        int r = cli_call_list(c, "/api/companies", &list, err);
        if (r >= 0 && json_array_size(list) > 0) {
                *ret_id = cli_text(json_array_get(list, 0), "id");
                return 0;
        }
        if (r >= 0)
                r = cli_call(c, "POST", "/api/companies", json_pack("{s:s}", "name", "Default"),
                             &company, err);
        if (r < 0)
                return err_wrap(err, r, "there is no company yet, and making one failed");
        out_note("made a company named \"Default\" (%s)", cli_text(company, "id"));
        *ret_id = cli_text(company, "id");
        return 0;
}

static int only_company(struct cli *c, bool create, const char **ret_id, struct err *err)
{
        CLEAN(buf_done) struct buf names = BUF_INIT;
        json_t *list, *me;
        int r = cli_call_list(c, "/api/companies", &list, err);

        /* Agents may not list companies, but each belongs to exactly one. */
        if (r == ERR_FORBIDDEN && cli_call(c, "GET", "/api/agents/me", NULL, &me, NULL) >= 0 &&
            json_get_string(me, "companyId")) {
                *ret_id = json_get_string(me, "companyId");
                return 0;
        }
        if (r < 0)
                return r;
        if (json_array_size(list) == 1) {
                *ret_id = cli_text(json_array_get(list, 0), "id");
                return 0;
        }
        if (json_array_size(list) == 0 && create)
                return create_default_company(c, ret_id, err);
        if (json_array_size(list) == 0)
                return err_set(err, ERR_NOT_FOUND,
                               "there is no company yet; make one with: berth company create NAME");
        list_items(&names, list, "name");
        return err_set(err, ERR_USAGE, "there are several companies, say which with --company: %s",
                       buf_str(&names));
}

int cli_company(struct cli *c, bool create, const char **ret_id, struct err *err)
{
        json_t *company;

        if (!c->company)
                return only_company(c, create, ret_id, err);
        if (uuid_is_valid(c->company)) {
                *ret_id = c->company;
                return 0;
        }
        int r = cli_find(c, &kind_company, c->company, &company, err);
        if (r >= 0)
                *ret_id = cli_text(company, "id");
        return r;
}

/* -- Environments ----------------------------------------------------------------------------- */

int cli_environments(struct cli *c, json_t **ret_list, struct err *err)
{
        const char *company;
        int r = cli_company(c, false, &company, err);

        if (r < 0)
                return r;
        return cli_call_list(c, cli_printf(c, "/api/companies/%s/environments", company), ret_list,
                             err);
}

int cli_place(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        int r = cli_find(c, &kind_environment, given, ret, err);

        if (r >= 0 && json_is_false(json_object_get(*ret, "isolated")))
                out_note("'%s' is %s", cli_text(*ret, "name"), cli_text(*ret, "isolation"));
        return r;
}

const char *cli_named(struct cli *c, const char *folder, const char *id)
{
        json_t *found = NULL;
        int r = cli_call(c, "GET", cli_printf(c, "%s/%s", folder, id), NULL, &found, NULL);

        return r < 0 || !*cli_text(found, "name")
                       ? id
                       : cli_printf(c, "%s (%s)", cli_text(found, "name"), id);
}
