/* Decides how an agent's status changes: paused, resumed, approved, terminated. */
#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/access/run_policy.h"
#include "core/agents/agent_internal.h"
#include "core/runs/run.h"
#include "core/secrets/agent_env.h"

struct request {
        struct op *op;
        struct runtime *rt;
        const char *id, *to, *action;
        bool is_approval;
        json_t *body; /* of a pause; NULL otherwise */
        struct agent *agent;
};

static int refuse(const char *from, const char *to, struct err *err)
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

/* Its keys and its bindings to secrets end: a terminated agent must not be able to come back. */
static int end(struct db *db, const struct agent *g, struct err *err)
{
        int r = agent_keys_revoke_all(db, g->id, clock_wall_us(), err);

        return r < 0 ? r : agent_env_unbind(db, g->company_id, g->id, err);
}

int agent_move(struct db *db, struct op *op, struct runtime *rt, struct agent *g, const char *to,
               struct err *err)
{
        const char *from = g->status;
        int r;

        if (!may_move(from, to))
                return refuse(from, to, err);
        g->status = to;
        g->updated_at = clock_now_us();
        g->paused_at = streq(to, "paused") ? (g->paused_at ? g->paused_at : g->updated_at) : 0;
        if (!streq(to, "paused"))
                g->pause_reason = NULL;
        else if (!g->pause_reason)
                g->pause_reason = "manual";
        r = agents_update(db, g, from, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "Agent was changed by someone else");
        if (r >= 0 && streq(to, "terminated"))
                r = end(db, g, err);
        if (r >= 0 && !run_agent_is_invokable(g))
                r = run_cancel_agent(db, op, rt, g->id,
                                     streq(to, "paused") ? "Cancelled because the agent was paused"
                                                         : "Cancelled because the agent was "
                                                           "terminated",
                                     err);
        return r;
}

static int read_reason(struct request *q, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *reason;

        if (!q->body)
                return 0;
        check_init(&c, q->body);
        reason = check_string(&c, "reason", CHECK_NULLABLE, 1, 500);
        if (reason)
                q->agent->pause_reason = arena_strdup(q->op->arena, reason);
        return check_end(&c, err);
}

/* The only way out of waiting for approval, except termination. */
static int approve(struct db *db, struct request *q, struct err *err)
{
        int r;

        if (!streq(q->agent->status, "pending_approval"))
                return err_set(err, ERR_CONFLICT, "Agent is not pending approval");
        q->agent->status = "idle";
        q->agent->updated_at = clock_now_us();
        r = agents_update(db, q->agent, "pending_approval", err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "Agent was changed by someone else");
        return r < 0 ? r
                     : audit(db, q->op, q->agent->company_id, q->action, "agent", q->agent->id,
                             NULL, err);
}

static int change(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = agents_get(db, q->id, q->op->arena, q->agent, err);

        if (r >= 0)
                r = access_manage_agents(db, q->op->actor, q->agent->company_id, err);
        if (r >= 0 && q->is_approval)
                return approve(db, q, err);
        /* Only a paused agent can be resumed; a working one stays as it is. */
        if (r >= 0 && streq(q->to, "idle") && !streq(q->agent->status, "paused") &&
            !streq(q->agent->status, "terminated") && !streq(q->agent->status, "pending_approval"))
                return 0;
        if (r >= 0)
                r = read_reason(q, err);
        if (r >= 0)
                r = agent_move(db, q->op, q->rt, q->agent, q->to, err);
        if (r >= 0)
                r = audit(db, q->op, q->agent->company_id, q->action, "agent", q->agent->id, NULL,
                          err);
        return r;
}

static int run(struct request *q, struct runtime *rt, struct err *err)
{
        int r = access_board(q->op->actor, err);

        if (r < 0)
                return r;
        FAULT("agent.move.before");
        q->rt = rt;
        r = store_write(q->op, rt->store, change, q, err);
        FAULT("agent.move.after");
        if (r >= 0)
                run_host_kick(rt->runs);
        return r;
}

int agent_pause(struct op *op, struct runtime *rt, const char *id, json_t *body, struct agent *ret,
                struct err *err)
{
        struct request q = { .op = op,
                             .id = id,
                             .to = "paused",
                             .action = "agent.paused",
                             .body = body,
                             .agent = ret };

        return run(&q, rt, err);
}

int agent_resume(struct op *op, struct runtime *rt, const char *id, struct agent *ret,
                 struct err *err)
{
        struct request q = {
                .op = op, .id = id, .to = "idle", .action = "agent.resumed", .agent = ret
        };

        return run(&q, rt, err);
}

int agent_approve(struct op *op, struct runtime *rt, const char *id, struct agent *ret,
                  struct err *err)
{
        struct request q = {
                .op = op, .id = id, .is_approval = true, .action = "agent.approved", .agent = ret
        };

        return run(&q, rt, err);
}

int agent_terminate(struct op *op, struct runtime *rt, const char *id, struct agent *ret,
                    struct err *err)
{
        struct request q = {
                .op = op, .id = id, .to = "terminated", .action = "agent.terminated", .agent = ret
        };

        return run(&q, rt, err);
}
