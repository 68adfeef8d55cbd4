/* Changing and deleting agents. */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/agents/agent_internal.h"
#include "core/environments/env_select.h"
#include "core/environments/host_use.h"
#include "core/runs/run.h"
#include "core/secrets/agent_env.h"
#include "store/identity.h"

struct request {
        struct op *op;
        struct runtime *rt;
        const char *id;
        json_t *body;
        struct agent *agent;
};

int agent_actor_is_ceo(struct db *db, const struct op *op, bool *ret, struct err *err)
{
        struct agent self;
        int r = agents_get(db, op->actor->agent_id, op->arena, &self, err);

        *ret = r >= 0 && streq(self.role, "ceo");
        return r;
}

/* An agent changes itself; others only as CEO or with the right to make agents. agent_fields.h
 * lists what it may change. */
static int check_changer(struct db *db, const struct request *q, struct err *err)
{
        const struct actor *a = q->op->actor;
        bool is_ceo;
        int r;

        if (a->type != ACTOR_AGENT)
                return access_manage_agents(db, a, q->agent->company_id, err);
        r = access_company(db, a, q->agent->company_id, true, err);
        if (r >= 0 && json_object_get(q->body, "status"))
                r = access_board(a, err);
        if (r < 0 || a->can_create_agents)
                return r;
        r = agent_actor_is_ceo(db, q->op, &is_ceo, err);
        if (r < 0 || is_ceo || streq(a->agent_id, q->id))
                return r;
        return err_set(err, ERR_FORBIDDEN, "Only CEO or agent creators can modify other agents");
}

/* A new adapter has to work in the agent's present environment. */
static int check_relations(struct db *db, struct op *op, struct runtime *rt,
                           const struct agent *before, const struct agent_change *change,
                           const struct agent *g, struct err *err)
{
        bool same = before->default_environment_id && g->default_environment_id &&
                    streq(before->default_environment_id, g->default_environment_id);
        int r = change->has_manager ? agent_check_manager(db, op, g, err) : 0;

        if (r >= 0 && (change->has_adapter || (change->has_environment && !same)))
                r = env_select(db, rt, op, g->company_id, g->default_environment_id,
                               ENV_FOR_CHANGED_AGENT, g->adapter_type, err);
        return r;
}

static int write_row(struct db *db, struct op *op, struct runtime *rt, const struct agent *before,
                     struct agent *g, const char *status, struct err *err)
{
        int r;

        g->updated_at = clock_now_us();
        if (status && !streq(status, before->status))
                return agent_move(db, op, rt, g, status, err);
        r = agents_update(db, g, before->status, err);
        if (r == 0)
                r = err_set(err, ERR_CONFLICT, "Agent was changed by someone else");
        return r;
}

int agent_change_row(struct db *db, struct op *op, struct runtime *rt, struct agent *g,
                     json_t *body, const char *source, const char *rolled_back_from,
                     struct err *err)
{
        struct agent before = *g;
        struct agent_change change;
        json_t *had = NULL, *config = NULL;
        int r = json_parse(g->adapter_config, strlen(g->adapter_config), &had, err);

        if (r >= 0)
                r = agent_read_body(op, body, false, g, &change, err);
        if (r >= 0)
                r = check_relations(db, op, rt, &before, &change, g, err);
        if (r >= 0)
                r = agent_apply_config(db, op, rt, had, &change, g, &config, err);
        if (r >= 0)
                r = agent_check_fields(db, op, rt, &before, &change, g, err);
        if (r >= 0)
                r = host_use_check_agent(db, rt, op, &before, g, err);
        if (r >= 0 && streq(source, "instructions_path")) /* the rest was not checked */
                g->configured_by_agent_id = before.configured_by_agent_id;
        /* A terminated agent keeps its configuration, but no secret comes back to it. */
        if (r >= 0 && !streq(before.status, "terminated"))
                r = agent_env_bind(db, op, g->company_id, g->id, config, err);
        if (r >= 0)
                r = write_row(db, op, rt, &before, g, change.status, err);
        if (r >= 0)
                r = agent_record_revision(db, op, g, agent_snapshot(&before), source,
                                          rolled_back_from, err);
        if (r >= 0)
                r = audit(db, op, g->company_id, "agent.updated", "agent", g->id,
                          json_pack("{s:O}", "changedTopLevelKeys", change.given), err);
        json_decref(had);
        json_decref(config);
        return r;
}

static int update(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = access_authenticated(q->op->actor, err);

        if (r >= 0)
                r = agents_get(db, q->id, q->op->arena, q->agent, err);
        if (r >= 0)
                r = check_changer(db, q, err);
        if (r >= 0 && json_object_get(q->body, "permissions"))
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Use /api/agents/:id/permissions for permission changes");
        return r < 0 ? r
                     : agent_change_row(db, q->op, q->rt, q->agent, q->body, "patch", NULL, err);
}

int agent_update(struct op *op, struct runtime *rt, const char *id, json_t *body, struct agent *ret,
                 struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = id, .body = body, .agent = ret };
        int r;

        FAULT("agent.update.before");
        r = store_write(op, rt->store, update, &q, err);
        FAULT("agent.update.after");
        if (r >= 0)
                run_host_kick(rt->runs);
        return r;
}

static int delete (struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent *g = q->agent;
        int r = agents_get(db, q->id, q->op->arena, g, err);

        if (r >= 0)
                r = access_manage_agents(db, q->op->actor, g->company_id, err);
        if (r >= 0)
                r = agent_env_unbind(db, g->company_id, g->id, err);
        if (r >= 0)
                r = grants_clear(db, g->company_id, "agent", g->id, err);
        if (r >= 0)
                r = memberships_remove(db, g->company_id, "agent", g->id, err);
        if (r >= 0)
                r = agents_delete(db, g->id, err);
        if (r == ERR_CONFLICT)
                return err_set(err, r,
                               "The agent has runs, which stay on record; terminate it instead");
        if (r >= 0)
                r = audit(db, q->op, g->company_id, "agent.deleted", "agent", g->id,
                          json_pack("{s:s}", "name", g->name), err);
        return r;
}

int agent_delete(struct op *op, struct runtime *rt, const char *id, struct err *err)
{
        struct agent agent;
        struct request q = { .op = op, .rt = rt, .id = id, .agent = &agent };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        FAULT("agent.delete.before");
        r = store_write(op, rt->store, delete, &q, err);
        FAULT("agent.delete.after");
        return r;
}
