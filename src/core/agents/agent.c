/* Decides who may read agents, and who may change their rights, keys and remembered state. */
#include "core/agents/agent.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/agent_fields.h"
#include "core/access/audit.h"
#include "core/access/run_policy.h"

#define CHAIN_MAX  64
#define GRANTS_MAX 64

/* -- Reading ---------------------------------------------------------------------------------- */

int agent_load_managed(struct db *db, const struct op *op, const char *id, struct agent *ret,
                       struct err *err)
{
        int r = access_authenticated(op->actor, err);

        if (r >= 0)
                r = agents_get(db, id, op->arena, ret, err);
        return r < 0 ? r : access_manage_agents(db, op->actor, ret->company_id, err);
}

int agent_may_see_config(struct db *db, const struct op *op, const char *company_id,
                         const char *agent_id, bool *ret, struct err *err)
{
        const struct actor *a = op->actor;

        if (a->type != ACTOR_AGENT)
                return access_has(db, a, company_id, PERM_AGENTS_CREATE, ret, err);
        *ret = a->can_create_agents || streq(a->agent_id, agent_id);
        return 0;
}

int agent_find(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
               const char **ret_id, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const struct actor *a = op->actor;
        const char *company = a->type == ACTOR_AGENT ? a->company_id : company_id;
        const char *name = arena_slug(op->arena, reference);
        struct agent agent = { 0 };

        *ret_id = reference;
        if (uuid_is_valid(reference))
                return 0;
        *ret_id = NULL;
        if (!*name)
                return err_set(err, ERR_NOT_FOUND, "Agent not found");
        int r = access_authenticated(a, err);
        if (r >= 0 && !company)
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Agent shortname lookup requires companyId query parameter");
        if (r >= 0)
                r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = access_company(db, a, company, false, err);
        if (r >= 0)
                r = agents_find(db, company, name, op->arena, &agent, err);
        *ret_id = agent.id;
        return r;
}

static int agent_load_visible(struct db *db, const struct op *op, const char *id, struct agent *ret,
                              bool *ret_full, struct err *err)
{
        int r = access_authenticated(op->actor, err);

        if (r >= 0)
                r = agents_get(db, id, op->arena, ret, err);
        if (r >= 0)
                r = access_company(db, op->actor, ret->company_id, false, err);
        return r < 0 ? r : agent_may_see_config(db, op, ret->company_id, id, ret_full, err);
}

int agent_get(struct op *op, struct runtime *rt, const char *id, struct agent *ret, bool *ret_full,
              struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        *ret_full = false;
        return r < 0 ? r : agent_load_visible(db, op, id, ret, ret_full, err);
}

static int note_grant(void *ctx, const char *permission_key, const char *scope)
{
        struct member_grants *grants = ctx;

        if (grants->n < GRANTS_MAX)
                grants->at[grants->n++] = (struct member_grant){ permission_key, scope };
        return 0;
}

int agent_get_detail(struct op *op, struct runtime *rt, const char *id, struct agent_detail *ret,
                     struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        CLEAN(json_decrefp) json_t *permissions = NULL;
        struct agent_detail *d = ret;
        const struct agent *g = &d->agent;
        bool granted, creates;
        int r = store_read_begin(op, rt->store, &db, err);

        *d = (struct agent_detail){
                .chain = arena_alloc(op->arena, CHAIN_MAX * sizeof(*d->chain)),
                .grants.at = arena_alloc(op->arena, GRANTS_MAX * sizeof(*d->grants.at)),
        };
        if (r >= 0)
                r = agent_load_visible(db, op, id, &d->agent, &d->full, err);
        if (r < 0)
                return r;
        for (const char *next = g->reports_to; next && d->n_chain < CHAIN_MAX && r >= 0;) {
                r = agents_get(db, next, op->arena, &d->chain[d->n_chain], err);
                if (r >= 0)
                        next = d->chain[d->n_chain++].reports_to;
        }
        if (r >= 0 || r == ERR_NOT_FOUND) /* a manager that does not exist ends the chain */
                r = memberships_get(db, g->company_id, "agent", g->id, op->arena, &d->membership,
                                    err);
        if (r == ERR_NOT_FOUND) {
                d->membership = (struct membership){ 0 };
                r = 0;
        }
        if (r >= 0)
                r = grants_list(db, g->company_id, "agent", g->id, op->arena, note_grant,
                                &d->grants, err);
        if (r >= 0)
                r = grants_has(db, g->company_id, "agent", g->id, "tasks:assign", &granted, err);
        if (r >= 0)
                r = json_parse(g->permissions, strlen(g->permissions), &permissions, err);
        if (r < 0)
                return r;
        creates = json_is_true(json_object_get(permissions, "canCreateAgents"));
        d->can_assign_tasks = granted || creates || streq(g->role, "ceo");
        d->assign_source = streq(g->role, "ceo") ? "ceo_role"
                           : creates             ? "agent_creator"
                           : granted             ? "explicit_grant"
                                                 : "none";
        return 0;
}

/* -- Rights ----------------------------------------------------------------------------------- */

struct request {
        struct op *op;
        const char *id, *key_id, *name;
        const struct body *body;
        const struct agent_rights *rights;
        struct agent *agent;
        struct agent_key *key;
        char *token;
        struct agent_runtime_state *state;
};

/* Board users that manage agents, and CEOs. */
static int check_permission_giver(struct db *db, const struct request *q, struct err *err)
{
        const struct actor *a = q->op->actor;
        bool is_ceo;

        if (a->type != ACTOR_AGENT)
                return access_manage_agents(db, a, q->agent->company_id, err);
        int r = access_company(db, a, q->agent->company_id, true, err);
        if (r >= 0)
                r = access_is_ceo(db, q->op, &is_ceo, err);
        if (r >= 0 && !is_ceo)
                r = err_set(err, ERR_FORBIDDEN, "Only CEO can manage permissions");
        return r;
}

static int agent_write_permissions(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        const struct agent_rights *want = q->rights;
        bool could_create, could_assign;
        struct field_change rights = { .of = FIELD_OF_PERMISSIONS };
        CLEAN(json_decrefp) json_t *before = NULL, *after = NULL, *had = NULL;
        int64_t now = clock_now_us();
        int r = agents_get(db, q->id, q->op->arena, q->agent, err);

        if (r >= 0)
                r = check_permission_giver(db, q, err);
        if (r >= 0)
                r = body_check(&want->body, err);
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
        after = json_pack("{s:b, s:b}", "canCreateAgents", want->can_create_agents,
                          "canAssignTasks",
                          want->has_assign ? want->can_assign_tasks : could_assign);
        rights.before = before;
        rights.after = after;
        rights.is_own = q->op->actor->type == ACTOR_AGENT && streq(q->op->actor->agent_id, q->id);
        r = agent_fields_check(db, q->op, &rights, NULL, err);
        if (r < 0)
                return r;
        q->agent->permissions = want->can_create_agents ? "{\"canCreateAgents\":true}"
                                                        : "{\"canCreateAgents\":false}";
        q->agent->updated_at = now;
        r = agents_set_permissions(db, q->id, q->agent->permissions, now, err);
        if (r >= 0 && want->has_assign && want->can_assign_tasks)
                r = grants_put(db, q->agent->company_id, "agent", q->id, "tasks:assign", NULL, now,
                               err);
        else if (r >= 0 && want->has_assign)
                r = grants_remove(db, q->agent->company_id, "agent", q->id, "tasks:assign", err);
        return r < 0 ? r
                     : audit(db, q->op, q->agent->company_id, "agent.permissions_updated", "agent",
                             q->id, json_pack("{s:b}", "canCreateAgents", want->can_create_agents),
                             err);
}

int agent_set_permissions(struct op *op, struct runtime *rt, const char *id,
                          const struct agent_rights *rights, struct agent *ret, struct err *err)
{
        struct request q = { .op = op, .id = id, .rights = rights, .agent = ret };
        int r = access_authenticated(op->actor, err);

        return r < 0 ? r : store_write(op, rt->store, agent_write_permissions, &q, err);
}

/* -- Keys ------------------------------------------------------------------------------------- */

static int agent_key_insert(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        char digest[SHA256_HEX_LEN + 1];
        struct agent agent;
        int r = agent_load_managed(db, q->op, q->id, &agent, err);

        if (r >= 0)
                r = body_check(q->body, err);
        if (r < 0)
                return r;
        if (run_agent_absence(&agent))
                return err_set(err, ERR_CONFLICT, "Cannot create keys for %s agents",
                               run_agent_absence(&agent));
        auth_new_token(AGENT_TOKEN_PREFIX, q->token);
        auth_hash_token(q->token, digest);
        *q->key = (struct agent_key){
                .id = arena_strdup(q->op->arena, uuid_new().s),
                .agent_id = agent.id,
                .company_id = agent.company_id,
                .name = q->name,
                .token_sha256 = arena_strdup(q->op->arena, digest),
                .created_at = clock_now_us(),
        };
        r = agent_keys_insert(db, q->key, err);
        return r < 0 ? r
                     : audit(db, q->op, agent.company_id, "agent.key_created", "agent", agent.id,
                             json_pack("{s:s, s:s}", "keyId", q->key->id, "name", q->name), err);
}

int agent_key_create(struct op *op, struct runtime *rt, const char *agent_id,
                     const struct body *body, const char *name, struct agent_key *ret,
                     char ret_token[TOKEN_MAX], struct err *err)
{
        struct request q = {
                .op = op, .id = agent_id, .body = body, .name = name, .key = ret, .token = ret_token
        };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        FAULT("agent_key.create.before");
        r = store_write(op, rt->store, agent_key_insert, &q, err);
        FAULT("agent_key.create.after");
        return r;
}

static int agent_key_end(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent agent;
        int r = agent_load_managed(db, q->op, q->id, &agent, err);

        if (r >= 0)
                r = agent_keys_revoke(db, q->id, q->key_id, clock_now_us(), err);
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Key not found");
        if (r > 0)
                r = audit(db, q->op, agent.company_id, "agent.key_revoked", "agent", agent.id,
                          json_pack("{s:s}", "keyId", q->key_id), err);
        return r;
}

int agent_key_revoke(struct op *op, struct runtime *rt, const char *agent_id, const char *key_id,
                     struct err *err)
{
        struct request q = { .op = op, .id = agent_id, .key_id = key_id };
        int r = access_board(op->actor, err);

        return r < 0 ? r : store_write(op, rt->store, agent_key_end, &q, err);
}

/* -- What is remembered between runs ---------------------------------------------------------- */

/* An agent that never ran has an empty state. */
static int agent_state_load(struct db *db, struct op *op, const struct agent *g,
                            struct agent_runtime_state *ret, struct err *err)
{
        int r = agent_runtime_state_get(db, g->id, op->arena, ret, err);

        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        *ret = (struct agent_runtime_state){
                .agent_id = g->id,
                .company_id = g->company_id,
                .adapter_type = g->adapter_type,
                .state_json = "{}",
                .created_at = g->created_at,
                .updated_at = g->created_at,
        };
        return 0;
}

int agent_state_get(struct op *op, struct runtime *rt, const char *id,
                    struct agent_runtime_state *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct agent g;
        int r = access_board(op->actor, err);

        if (r >= 0)
                r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = agent_load_managed(db, op, id, &g, err);
        return r < 0 ? r : agent_state_load(db, op, &g, ret, err);
}

static int agent_state_forget(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent g;
        int r = agent_load_managed(db, q->op, q->id, &g, err);

        if (r >= 0)
                r = body_check(q->body, err);
        if (r >= 0)
                r = agent_runtime_state_reset(db, g.id, q->name, clock_now_us(), err);
        if (r >= 0)
                r = audit(db, q->op, g.company_id, "agent.runtime_session_reset", "agent", g.id,
                          json_pack("{s:s?}", "taskKey", q->name), err);
        return r < 0 ? r : agent_state_load(db, q->op, &g, q->state, err);
}

int agent_state_reset(struct op *op, struct runtime *rt, const char *id, const struct body *body,
                      const char *task, struct agent_runtime_state *ret, struct err *err)
{
        struct request q = { .op = op, .id = id, .body = body, .name = task, .state = ret };
        int r = access_board(op->actor, err);

        return r < 0 ? r : store_write(op, rt->store, agent_state_forget, &q, err);
}
