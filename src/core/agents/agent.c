/* Decides who may create and read agents, and who may change their rights. */
#include "core/agents/agent.h"

#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/access/agent_fields.h"
#include "core/access/audit.h"
#include "core/access/auth.h"
#include "core/agents/agent_internal.h"
#include "core/environments/env_select.h"
#include "core/environments/host_use.h"
#include "core/secrets/agent_env.h"
#include "core/slug.h"
#include "store/companies.h"

struct request {
        struct op *op;
        struct runtime *rt;
        const char *company_id, *id;
        json_t *body;
        struct agent *agent;
        bool full;
        bool is_hire; /* it may have to wait for approval */
};

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

/* The company may want to approve agents; then no caller creates one directly. */
static int check_approval(struct db *db, const struct request *q, struct agent *g, struct err *err)
{
        struct company company;
        int r = companies_get(db, q->company_id, q->op->arena, &company, err);

        if (r < 0 || !company.require_board_approval)
                return r;
        if (q->is_hire) {
                g->status = "pending_approval";
                return 0;
        }
        return err_set(err, ERR_CONFLICT,
                       "Direct agent creation requires board approval. Use POST "
                       "/api/companies/:companyId/agent-hires to ask for it.");
}

static int check_new(struct db *db, const struct request *q, const struct agent *g, struct err *err)
{
        int r = agent_check_manager(db, q->op, g, err);

        return r < 0 ? r
                     : env_select(db, q->rt, q->op, q->company_id, g->default_environment_id,
                                  ENV_FOR_NEW_AGENT, g->adapter_type, err);
}

static int insert(struct db *db, struct request *q, struct agent *g, const json_t *config,
                  struct err *err)
{
        int r;

        g->id = arena_strdup(q->op->arena, uuid_new().s);
        g->created_at = g->updated_at = clock_now_us();
        r = agents_insert(db, g, err);
        if (r >= 0)
                r = add_member(db, g, err);
        if (r >= 0)
                r = agent_env_bind(db, q->op, q->company_id, g->id, config, err);
        if (r >= 0)
                r = audit(db, q->op, q->company_id, "agent.created", "agent", g->id,
                          json_pack("{s:s, s:s, s:s}", "name", g->name, "role", g->role,
                                    "adapterType", g->adapter_type),
                          err);
        return r;
}

static int create(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent g = { .company_id = q->company_id,
                           .status = "idle",
                           .role = "general",
                           .adapter_type = "process" };
        struct agent_change change;
        json_t *config = NULL;
        int r = access_manage_agents(db, q->op->actor, q->company_id, err);

        if (r >= 0)
                r = agent_read_body(q->op, q->body, true, &g, &change, err);
        if (r >= 0)
                r = check_approval(db, q, &g, err);
        if (r >= 0)
                r = check_new(db, q, &g, err);
        if (r >= 0)
                r = agent_apply_config(db, q->op, q->rt, NULL, &change, &g, &config, err);
        if (r >= 0)
                r = agent_check_fields(db, q->op, q->rt, NULL, &change, &g, err);
        if (r >= 0)
                r = host_use_check_agent(db, q->rt, q->op, NULL, &g, err);
        if (r >= 0)
                r = insert(db, q, &g, config, err);
        json_decref(config);
        if (r >= 0)
                *q->agent = g;
        return r;
}

static int make(struct request *q, struct err *err)
{
        int r;

        FAULT("agent.create.before");
        r = store_write(q->op, q->rt->store, create, q, err);
        FAULT("agent.create.after");
        return r;
}

int agent_create(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                 struct agent *ret, struct err *err)
{
        struct request q = {
                .op = op, .rt = rt, .company_id = company_id, .body = body, .agent = ret
        };

        return make(&q, err);
}

int agent_hire(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
               struct agent *ret, struct err *err)
{
        struct request q = { .op = op,
                             .rt = rt,
                             .company_id = company_id,
                             .body = body,
                             .agent = ret,
                             .is_hire = true };

        return make(&q, err);
}

/* Reading */

static int find(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        const struct actor *a = q->op->actor;
        const char *company = a->type == ACTOR_AGENT ? a->company_id : q->company_id;
        int r = access_authenticated(a, err);

        if (r < 0)
                return r;
        if (!company)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Agent shortname lookup requires companyId query parameter");
        r = access_company(db, a, company, false, err);
        return r < 0 ? r
                     : agents_find(db, company, slug(q->id, q->op->arena), q->op->arena, q->agent,
                                   err);
}

int agent_find(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
               const char **ret_id, struct err *err)
{
        struct agent agent = { 0 };
        struct request q = { .op = op, .id = reference, .company_id = company_id, .agent = &agent };
        int r = 0;

        if (uuid_is_valid(reference))
                agent.id = reference;
        else if (!*slug(reference, op->arena))
                r = err_set(err, ERR_NOT_FOUND, "Agent not found");
        else
                r = store_read(op, rt->store, find, &q, err);
        *ret_id = agent.id;
        return r;
}

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

/* Board users that manage agents, and CEOs. */
static int check_permission_giver(struct db *db, const struct request *q, struct err *err)
{
        const struct actor *a = q->op->actor;
        bool is_ceo;
        int r;

        if (a->type != ACTOR_AGENT)
                return access_manage_agents(db, a, q->agent->company_id, err);
        r = access_company(db, a, q->agent->company_id, true, err);
        if (r >= 0)
                r = agent_actor_is_ceo(db, q->op, &is_ceo, err);
        if (r >= 0 && !is_ceo)
                r = err_set(err, ERR_FORBIDDEN, "Only CEO can manage permissions");
        return r;
}

static int set_permissions(struct db *db, void *arg, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct request *q = arg;
        bool could_create, could_assign, can_create, can_assign, has_assign;
        struct field_change rights = { .of = FIELD_OF_PERMISSIONS };
        CLEAN(json_decrefp) json_t *before = NULL, *after = NULL, *had = NULL;
        int64_t now = clock_now_us();
        int r = agents_get(db, q->id, q->op->arena, q->agent, err);

        check_init(&c, q->body);
        if (r >= 0)
                r = check_permission_giver(db, q, err);
        if (r < 0)
                return r;
        can_create = check_bool(&c, "canCreateAgents", CHECK_REQUIRED, false);
        has_assign = check_has(&c, "canAssignTasks");
        can_assign = check_bool(&c, "canAssignTasks", CHECK_OPTIONAL, false);
        check_unknown(&c, (const char *[]){ "canCreateAgents", "canAssignTasks", NULL });
        r = check_end(&c, err);
        if (r >= 0)
                r = json_parse(q->agent->permissions, strlen(q->agent->permissions), &had, err);
        if (r >= 0)
                r = grants_has(db, q->agent->company_id, "agent", q->id, "tasks:assign",
                               &could_assign, err);
        if (r < 0)
                return r;
        could_create = json_is_true(json_object_get(had, "canCreateAgents"));
        before = json_pack("{s:b, s:b}", "canCreateAgents", could_create, "canAssignTasks",
                           could_assign);
        after = json_pack("{s:b, s:b}", "canCreateAgents", can_create, "canAssignTasks",
                          has_assign ? can_assign : could_assign);
        rights.before = before;
        rights.after = after;
        rights.is_own = q->op->actor->type == ACTOR_AGENT && streq(q->op->actor->agent_id, q->id);
        r = agent_fields_check(db, q->op, &rights, NULL, err);
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
        int r = access_authenticated(op->actor, err);

        return r < 0 ? r : store_write(op, rt->store, set_permissions, &q, err);
}
