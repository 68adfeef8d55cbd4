/* Decides how an agent's status changes: paused, resumed, approved, terminated. */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/access/run_policy.h"
#include "core/agents/agent.h"
#include "core/runs/run.h"
#include "core/secrets/agent_env.h"

struct request {
        struct op *op;
        struct runtime *rt;
        const char *id;
        enum agent_order order;
        const struct body *body;
        const char *reason;
        struct agent *agent;
};

static const struct {
        const char *to, *action;
} orders[] = {
        [AGENT_PAUSE] = { "paused", "agent.paused" },
        [AGENT_RESUME] = { "idle", "agent.resumed" },
        [AGENT_APPROVE] = { "idle", "agent.approved" },
        [AGENT_TERMINATE] = { "terminated", "agent.terminated" },
};

static int refuse_move(const char *from, const char *to, struct err *err)
{
        bool stays = streq(from, "terminated");

        if (streq(to, "running") || streq(to, "error"))
                return err_set(err, ERR_UNPROCESSABLE, "The status %s follows from runs", to);
        if (stays && streq(to, "paused"))
                return err_set(err, ERR_CONFLICT, "Cannot pause terminated agent");
        if (stays)
                return err_set(err, ERR_CONFLICT, "Terminated agents cannot be resumed");
        if (streq(to, "pending_approval"))
                return err_set(err, ERR_CONFLICT, "Agents cannot go back to pending approval");
        return err_set(err, ERR_CONFLICT, "Pending approval agents cannot be activated directly");
}

static bool may_move(const char *from, const char *to)
{
        if (streq(from, to))
                return true;
        if (streq(to, "running") || streq(to, "error") || streq(to, "pending_approval"))
                return false;
        if (streq(from, "pending_approval"))
                return streq(to, "terminated");
        return !streq(from, "terminated");
}

int agent_move(struct db *db, struct op *op, struct runtime *rt, struct agent *g, const char *to,
               struct err *err)
{
        const char *from = g->status;

        if (!may_move(from, to))
                return refuse_move(from, to, err);
        g->status = to;
        g->updated_at = clock_now_us();
        g->paused_at = streq(to, "paused") ? (g->paused_at ? g->paused_at : g->updated_at) : 0;
        if (!streq(to, "paused"))
                g->pause_reason = NULL;
        else if (!g->pause_reason)
                g->pause_reason = "manual";
        int r = agents_update(db, g, from, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "Agent was changed by someone else");
        /* Its keys and its bindings to secrets end: a terminated agent must not come back. */
        if (r >= 0 && streq(to, "terminated"))
                r = agent_keys_revoke_all(db, g->id, clock_wall_us(), err);
        if (r >= 0 && streq(to, "terminated"))
                r = agent_env_unbind(db, g->company_id, g->id, err);
        if (r >= 0 && !run_agent_is_invokable(g))
                r = run_cancel_agent(db, op, rt, g->id,
                                     streq(to, "paused") ? "Cancelled because the agent was paused"
                                                         : "Cancelled because the agent was "
                                                           "terminated",
                                     err);
        return r;
}

static int agent_order_apply(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent *g = q->agent;
        int r = agent_load_managed(db, q->op, q->id, g, err);

        if (r < 0)
                return r;
        if (q->order == AGENT_APPROVE) {
                /* The only way out of waiting for approval, except termination. */
                if (!streq(g->status, "pending_approval"))
                        return err_set(err, ERR_CONFLICT, "Agent is not pending approval");
                g->status = "idle";
                g->updated_at = clock_now_us();
                r = agents_update(db, g, "pending_approval", err);
                if (r == 0)
                        return err_set(err, ERR_CONFLICT, "Agent was changed by someone else");
        } else {
                /* Only a paused agent can be resumed; a working one stays as it is. */
                if (q->order == AGENT_RESUME && !streq(g->status, "paused") &&
                    !run_agent_absence(g))
                        return 0;
                r = body_check(q->body, err);
                if (r >= 0 && q->reason)
                        g->pause_reason = q->reason;
                if (r >= 0)
                        r = agent_move(db, q->op, q->rt, g, orders[q->order].to, err);
        }
        return r < 0 ? r
                     : audit(db, q->op, g->company_id, orders[q->order].action, "agent", g->id,
                             NULL, err);
}

int agent_obey(struct op *op, struct runtime *rt, const char *id, enum agent_order order,
               const struct body *body, const char *reason, struct agent *ret, struct err *err)
{
        struct request q = { op, rt, id, order, body, reason, ret };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        FAULT("agent.move.before");
        r = store_write(op, rt->store, agent_order_apply, &q, err);
        FAULT("agent.move.after");
        if (r >= 0)
                run_host_kick(rt->runs);
        return r;
}
