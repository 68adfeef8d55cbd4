#include "core/agent.h"

#include <ctype.h>

#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/adapter.h"
#include "core/agent_env.h"
#include "core/audit.h"
#include "core/auth.h"

static const char *const roles[] = { "ceo",        "cto",      "cmo", "cfo", "security",
                                     "engineer",   "designer", "pm",  "qa",  "devops",
                                     "researcher", "general",  NULL };

struct request {
        struct op *op;
        struct runtime *rt;
        const char *company_id, *id;
        json_t *body, *adapter_config; /* borrowed from the body */
        struct agent *agent;
        bool full;
};

/* "Ada Lovelace" gives ada-lovelace. */
static const char *slug(const char *name, struct arena *arena)
{
        char *out = arena_alloc(arena, strlen(name) + 1);
        size_t n = 0;

        for (; *name; name++) {
                if (isalnum((unsigned char)*name))
                        out[n++] = (char)tolower((unsigned char)*name);
                else if (n > 0 && out[n - 1] != '-')
                        out[n++] = '-';
        }
        while (n > 0 && out[n - 1] == '-')
                n--;
        out[n] = '\0';
        return out;
}

static const char *object_text(struct arena *a, const json_t *object, const char *fallback)
{
        return object ? json_to_arena(a, object) : fallback;
}

static int check_create(struct request *q, struct agent *g, struct err *err)
{
        CLEAN(check_done) struct check c;
        struct check n;
        struct arena *a = q->op->arena;
        const char *adapter, *role;
        json_t *permissions;
        bool can_create;
        int r;

        check_init(&c, q->body);
        g->name = arena_strdup(a, check_string(&c, "name", CHECK_REQUIRED, 1, 0));
        role = check_enum(&c, "role", CHECK_OPTIONAL, roles);
        g->role = role ? arena_strdup(a, role) : "general";
        g->title = arena_strdup(a, check_string(&c, "title", CHECK_NULLABLE, 0, 0));
        g->icon = arena_strdup(a, check_string(&c, "icon", CHECK_NULLABLE, 0, 0));
        g->capabilities = arena_strdup(a, check_string(&c, "capabilities", CHECK_NULLABLE, 0, 0));
        adapter = check_string(&c, "adapterType", CHECK_OPTIONAL, 1, 0);
        g->adapter_type = adapter ? arena_strdup(a, adapter) : "process";
        q->adapter_config = check_record(&c, "adapterConfig", CHECK_OPTIONAL);
        g->runtime_config =
                object_text(a, check_record(&c, "runtimeConfig", CHECK_OPTIONAL),
                            "{\"heartbeat\":{\"enabled\":false,\"maxConcurrentRuns\":20}}");
        g->budget_monthly_cents =
                check_int(&c, "budgetMonthlyCents", CHECK_OPTIONAL, 0, INT64_MAX, NULL);
        permissions = check_record(&c, "permissions", CHECK_OPTIONAL);
        check_nested(&n, &c, "permissions", permissions);
        can_create = check_bool(&n, "canCreateAgents", CHECK_OPTIONAL, false);
        g->permissions = can_create ? "{\"canCreateAgents\":true}" : "{\"canCreateAgents\":false}";
        g->metadata = object_text(a, check_record(&c, "metadata", CHECK_NULLABLE), NULL);
        r = check_end(&c, err);
        if (r >= 0 && !adapter_is_known(g->adapter_type))
                return err_set(err, ERR_UNPROCESSABLE, "Unknown adapter type: %s", g->adapter_type);
        return r;
}

static int add_member(struct db *db, const struct agent *g, struct err *err)
{
        struct uuid id = uuid_new();
        struct membership m = {
                .id = id.s,
                .company_id = g->company_id,
                .principal_type = "agent",
                .principal_id = g->id,
                .role = "member",
                .status = "active",
                .created_at = g->created_at,
                .updated_at = g->created_at,
        };
        int r = memberships_put(db, &m, err);

        return r < 0 ? r
                     : grants_put(db, g->company_id, "agent", g->id, "tasks:assign", NULL,
                                  g->created_at, err);
}

static int create(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent g = { .company_id = q->company_id, .status = "idle" };
        int r = access_manage_agents(db, q->op->actor, q->company_id, err);

        if (r >= 0)
                r = check_create(q, &g, err);
        if (r >= 0)
                r = agent_env_check(db, q->op, q->rt, q->company_id, NULL, q->adapter_config, err);
        if (r < 0)
                return r;
        g.adapter_config = object_text(q->op->arena, q->adapter_config, "{}");
        g.id = arena_strdup(q->op->arena, uuid_new().s);
        g.url_key = slug(g.name, q->op->arena);
        g.created_at = g.updated_at = clock_now_us();
        r = agents_insert(db, &g, err);
        if (r >= 0)
                r = add_member(db, &g, err);
        if (r >= 0)
                r = agent_env_bind(db, q->op, q->company_id, g.id, q->adapter_config, err);
        if (r >= 0)
                r = audit(db, q->op, q->company_id, "agent.created", "agent", g.id,
                          json_pack("{s:s, s:s, s:s}", "name", g.name, "role", g.role,
                                    "adapterType", g.adapter_type),
                          err);
        if (r >= 0)
                *q->agent = g;
        return r;
}

int agent_create(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                 struct agent *ret, struct err *err)
{
        struct request q = {
                .op = op, .rt = rt, .company_id = company_id, .body = body, .agent = ret
        };
        int r;

        FAULT("agent.create.before");
        r = store_write(op, rt->store, create, &q, err);
        FAULT("agent.create.after");
        return r;
}

/* Reading */

static int may_see_config(struct db *db, const struct op *op, const char *company_id, bool *ret,
                          struct err *err)
{
        if (op->actor->type == ACTOR_AGENT) {
                *ret = op->actor->can_create_agents;
                return 0;
        }
        return access_has(db, op->actor, company_id, PERM_AGENTS_CREATE, ret, err);
}

static int get(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = access_authenticated(q->op->actor, err);

        if (r >= 0)
                r = agents_get(db, q->id, q->op->arena, q->agent, err);
        if (r >= 0)
                r = access_company(db, q->op->actor, q->agent->company_id, false, err);
        if (r >= 0)
                r = may_see_config(db, q->op, q->agent->company_id, &q->full, err);
        if (r >= 0 && q->op->actor->type == ACTOR_AGENT && streq(q->op->actor->agent_id, q->id))
                q->full = true;
        return r;
}

int agent_get(struct op *op, struct runtime *rt, const char *id, struct agent *ret, bool *ret_full,
              struct err *err)
{
        struct request q = { .op = op, .id = id, .agent = ret };
        int r = store_read(op, rt->store, get, &q, err);

        *ret_full = q.full;
        return r;
}

struct listing {
        struct op *op;
        const char *company_id;
        bool full;
        int (*fn)(void *ctx, const struct agent *agent, bool full);
        void *ctx;
};

static int show(void *ctx, const struct agent *agent)
{
        struct listing *q = ctx;
        bool self = q->op->actor->type == ACTOR_AGENT && streq(q->op->actor->agent_id, agent->id);

        return q->fn(q->ctx, agent, q->full || self);
}

static int list(struct db *db, void *arg, struct err *err)
{
        struct listing *q = arg;
        int r = access_company(db, q->op->actor, q->company_id, false, err);

        if (r >= 0)
                r = may_see_config(db, q->op, q->company_id, &q->full, err);
        return r < 0 ? r : agents_list(db, q->company_id, q->op->arena, show, q, err);
}

int agent_list(struct op *op, struct runtime *rt, const char *company_id,
               int (*fn)(void *ctx, const struct agent *agent, bool full), void *ctx,
               struct err *err)
{
        struct listing q = { op, company_id, false, fn, ctx };

        return store_read(op, rt->store, list, &q, err);
}

/* Rights */

static int set_permissions(struct db *db, void *arg, struct err *err)
{
        CLEAN(check_done) struct check c;
        struct request *q = arg;
        bool can_create, can_assign, has_assign;
        int64_t now = clock_now_us();
        int r = agents_get(db, q->id, q->op->arena, q->agent, err);

        check_init(&c, q->body);
        if (r >= 0)
                r = access_manage_agents(db, q->op->actor, q->agent->company_id, err);
        if (r < 0)
                return r;
        can_create = check_bool(&c, "canCreateAgents", CHECK_REQUIRED, false);
        has_assign = check_has(&c, "canAssignTasks");
        can_assign = check_bool(&c, "canAssignTasks", CHECK_OPTIONAL, false);
        check_unknown(&c, (const char *[]){ "canCreateAgents", "canAssignTasks", NULL });
        r = check_end(&c, err);
        if (r < 0)
                return r;
        q->agent->permissions =
                can_create ? "{\"canCreateAgents\":true}" : "{\"canCreateAgents\":false}";
        q->agent->updated_at = now;
        r = agents_set_permissions(db, q->id, q->agent->permissions, now, err);
        if (r >= 0 && has_assign && can_assign)
                r = grants_put(db, q->agent->company_id, "agent", q->id, "tasks:assign", NULL, now,
                               err);
        else if (r >= 0 && has_assign)
                r = grants_remove(db, q->agent->company_id, "agent", q->id, "tasks:assign", err);
        if (r >= 0)
                r = audit(db, q->op, q->agent->company_id, "agent.permissions_updated", "agent",
                          q->id, json_pack("{s:b}", "canCreateAgents", can_create), err);
        return r;
}

int agent_set_permissions(struct op *op, struct runtime *rt, const char *id, json_t *body,
                          struct agent *ret, struct err *err)
{
        struct request q = { .op = op, .id = id, .body = body, .agent = ret };
        int r = access_board(op->actor, err);

        return r < 0 ? r : store_write(op, rt->store, set_permissions, &q, err);
}
