/* Which fields of an execution workspace may change, and when it may be closed. */
#include "core/workspaces/execution_workspace.h"

#include <ctype.h>

#include "base/clock.h"
#include "codec/check.h"
#include "core/access/agent_fields.h"
#include "core/access/audit.h"
#include "core/environments/env_select.h"
#include "core/environments/host_use.h"
#include "core/workspaces/worktree.h"

#define ARCHIVED "archived"

static const char *const statuses[] = { "active",   "idle",           "in_review",
                                        "archived", "cleanup_failed", NULL };
static const char *const texts[] = { "environmentId", "provisionCommand", "teardownCommand",
                                     "cleanupCommand", NULL };

/* The configuration */

/* Trimmed; null when blank or no text. A new reference. */
static json_t *clean_text(const json_t *value)
{
        const char *s = json_string_value(value);
        size_t n;

        if (!s)
                return json_null();
        while (isspace((unsigned char)*s))
                s++;
        n = strlen(s);
        while (n > 0 && isspace((unsigned char)s[n - 1]))
                n--;
        return n ? json_stringn(s, n) : json_null();
}

static json_t *clean_config(const json_t *raw)
{
        static const char *const states[] = { "running", "stopped", NULL };
        json_t *config = json_object(), *runtime = json_object_get(raw, "workspaceRuntime");
        json_t *desired = json_object_get(raw, "desiredState");
        json_t *services = json_object_get(raw, "serviceStates");
        bool known = false;

        for (size_t i = 0; texts[i]; i++)
                json_object_set_new(config, texts[i], clean_text(json_object_get(raw, texts[i])));
        json_object_set(config, "workspaceRuntime",
                        json_is_object(runtime) ? runtime : json_null());
        for (size_t i = 0; states[i]; i++)
                known = known ||
                        (json_is_string(desired) && streq(json_string_value(desired), states[i]));
        json_object_set(config, "desiredState", known ? desired : json_null());
        json_object_set(config, "serviceStates",
                        json_object_size(services) > 0 ? services : json_null());
        return config;
}

static bool says_something(const json_t *config)
{
        const char *key;
        json_t *value;

        json_object_foreach((json_t *)config, key, value)
        {
                if (!json_is_null(value))
                        return true;
        }
        return false;
}

json_t *execution_workspace_config(const char *metadata)
{
        json_t *parsed = NULL, *config = NULL, *raw;

        if (!metadata || json_parse(metadata, strlen(metadata), &parsed, NULL) < 0)
                return NULL;
        raw = json_get_object(parsed, "config");
        if (raw)
                config = clean_config(raw);
        json_decref(parsed);
        if (config && !says_something(config)) {
                json_decref(config);
                config = NULL;
        }
        return config;
}

/* Reading */

int execution_workspace_list(struct op *op, struct runtime *rt, const char *company_id,
                             const struct execution_workspace_filter *filter,
                             execution_workspace_fn fn, void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = access_company(db, op->actor, company_id, false, err);
        return r < 0 ? r
                     : execution_workspaces_list(db, company_id, filter, op->arena, fn, ctx, err);
}

static int execution_workspace_load(struct db *db, struct op *op, const char *id, bool write,
                                    struct execution_workspace *ret, struct err *err)
{
        int r = access_authenticated(op->actor, err);

        if (r >= 0)
                r = execution_workspaces_get(db, id, op->arena, ret, err);
        return r < 0 ? r : access_company(db, op->actor, ret->company_id, write, err);
}

int execution_workspace_get(struct op *op, struct runtime *rt, const char *id,
                            struct execution_workspace *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : execution_workspace_load(db, op, id, false, ret, err);
}

/* Closing */

bool close_is_blocked(const struct close_readiness *k)
{
        return k->leases > 0 || k->unknown || k->git.modified > 0 || k->git.untracked > 0 ||
               (k->git.tip && !k->git.is_published);
}

/* Outside of transactions: git is asked. */
static int look_at_worktree(struct op *op, struct runtime *rt,
                            const struct execution_workspace *row, struct close_readiness *ret,
                            struct err *err)
{
        int r = worktree_is(row) ? worktree_look(op, rt, row, &ret->git, err) : 0;

        ret->has_worktree = r > 0;
        if (r >= 0 || r == ERR_CANCELLED || r == ERR_BUSY)
                return MIN(r, 0);
        ret->has_worktree = true;
        ret->unknown = arena_strdup(op->arena, err->msg);
        err_clear(err);
        return 0;
}

static int find_readiness(struct db *db, const struct execution_workspace *row,
                          struct close_readiness *ret, struct err *err)
{
        ret->is_shared = streq(row->mode, "shared_workspace");
        return execution_workspaces_count_users(db, row->id, &ret->leases, &ret->issues, err);
}

int execution_workspace_readiness(struct op *op, struct runtime *rt, const char *id,
                                  struct execution_workspace *ret,
                                  struct close_readiness *ret_readiness, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = execution_workspace_load(db, op, id, false, ret, err);
        if (r >= 0)
                r = find_readiness(db, ret, ret_readiness, err);
        store_read_end(&db);
        return r < 0 ? r : look_at_worktree(op, rt, ret, ret_readiness, err);
}

int execution_workspace_operations(struct op *op, struct runtime *rt, const char *id,
                                   workspace_row_fn fn, void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct execution_workspace row;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = execution_workspace_load(db, op, id, false, &row, err);
        return r < 0 ? r : workspaces_of_execution_workspace(db, id, op->arena, fn, ctx, err);
}

/* Changing */

struct update {
        struct op *op;
        struct runtime *rt;
        const char *id;
        json_t *body;
        struct execution_workspace row;
        struct close_readiness readiness;
        int64_t looked_at; /* updated_at of the row whose worktree was looked at; 0: none was */
        bool blocked;
};

static void check_config(struct check *parent, json_t *config)
{
        static const char *const states[] = { "running", "stopped", NULL };
        struct check c;

        check_nested(&c, parent, "config", config);
        (void)check_uuid(&c, "environmentId", CHECK_NULLABLE);
        for (size_t i = 1; texts[i]; i++)
                (void)check_string(&c, texts[i], CHECK_NULLABLE, 0, 0);
        (void)check_record(&c, "workspaceRuntime", CHECK_NULLABLE);
        (void)check_enum(&c, "desiredState", CHECK_NULLABLE, states);
        (void)check_record(&c, "serviceStates", CHECK_NULLABLE);
        check_unknown(&c, (const char *[]){ "environmentId", "provisionCommand", "teardownCommand",
                                            "cleanupCommand", "workspaceRuntime", "desiredState",
                                            "serviceStates", NULL });
}

static int check_body(json_t *body, struct err *err)
{
        static const char *const nullable[] = { "cwd",        "repoUrl",     "baseRef",
                                                "branchName", "providerRef", NULL };
        CLEAN(check_done) struct check c = { 0 };
        const char *eligible;
        int64_t time;

        check_init(&c, body);
        (void)check_string(&c, "name", CHECK_OPTIONAL, 1, 0);
        for (size_t i = 0; nullable[i]; i++)
                (void)check_string(&c, nullable[i], CHECK_NULLABLE, 0, 0);
        (void)check_enum(&c, "status", CHECK_OPTIONAL, statuses);
        eligible = check_string(&c, "cleanupEligibleAt", CHECK_NULLABLE, 0, 0);
        if (eligible && !clock_parse_iso(eligible, &time))
                check_invalid_string(&c, "cleanupEligibleAt", "datetime", "Invalid datetime");
        (void)check_string(&c, "cleanupReason", CHECK_NULLABLE, 0, 0);
        check_config(&c, check_record(&c, "config", CHECK_NULLABLE));
        (void)check_record(&c, "metadata", CHECK_NULLABLE);
        check_unknown(&c, (const char *[]){ "name", "cwd", "repoUrl", "baseRef", "branchName",
                                            "providerRef", "status", "cleanupEligibleAt",
                                            "cleanupReason", "config", "metadata", NULL });
        return check_end(&c, err);
}

/* Metadata from its text; empty when there is none. A new reference. */
static json_t *metadata_object(const char *text)
{
        json_t *metadata = NULL;

        if (text)
                (void)json_parse(text, strlen(text), &metadata, NULL);
        if (json_is_object(metadata))
                return metadata;
        json_decref(metadata);
        return json_object();
}

/* Metadata as given, or as it is; the members of `config` that are given go over those it has. */
static const char *merge_metadata(struct arena *arena, const char *old, const json_t *body)
{
        const json_t *given = json_object_get(body, "metadata");
        const json_t *config = json_object_get(body, "config");
        json_t *metadata, *merged;
        const char *text;

        if (!given && !config)
                return old;
        metadata =
                json_is_object(given) ? json_deep_copy(given) : metadata_object(given ? NULL : old);
        if (json_is_null(config)) {
                json_object_del(metadata, "config");
        } else if (config) {
                const json_t *before = json_get_object(metadata, "config");

                merged = before ? json_deep_copy(before) : json_object();
                json_object_update(merged, (json_t *)config);
                json_object_set_new(metadata, "config", clean_config(merged));
                json_decref(merged);
        }
        text = json_object_size(metadata) ? json_to_arena(arena, metadata) : NULL;
        json_decref(metadata);
        return text;
}

static void take_text(struct arena *arena, const json_t *body, const char *key, const char **field)
{
        const json_t *value = json_object_get(body, key);

        if (value)
                *field = arena_strdup(arena, json_string_value(value));
}

static void merge_body(struct update *u, struct execution_workspace *row)
{
        struct arena *a = u->op->arena;
        const json_t *eligible = json_object_get(u->body, "cleanupEligibleAt");

        take_text(a, u->body, "name", &row->name);
        take_text(a, u->body, "cwd", &row->cwd);
        take_text(a, u->body, "repoUrl", &row->repo_url);
        take_text(a, u->body, "baseRef", &row->base_ref);
        take_text(a, u->body, "branchName", &row->branch_name);
        take_text(a, u->body, "providerRef", &row->provider_ref);
        take_text(a, u->body, "status", &row->status);
        take_text(a, u->body, "cleanupReason", &row->cleanup_reason);
        if (eligible) {
                row->cleanup_eligible_at = 0;
                if (json_is_string(eligible))
                        (void)clock_parse_iso(json_string_value(eligible),
                                              &row->cleanup_eligible_at);
        }
        row->metadata = merge_metadata(a, row->metadata, u->body);
}

/* An agent could otherwise move its work out of its sandbox, or have another directory brought into
 * it; a member without that right could set what runs there. Members of the configuration are named
 * where the body has them. */
static int check_fields(struct db *db, const struct update *u,
                        const struct execution_workspace *from,
                        const struct execution_workspace *to, struct err *err)
{
        const struct op *op = u->op;
        json_t *given = json_object_get(u->body, "metadata");
        CLEAN(json_decrefp) json_t *had = execution_workspace_config(from->metadata);
        CLEAN(json_decrefp) json_t *has = execution_workspace_config(to->metadata);
        CLEAN(json_decrefp)
        json_t *was = json_pack("{s:s?, s:s}", "cwd", from->cwd, "status", from->status);
        CLEAN(json_decrefp)
        json_t *is = json_pack("{s:s?, s:s}", "cwd", to->cwd, "status", to->status);
        struct field_change change = {
                .of = FIELD_OF_WORKSPACE, .company_id = to->company_id, .before = was, .after = is
        };
        const char *id = json_get_string(has, "environmentId");
        const char *old = json_get_string(had, "environmentId");
        int r = 0;

        if (given) {
                json_t *metadata = metadata_object(from->metadata);

                if (had)
                        json_object_set(metadata, "config", had);
                else
                        json_object_del(metadata, "config");
                json_object_set_new(was, "metadata", metadata);
                json_object_set(is, "metadata", given);
        }
        if (json_object_get(u->body, "config")) {
                json_object_set(was, "config", had);
                json_object_set(is, "config", has);
        }
        if (id)
                r = agent_environment_is_isolated(db, u->rt, op->arena, to->company_id, id,
                                                  &change.is_isolated, err);
        if (r >= 0)
                r = agent_fields_check(db, op, &change, NULL, err);
        if (r >= 0 && id && !(old && streq(old, id)))
                r = env_select(db, u->rt, op, to->company_id, id, ENV_FOR_WORK, NULL, err);
        return r;
}

static int write_change(struct db *db, void *arg, struct err *err)
{
        CLEAN(json_decrefp) json_t *keys = json_array();
        struct update *u = arg;
        struct execution_workspace to;
        const char *key;
        json_t *value;
        bool closes;
        int r = execution_workspace_load(db, u->op, u->id, true, &u->row, err);

        if (r < 0)
                return r;
        to = u->row;
        merge_body(u, &to);
        r = check_fields(db, u, &u->row, &to, err);
        if (r < 0)
                return r;
        if (to.cwd && json_object_get(u->body, "cwd") && access_may_use_host(u->rt, u->op->actor))
                to.cwd_from = WORKSPACE_CWD_HOST; /* also when it is the same again */
        else if (to.cwd && !(u->row.cwd && streq(u->row.cwd, to.cwd)))
                to.cwd_from = NULL;
        to.updated_at = clock_now_us();
        closes = streq(to.status, ARCHIVED) && !streq(u->row.status, ARCHIVED);
        if (closes)
                r = find_readiness(db, &u->row, &u->readiness, err);
        if (r < 0)
                return r;
        /* A run that began after the look may have left something there. */
        if (closes && u->looked_at && u->looked_at != u->row.updated_at)
                return err_set(err, ERR_CONFLICT, "The workspace was changed by someone else");
        u->blocked = closes && close_is_blocked(&u->readiness);
        if (u->blocked)
                return 0;
        if (closes)
                to.closed_at = to.updated_at;
        else if (!streq(to.status, ARCHIVED))
                to.closed_at = 0;
        json_object_foreach(u->body, key, value) json_array_append_new(keys, json_string(key));
        r = execution_workspaces_replace(db, &to, u->row.updated_at, err);
        if (r >= 0)
                r = audit(db, u->op, to.company_id, "execution_workspace.updated",
                          "execution_workspace", to.id, json_pack("{s:O}", "changedKeys", keys),
                          err);
        u->row = to;
        return r;
}

static bool archives(const struct update *u)
{
        const char *to = json_get_string(u->body, "status");

        return to && streq(to, ARCHIVED) && !streq(u->row.status, ARCHIVED);
}

int execution_workspace_update(struct op *op, struct runtime *rt, const char *id, json_t *body,
                               struct execution_workspace *ret,
                               struct close_readiness *ret_readiness, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct update u = { .op = op, .rt = rt, .id = id, .body = body };
        struct git_report report;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0) /* 404 and 403 come before 400 */
                r = execution_workspace_load(db, op, id, true, &u.row, err);
        store_read_end(&db);
        if (r >= 0)
                r = check_body(body, err);
        if (r >= 0 && archives(&u) && worktree_is(&u.row)) {
                u.looked_at = u.row.updated_at;
                r = worktree_publish(op, rt, &u.row, &report, err);
                if (r < 0 && r != ERR_CANCELLED && r != ERR_BUSY) { /* the look says so, too */
                        err_clear(err);
                        r = 0;
                }
                if (r >= 0)
                        r = look_at_worktree(op, rt, &u.row, &u.readiness, err);
        }
        if (r >= 0)
                r = store_write(op, rt->store, write_change, &u, err);
        if (r >= 0 && u.looked_at && !u.blocked && worktree_sweep(op, rt, err) < 0)
                err_clear(err); /* the sweeper goes on */
        *ret = u.row;
        *ret_readiness = u.readiness;
        return r < 0 ? r : u.blocked;
}

/* Runtime services */

int execution_workspace_refuse_services(const struct op *op, const char *action, struct err *err)
{
        static const char *const actions[] = { "start", "stop", "restart", "run", NULL };

        if (op->actor->type == ACTOR_AGENT)
                return err_set(err, ERR_FORBIDDEN,
                               "Missing permission to manage workspace runtime services");
        for (size_t i = 0; actions[i]; i++)
                if (streq(actions[i], action))
                        return err_set(err, ERR_UNPROCESSABLE,
                                       "Berth does not run services in workspaces. Run them as "
                                       "commands of a lease.");
        return err_set(err, ERR_NOT_FOUND, "Unknown runtime service action \"%s\"", action);
}

int execution_workspace_control(struct op *op, struct runtime *rt, const char *id,
                                const char *action, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct execution_workspace row;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = execution_workspace_load(db, op, id, true, &row, err);
        return r < 0 ? r : execution_workspace_refuse_services(op, action, err);
}
