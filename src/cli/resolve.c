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

static bool begins_or_ends(const char *id, const char *given)
{
        size_t len = strlen(given), id_len = strlen(id);

        return len >= CLI_PART_MIN && len <= id_len &&
               (strncasecmp(id, given, len) == 0 || strcasecmp(id + id_len - len, given) == 0);
}

static enum match match_item(const json_t *item, const char *given, const char *name_key,
                             const char *other_key)
{
        const char *id = json_get_string(item, "id");

        if (id && strcasecmp(id, given) == 0)
                return MATCH_ID;
        if (same_name(item, name_key, given) || same_name(item, other_key, given))
                return MATCH_NAME;
        if (id && begins_or_ends(id, given))
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

static int ambiguous(const char *what, json_t *matches, const char *given, const char *name_key,
                     struct err *err)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        list_items(&b, matches, name_key);
        return err_set(err, ERR_USAGE, "'%s' fits more than one %s: %s", given, what, buf_str(&b));
}

static int not_found(const char *what, const char *given, struct err *err)
{
        static const struct {
                const char *what, *command;
        } lists[] = {
                { "environment", "env" }, { "company", "company" },
                { "lease", "lease" },     { "agent", "agent" },
                { "secret", "secret" },   { "vault", "vault" },
                { "project", "project" }, { "run", "runs" },
                { "key", "key" },         { "salvage", "workspace salvaged" },
        };

        for (size_t i = 0; i < ARRAY_LEN(lists); i++)
                if (streq(lists[i].what, what))
                        return err_set(err, ERR_NOT_FOUND,
                                       "there is no %s '%s'; 'berth %s list' shows those there are",
                                       what, given, lists[i].command);
        return err_set(err, ERR_NOT_FOUND, "there is no %s '%s'", what, given);
}

int cli_pick(const char *what, json_t *list, const char *given, const char *name_key,
             const char *other_key, json_t **ret, struct err *err)
{
        json_t *matches = json_array();
        enum match best = MATCH_NONE;
        json_t *item;
        size_t i;
        int r = 0;

        json_array_foreach(list, i, item)
        {
                enum match m = match_item(item, given, name_key, other_key);

                if (m == MATCH_NONE || m < best)
                        continue;
                if (m > best)
                        json_array_clear(matches);
                best = m;
                json_array_append(matches, item);
        }
        if (json_array_size(matches) == 1)
                *ret = json_array_get(matches, 0); /* the list keeps it alive */
        else if (json_array_size(matches) == 0)
                r = not_found(what, given, err);
        else
                r = ambiguous(what, matches, given, name_key, err);
        json_decref(matches);
        return r;
}

/* -- Companies -------------------------------------------------------------------------------- */

int cli_company_find(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        json_t *list;
        int r;

        if (uuid_is_valid(given))
                return cli_call(c, "GET", cli_printf(c, "/api/companies/%s", given), NULL, ret,
                                err);
        r = cli_call_list(c, "/api/companies", &list, err);
        if (r < 0)
                return r;
        return cli_pick("company", list, given, "name", "issuePrefix", ret, err);
}

/* Several commands may need the first company at the same time; only one of them makes it. A
 * daemon elsewhere has nobody who would do that. */
static int take_turn(struct cli *c)
{
        int fd = open(c->data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        while (fd >= 0 && flock(fd, LOCK_EX) < 0 && errno == EINTR)
                ;
        return fd;
}

static int create_default(struct cli *c, const char **ret_id, struct err *err)
{
        CLEAN(cleanup_fd) int turn = take_turn(c);
        json_t *company, *list;
        int r = cli_call_list(c, "/api/companies", &list, err);

        if (r >= 0 && json_array_size(list) > 0) {
                *ret_id = cli_text(json_array_get(list, 0), "id");
                return 0;
        }
        if (r >= 0)
                r = cli_call(c, "POST", "/api/companies", json_pack("{s:s}", "name", "Default"),
                             &company, err);
        (void)turn;
        if (r < 0)
                return err_wrap(err, r, "there is no company yet, and making one failed");
        out_note("made a company named \"Default\" (%s)", cli_text(company, "id"));
        *ret_id = cli_text(company, "id");
        return 0;
}

/* Agents may not list companies, but each belongs to exactly one. */
static int company_of_agent(struct cli *c, const char **ret_id)
{
        json_t *me;

        if (cli_call(c, "GET", "/api/agents/me", NULL, &me, NULL) < 0 ||
            !json_get_string(me, "companyId"))
                return ERR_NOT_FOUND;
        *ret_id = json_get_string(me, "companyId");
        return 0;
}

static int only_company(struct cli *c, bool create, const char **ret_id, struct err *err)
{
        CLEAN(buf_done) struct buf names = BUF_INIT;
        json_t *list;
        int r = cli_call_list(c, "/api/companies", &list, err);

        if (r == ERR_FORBIDDEN && company_of_agent(c, ret_id) >= 0)
                return 0;
        if (r < 0)
                return r;
        if (json_array_size(list) == 1) {
                *ret_id = cli_text(json_array_get(list, 0), "id");
                return 0;
        }
        if (json_array_size(list) == 0 && create)
                return create_default(c, ret_id, err);
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
        int r;

        if (!c->company)
                return only_company(c, create, ret_id, err);
        if (uuid_is_valid(c->company)) {
                *ret_id = c->company;
                return 0;
        }
        r = cli_company_find(c, c->company, &company, err);
        if (r >= 0)
                *ret_id = cli_text(company, "id");
        return r;
}

/* -- Environments, leases, agents, projects --------------------------------------------------- */

int cli_environments(struct cli *c, json_t **ret_list, struct err *err)
{
        const char *company;
        int r = cli_company(c, false, &company, err);

        if (r < 0)
                return r;
        return cli_call_list(c, cli_printf(c, "/api/companies/%s/environments", company), ret_list,
                             err);
}

int cli_environment(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        json_t *list;
        int r;

        if (uuid_is_valid(given))
                return cli_call(c, "GET", cli_printf(c, "/api/environments/%s", given), NULL, ret,
                                err);
        r = cli_environments(c, &list, err);
        if (r < 0)
                return r;
        return cli_pick("environment", list, given, "name", NULL, ret, err);
}

int cli_place(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        int r = cli_environment(c, given, ret, err);

        if (r >= 0 && json_is_false(json_object_get(*ret, "isolated")))
                out_note("'%s' is %s", cli_text(*ret, "name"), cli_text(*ret, "isolation"));
        return r;
}

/* There is no list of all leases, so each environment is asked; only done for a shortened id. */
int cli_lease(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        json_t *all, *environments, *environment;
        size_t i;
        int r;

        if (uuid_is_valid(given))
                return cli_call(c, "GET", cli_printf(c, "/api/environment-leases/%s", given), NULL,
                                ret, err);
        r = cli_environments(c, &environments, err);
        if (r < 0)
                return r;
        all = cli_keep(c, json_array());
        json_array_foreach(environments, i, environment)
        {
                const char *path =
                        cli_printf(c, "/api/environments/%s/leases", cli_text(environment, "id"));
                json_t *leases;

                r = cli_call_list(c, path, &leases, err);
                if (r < 0)
                        return r;
                json_array_extend(all, leases);
        }
        return cli_pick("lease", all, given, NULL, NULL, ret, err);
}

/* By id, or in a list of the company. */
static int pick_of_company(struct cli *c, const char *what, const char *plural, const char *given,
                           json_t **ret, struct err *err)
{
        const char *company;
        json_t *list;
        int r;

        if (uuid_is_valid(given))
                return cli_call(c, "GET", cli_printf(c, "/api/%s/%s", plural, given), NULL, ret,
                                err);
        r = cli_company(c, false, &company, err);
        if (r >= 0)
                r = cli_call_list(c, cli_printf(c, "/api/companies/%s/%s", company, plural), &list,
                                  err);
        if (r < 0)
                return r;
        return cli_pick(what, list, given, "name", "urlKey", ret, err);
}

int cli_agent(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        return pick_of_company(c, "agent", "agents", given, ret, err);
}

int cli_project(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        return pick_of_company(c, "project", "projects", given, ret, err);
}

const char *cli_named(struct cli *c, const char *folder, const char *id)
{
        json_t *found = NULL;
        int r = cli_call(c, "GET", cli_printf(c, "%s/%s", folder, id), NULL, &found, NULL);

        return r < 0 || !*cli_text(found, "name")
                       ? id
                       : cli_printf(c, "%s (%s)", cli_text(found, "name"), id);
}
