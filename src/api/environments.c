/* Routes of environments: creating, listing, showing, changing and removing them. */
#include "api/api.h"
#include "api/encode.h"
#include "codec/check.h"
#include "core/adapters/adapter.h"
#include "core/environments/probe.h"
#include "core/leases/environment_delete.h"

enum environment_body { BODY_PROBE, BODY_NEW, BODY_CHANGE };

/* The body of a request to probe, create or change an environment. */
static int read_wish(struct call *c, enum environment_body kind, struct environment_change *ret,
                     struct err *err)
{
        const char *known[] = { "name",   "description",   "driver", "config", "metadata",
                                "status", "replaceConfig", "moveTo", NULL };
        static const size_t n_known[] = { [BODY_PROBE] = 5, [BODY_NEW] = 6, [BODY_CHANGE] = 8 };
        CLEAN(check_done) struct check k = { 0 };

        *ret = (struct environment_change){ 0 };
        check_init(&k, c->body);
        ret->name = check_string(&k, "name", kind == BODY_NEW ? CHECK_REQUIRED : CHECK_OPTIONAL,
                                 kind != BODY_PROBE, 0);
        ret->has_description = check_has(&k, "description");
        ret->description = check_string(&k, "description", CHECK_NULLABLE, 0, 0);
        ret->driver =
                check_enum(&k, "driver", kind == BODY_CHANGE ? CHECK_OPTIONAL : CHECK_REQUIRED,
                           kind_drivers(c->rt, c->op->arena));
        if (kind != BODY_PROBE)
                ret->status = check_enum(&k, "status", CHECK_OPTIONAL, environment_statuses);
        ret->config = check_record(&k, "config", CHECK_OPTIONAL);
        ret->has_metadata = check_has(&k, "metadata");
        ret->metadata = check_record(&k, "metadata", CHECK_NULLABLE);
        if (kind == BODY_CHANGE) {
                ret->replace_config = check_bool(&k, "replaceConfig", CHECK_OPTIONAL, false);
                ret->move_to = arena_strdup(c->op->arena, check_uuid(&k, "moveTo", CHECK_OPTIONAL));
        }
        known[n_known[kind]] = NULL;
        check_unknown(&k, known);
        return check_end(&k, err);
}

static int list_environments(struct call *c, struct err *err)
{
        struct jw *w = call_list(c);
        struct environment *list;
        bool redacted;
        int n = environment_list(c->op, c->rt, c->params[0], call_query(c, "status"),
                                 call_query(c, "driver"), &list, &redacted, err);

        for (int i = 0; i < n; i++)
                encode_environment(w, c->rt, &list[i], redacted);
        return call_list_end(c, MIN(n, 0));
}

static int get_capabilities(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(c->op, c->rt->store, &db, err);

        if (r >= 0)
                r = access_company(db, &c->actor, c->params[0], false, err);
        store_read_end(&db);
        return r < 0 ? r : adapter_write_capabilities(c->op, c->rt, &c->out, err);
}

static int answer_environment(struct call *c, int r, const struct environment *env, bool redacted)
{
        if (r >= 0)
                encode_environment(call_json(c), c->rt, env, redacted);
        return r;
}

static int create_environment(struct call *c, struct err *err)
{
        struct environment_change wish;
        struct environment env;
        int r = environment_may_create(c->op, c->rt, c->params[0], err);

        if (r >= 0)
                r = read_wish(c, BODY_NEW, &wish, err);
        if (r >= 0)
                r = environment_create(c->op, c->rt, c->params[0], &wish, &env, err);
        return answer_environment(c, r, &env, false);
}

static int get_environment(struct call *c, struct err *err)
{
        struct environment env;
        bool redacted;
        int r = environment_get(c->op, c->rt, c->params[0], &env, &redacted, err);

        return answer_environment(c, r, &env, redacted);
}

static int update_environment(struct call *c, struct err *err)
{
        struct environment_change wish;
        struct environment env;
        int r = environment_may_update(c->op, c->rt, c->params[0], err);

        if (r >= 0)
                r = read_wish(c, BODY_CHANGE, &wish, err);
        if (r >= 0)
                r = environment_update(c->op, c->rt, c->params[0], &wish, &env, err);
        return answer_environment(c, r, &env, false);
}

static int remove_environment(struct call *c, struct err *err)
{
        struct environment env;
        const char *move_to = call_query(c, "moveTo");

        if (move_to && !uuid_is_valid(move_to))
                return err_set(err, ERR_INVALID, "moveTo is no id of an environment");
        int r = environment_delete(c->op, c->rt, c->params[0], call_query_flag(c, "closeLeases"),
                                   move_to, &env, err);
        return answer_environment(c, r, &env, false);
}

static int get_blast_radius(struct call *c, struct err *err)
{
        struct blast_radius radius = { 0 };
        const struct environment_references *refs = &radius.refs;
        int r = environment_blast_radius(c->op, c->rt, c->params[0], &radius, err);

        if (r < 0)
                return r;
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "environmentId", c->params[0]);
        jw_kbool(w, "canDelete", json_array_size(radius.blocked) == 0);
        jw_kvalue(w, "deleteBlockedReasons", radius.blocked);
        jw_key(w, "staticReferences");
        jw_object(w);
        jw_kbool(w, "isManagedLocal", radius.is_managed_local);
        jw_kbool(w, "isInstanceDefault", false);
        jw_kbool(w, "isCompanyDefault", refs->companies > 0);
        jw_kint(w, "agentDefaultCount", refs->agents);
        jw_kint(w, "executionWorkspaceSelectionCount", refs->execution_workspaces);
        jw_kint(w, "issueSelectionCount", refs->issues);
        jw_kint(w, "projectSelectionCount", refs->projects);
        jw_kint(w, "secretBindingCount", refs->secret_bindings);
        jw_object_end(w);
        jw_key(w, "activeRuntimeUse");
        jw_object(w);
        jw_kint(w, "activeLeaseCount", refs->active_leases);
        jw_kint(w, "activeCustomImageSetupSessionCount", 0);
        jw_kbool(w, "hasActiveRuntimeUse", refs->active_leases > 0);
        jw_object_end(w);
        jw_kint(w, "pendingCleanupLeaseCount", refs->closing_places);
        jw_kint(w, "reusableSandboxLeaseCount", refs->idle_places);
        jw_object_end(w);
        json_decref(radius.blocked);
        return 0;
}

static int answer_probe(struct call *c, int r, const struct probe_result *res)
{
        if (r < 0)
                return r;
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kbool(w, "ok", res->ok);
        jw_kstring(w, "driver", res->driver);
        jw_kstring(w, "summary", buf_str(&res->summary));
        jw_kvalue(w, "details", res->details);
        if (res->hint.len > 0)
                jw_kstring(w, "hint", buf_str(&res->hint));
        jw_object_end(w);
        return 0;
}

static int probe_environment(struct call *c, struct err *err)
{
        CLEAN(probe_result_done) struct probe_result res = { 0 };

        return answer_probe(c, probe_saved(c->op, c->rt, c->params[0], &res, err), &res);
}

static int probe_config(struct call *c, struct err *err)
{
        CLEAN(probe_result_done) struct probe_result res = { 0 };
        struct environment_change wish;
        int r = environment_may_create(c->op, c->rt, c->params[0], err);

        if (r >= 0)
                r = read_wish(c, BODY_PROBE, &wish, err);
        if (r >= 0)
                r = probe_unsaved(c->op, c->rt, c->params[0], wish.driver, wish.config, &res, err);
        return answer_probe(c, r, &res);
}

const struct route routes_environments[] = {
        { "GET", "/api/companies/:companyId/environments", .fn = list_environments },
        { "GET", "/api/companies/:companyId/environments/capabilities", .fn = get_capabilities },
        { "POST", "/api/companies/:companyId/environments", .fn = create_environment, .status = 201,
          .flags = ROUTE_WAITS },
        { "POST", "/api/companies/:companyId/environments/probe-config", .fn = probe_config,
          .flags = ROUTE_WAITS },
        { "GET", "/api/environments/:id", .fn = get_environment },
        { "PATCH", "/api/environments/:id", .fn = update_environment, .flags = ROUTE_WAITS },
        { "DELETE", "/api/environments/:id", .fn = remove_environment,
          .flags = ROUTE_WAITS | ROUTE_CLOSES },
        { "GET", "/api/environments/:id/delete-blast-radius", .fn = get_blast_radius },
        { "POST", "/api/environments/:id/probe", .fn = probe_environment, .flags = ROUTE_WAITS },
        { 0 },
};
