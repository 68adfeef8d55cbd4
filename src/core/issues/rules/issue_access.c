/* Decides who may change an issue and everything that belongs to it, and what follows from its
 * status. */
#include "base/clock.h"
#include "core/access/audit.h"
#include "core/access/run_policy.h"
#include "core/issues/rules/issue_rules.h"
#include "store/agents.h"
#include "store/wakeups.h"

#define CHAIN_MAX 64

int issue_load(struct db *db, const struct op *op, const char *reference, bool write,
               struct issue *ret, struct err *err)
{
        int r = access_authenticated(op->actor, err);

        if (r >= 0)
                r = issues_get(db, reference, op->arena, ret, err);
        return r < 0 ? r : access_company(db, op->actor, ret->company_id, write, err);
}

int issue_conflict(const struct issue *i, const char *text, struct err *err)
{
        json_t *details =
                json_pack("{s:s, s:s, s:s?, s:s?, s:s?}", "issueId", i->id, "status", i->status,
                          "assigneeAgentId", i->assignee_agent_id, "checkoutRunId",
                          i->checkout_run_id, "executionRunId", i->execution_run_id);
        int r = err_set(err, ERR_CONFLICT, "%s", text);

        if (err)
                err_details(err, json_to_text(details));
        json_decref(details);
        return r;
}

/* -- Runs ------------------------------------------------------------------------------------- */

int issue_check_run(struct db *db, const struct op *op, struct err *err)
{
        const char *owner;
        bool lives;

        if (op->actor->type != ACTOR_AGENT || !op->run_id)
                return 0;
        int r = issue_run_lives(db, op->run_id, op->arena, &lives, &owner, err);
        if (r >= 0 && owner && !streq(owner, op->actor->agent_id))
                r = err_set(err, ERR_FORBIDDEN, "X-Paperclip-Run-Id names a run of another agent");
        return r;
}

/* Whether the lock belongs to another run that may still be working. */
static int issue_lock_holds(struct db *db, const struct op *op, const char *lock_run_id, bool *ret,
                            struct err *err)
{
        const char *owner;

        *ret = false;
        if (!lock_run_id || (op->run_id && streq(lock_run_id, op->run_id)))
                return 0;
        return issue_run_lives(db, lock_run_id, op->arena, ret, &owner, err);
}

/* Giving an issue to another assignee removes the locks at once; the command ends only later. */
static int is_being_left(struct db *db, const struct op *op, const struct issue *i, bool *ret,
                         struct err *err)
{
        const char *run = NULL;
        int r = wakeups_leaving_run(db, i->id, WAKE_MENTIONED, op->run_id, op->arena, &run, err);

        *ret = run != NULL;
        return r;
}

int issue_is_held(struct db *db, const struct op *op, const struct issue *i, bool *ret,
                  struct err *err)
{
        int r = issue_lock_holds(db, op, i->checkout_run_id, ret, err);

        if (r >= 0 && !*ret)
                r = issue_lock_holds(db, op, i->execution_run_id, ret, err);
        if (r >= 0 && !*ret)
                r = is_being_left(db, op, i, ret, err);
        return r;
}

int issue_active_run(struct db *db, const struct op *op, const struct issue *i, const char **ret,
                     struct err *err)
{
        const char *const locks[] = { i->checkout_run_id, i->execution_run_id };
        const char *owner;
        bool lives;
        int r = wakeups_live_run(db, i->id, op->arena, ret, err);

        for (size_t n = 0; r >= 0 && !*ret && n < ARRAY_LEN(locks); n++) {
                if (!locks[n])
                        continue;
                r = issue_run_lives(db, locks[n], op->arena, &lives, &owner, err);
                if (r >= 0 && lives)
                        *ret = locks[n];
        }
        return r < 0 ? r : 0;
}

/* -- The rules -------------------------------------------------------------------------------- */

/* Whether the actor is a manager of the assignee, directly or through others. */
static int is_manager(struct db *db, const struct op *op, const char *assignee, bool *ret,
                      struct err *err)
{
        const char *next = assignee;

        *ret = false;
        for (int depth = 0; next && depth < CHAIN_MAX; depth++) {
                struct agent g;
                int r = agents_get(db, next, op->arena, &g, err);

                if (r == ERR_NOT_FOUND)
                        return 0;
                if (r < 0)
                        return r;
                next = g.reports_to;
                if (next && streq(next, op->actor->agent_id)) {
                        *ret = true;
                        return 0;
                }
        }
        return 0;
}

static int may_write_for_others(struct db *db, const struct op *op, const struct issue *i,
                                bool *ret, struct err *err)
{
        *ret = op->actor->can_create_agents;
        if (*ret)
                return 0;
        int r = access_has(db, op->actor, i->company_id, PERM_TASKS_CHECKOUTS, ret, err);
        return r < 0 || *ret ? r : is_manager(db, op, i->assignee_agent_id, ret, err);
}

static int check_other(struct db *db, const struct op *op, const struct issue *i, struct err *err)
{
        bool exempt;
        int r = may_write_for_others(db, op, i, &exempt, err);

        if (r < 0 || exempt)
                return r;
        if (streq(i->status, "in_progress"))
                return issue_conflict(i, "Issue is checked out by another agent", err);
        return err_set(err, ERR_FORBIDDEN, "Agent cannot mutate another agent's issue");
}

/* The agent's own issue in progress: the calling run has the checkout, or takes it over. */
static int check_owner(struct db *db, const struct op *op, struct issue *i, struct err *err)
{
        struct issue seen = *i;
        bool held;

        if (!op->run_id)
                return err_set(err, ERR_UNAUTHORIZED, "Agent run id required");
        if (i->checkout_run_id && streq(i->checkout_run_id, op->run_id))
                return 0;
        int r = issue_lock_holds(db, op, i->checkout_run_id, &held, err);
        if (r >= 0 && !held)
                r = is_being_left(db, op, i, &held, err);
        if (r < 0)
                return r;
        if (held)
                return issue_conflict(i, "Issue run ownership conflict", err);
        i->checkout_run_id = i->execution_run_id = op->run_id;
        i->execution_locked_at = i->updated_at = clock_now_us();
        r = issues_update(db, i, &seen, err);
        return r == 0 ? issue_conflict(&seen, "Issue run ownership conflict", err) : r;
}

int issue_may_write(struct db *db, const struct op *op, struct issue *i, struct err *err)
{
        if (op->actor->type != ACTOR_AGENT)
                return 0;
        int r = issue_check_run(db, op, err);
        if (r < 0 || !i->assignee_agent_id)
                return r;
        if (!streq(i->assignee_agent_id, op->actor->agent_id))
                return check_other(db, op, i, err);
        return streq(i->status, "in_progress") ? check_owner(db, op, i, err) : 0;
}

/* -- Assigning -------------------------------------------------------------------------------- */

int issue_may_assign(struct db *db, const struct op *op, const char *company_id, struct err *err)
{
        const struct actor *a = op->actor;
        bool allowed, is_ceo;
        int r = access_has(db, a, company_id, PERM_TASKS_ASSIGN, &allowed, err);

        if (r < 0 || allowed || (a->type == ACTOR_AGENT && a->can_create_agents))
                return r;
        if (a->type == ACTOR_AGENT) {
                r = access_is_ceo(db, op, &is_ceo, err);
                if (r < 0 || is_ceo)
                        return r;
        }
        return err_set(err, ERR_FORBIDDEN, "Missing permission: " PERM_TASKS_ASSIGN);
}

int issue_check_assignee(struct db *db, const struct op *op, const struct issue *i, struct err *err)
{
        struct agent g;

        if (i->assignee_agent_id && i->assignee_user_id)
                return err_set(err, ERR_UNPROCESSABLE, "Issue can only have one assignee");
        if (streq(i->status, "in_progress") && !i->assignee_agent_id && !i->assignee_user_id)
                return err_set(err, ERR_UNPROCESSABLE, "in_progress issues require an assignee");
        if (!i->assignee_agent_id)
                return 0;
        int r = agents_get(db, i->assignee_agent_id, op->arena, &g, err);
        if (r == ERR_NOT_FOUND)
                return err_set(err, ERR_NOT_FOUND, "Assignee agent not found");
        if (r < 0)
                return r;
        if (!streq(g.company_id, i->company_id))
                return err_set(err, ERR_UNPROCESSABLE, "Assignee must belong to same company");
        if (run_agent_absence(&g))
                return err_set(err, ERR_CONFLICT, "Cannot assign work to %s agents",
                               run_agent_absence(&g));
        return 0;
}

/* -- What follows from its state ------------------------------------------------------------- */

int issue_collect(void *ctx, const struct issue *row)
{
        struct issue_rows *rows = ctx;

        rows->at = arena_more(rows->arena, rows->at, rows->n, &rows->room, sizeof(*rows->at));
        rows->at[rows->n++] = *row;
        return 0;
}

int issue_check_blockers(struct db *db, const struct op *op, const struct issue *i, struct err *err)
{
        struct issue_rows all = { .arena = op->arena };
        int r = issue_blockers_list(db, i->id, false, op->arena, issue_collect, &all, err);

        for (size_t n = 0; r >= 0 && n < all.n; n++)
                if (!streq(all.at[n].status, "done"))
                        r = err_set(err, ERR_UNPROCESSABLE,
                                    "Issue is blocked by unresolved blockers");
        return r;
}

bool issue_is_closed(const struct issue *i)
{
        return streq(i->status, "done") || streq(i->status, "cancelled");
}

void issue_drop_locks(struct issue *i)
{
        i->checkout_run_id = i->execution_run_id = NULL;
        i->execution_locked_at = 0;
}

void issue_set_status(struct issue *i, const char *status, int64_t now)
{
        i->status = status;
        if (!streq(status, "in_progress"))
                issue_drop_locks(i);
        else if (!i->started_at)
                i->started_at = now;
        if (!streq(status, "done"))
                i->completed_at = 0;
        else if (!i->completed_at)
                i->completed_at = now;
        if (!streq(status, "cancelled"))
                i->cancelled_at = 0;
        else if (!i->cancelled_at)
                i->cancelled_at = now;
}
