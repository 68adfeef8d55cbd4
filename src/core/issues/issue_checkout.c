/* Taking an issue, and giving it back. Both are one compare-and-set. */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/issues/issue_internal.h"

struct request {
        struct op *op;
        struct runtime *rt;
        bool kick; /* there is something to run */
        const char *reference;
        const struct issue_taking *taking;
        bool clear_assignee;
        struct issue *issue, *previous;
};

/* -- Taking ----------------------------------------------------------------------------------- */

static bool is_own(const struct request *q)
{
        return q->issue->assignee_agent_id &&
               streq(q->issue->assignee_agent_id, q->taking->agent_id);
}

/* The run that takes the issue: the caller's, for agents. */
static const char *run_of(const struct request *q)
{
        return q->op->actor->type == ACTOR_AGENT ? q->op->run_id : NULL;
}

static bool is_taken_already(const struct request *q)
{
        const char *run = run_of(q), *lock = q->issue->checkout_run_id;

        return is_own(q) && streq(q->issue->status, "in_progress") &&
               ((run && lock && streq(run, lock)) || (!run && !lock));
}

static bool is_expected(const struct request *q)
{
        json_t *item;
        size_t at;

        json_array_foreach(q->taking->expected, at, item)
        {
                if (streq(json_string_value(item), q->issue->status))
                        return true;
        }
        return false;
}

/* The agent's own issue, left behind by a run that ended, or taken for the agent without a run. */
static bool is_orphan(const struct request *q)
{
        return is_own(q) && streq(q->issue->status, "in_progress") && run_of(q);
}

static int check_free(struct db *db, const struct request *q, struct err *err)
{
        const struct issue *i = q->issue;
        bool held;
        int r = issue_is_held(db, q->op, i, &held, err);

        if (r < 0)
                return r;
        if (held || i->assignee_user_id || (i->assignee_agent_id && !is_own(q)) ||
            !(is_expected(q) || is_orphan(q)))
                return issue_conflict(i, "Issue checkout conflict", err);
        return 0;
}

static int write_taken(struct db *db, struct request *q, struct err *err)
{
        struct issue *i = q->issue, seen = *i;
        int64_t now = clock_now_us();

        i->assignee_agent_id = q->taking->agent_id;
        issue_set_status(i, "in_progress", now);
        i->started_at = i->updated_at = now;
        i->checkout_run_id = i->execution_run_id = run_of(q);
        i->execution_locked_at = run_of(q) ? now : 0;
        int r = issue_check_assignee(db, q->op, i, err);
        if (r >= 0)
                r = issues_update(db, i, &seen, err);
        if (r == 0)
                return issue_conflict(&seen, "Issue checkout conflict", err);
        if (r >= 0)
                r = audit(db, q->op, i->company_id, "issue.checked_out", "issue", i->id,
                          json_pack("{s:s, s:s}", "identifier", i->identifier, "agentId",
                                    q->taking->agent_id),
                          err);
        return r < 0 ? r
                     : issue_wake_taken(
                               &(struct issue_change_context){ db, q->op, q->rt, &q->kick }, i,
                               err);
}

static int issue_take(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        const struct actor *a = q->op->actor;
        struct project project;
        int r = issue_load(db, q->op, q->reference, true, q->issue, err);

        if (r >= 0)
                r = body_check(&q->taking->body, err);
        if (r >= 0 && a->type == ACTOR_AGENT) {
                if (!streq(a->agent_id, q->taking->agent_id))
                        return err_set(err, ERR_FORBIDDEN, "Agent can only checkout as itself");
                if (!q->op->run_id)
                        return err_set(err, ERR_UNAUTHORIZED, "Agent run id required");
                r = issue_check_run(db, q->op, err);
        }
        if (r >= 0 && q->issue->project_id) {
                r = projects_get(db, q->issue->project_id, q->op->arena, &project, err);
                if (r >= 0 && project.paused_at)
                        r = err_set(err, ERR_CONFLICT, "Project is paused");
        }
        if (r < 0 || is_taken_already(q))
                return r;
        r = issue_check_blockers(db, q->op, q->issue, err);
        if (r >= 0)
                r = check_free(db, q, err);
        return r < 0 ? r : write_taken(db, q, err);
}

int issue_checkout(struct op *op, struct runtime *rt, const char *reference,
                   const struct issue_taking *taking, struct issue *ret, struct err *err)
{
        struct request q = {
                .op = op, .rt = rt, .reference = reference, .taking = taking, .issue = ret
        };

        FAULT("issue.checkout.before");
        int r = store_write(op, rt->store, issue_take, &q, err);
        FAULT("issue.checkout.after");
        if (r >= 0 && q.kick)
                run_host_kick(rt->runs);
        return r;
}

/* -- Giving back ------------------------------------------------------------------------------ */

static int put_back(struct db *db, struct request *q, const char *action, struct err *err)
{
        struct issue *i = q->issue;

        i->updated_at = clock_now_us();
        int r = issues_update(db, i, q->previous, err);
        if (r == 0)
                return issue_conflict(q->previous, "Issue was changed by someone else", err);
        return r < 0 ? r
                     : audit(db, q->op, i->company_id, action, "issue", i->id,
                             json_pack("{s:s, s:s?, s:s?}", "identifier", i->identifier,
                                       "previousCheckoutRunId", q->previous->checkout_run_id,
                                       "previousAssigneeAgentId", q->previous->assignee_agent_id),
                             err);
}

static int issue_give_back(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = issue_load(db, q->op, q->reference, true, q->issue, err);

        if (r >= 0)
                r = issue_may_write(db, q->op, q->issue, err);
        if (r < 0)
                return r;
        *q->previous = *q->issue;
        /* A done issue stays done, and keeps the name of the agent that did it. */
        if (!issue_is_closed(q->issue)) {
                issue_set_status(q->issue, "todo", clock_now_us());
                q->issue->assignee_agent_id = q->issue->assignee_user_id = NULL;
        }
        issue_drop_locks(q->issue);
        return put_back(db, q, "issue.released", err);
}

int issue_release(struct op *op, struct runtime *rt, const char *reference, struct issue *ret,
                  struct err *err)
{
        struct issue previous;
        struct request q = {
                .op = op, .reference = reference, .issue = ret, .previous = &previous
        };

        FAULT("issue.release.before");
        int r = store_write(op, rt->store, issue_give_back, &q, err);
        FAULT("issue.release.after");
        return r;
}

static int issue_unlock(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = issue_load(db, q->op, q->reference, true, q->issue, err);

        if (r < 0)
                return r;
        *q->previous = *q->issue;
        issue_drop_locks(q->issue);
        if (q->clear_assignee) {
                q->issue->assignee_agent_id = q->issue->assignee_user_id = NULL;
                if (streq(q->issue->status, "in_progress"))
                        issue_set_status(q->issue, "todo", clock_now_us());
        }
        return put_back(db, q, "issue.admin_force_release", err);
}

int issue_force_release(struct op *op, struct runtime *rt, const char *reference,
                        bool clear_assignee, struct issue *ret, struct issue *ret_previous,
                        struct err *err)
{
        struct request q = { .op = op,
                             .reference = reference,
                             .clear_assignee = clear_assignee,
                             .issue = ret,
                             .previous = ret_previous };
        int r = access_board(op->actor, err);

        return r < 0 ? r : store_write(op, rt->store, issue_unlock, &q, err);
}
