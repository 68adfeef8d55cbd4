/* Claiming: of the queued runs of an agent, the oldest first, as many as it may have at once. A
 * claim, the lock on the issue, and the announcement of both are one transaction. A pass first
 * reads which agents have room for a run, so agents that wait for their own runs to end cost no
 * transaction. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/access/audit.h"
#include "core/issues/rules/issue_rules.h"
#include "core/runs/run_internal.h"

static void run_ids_add(struct run_ids *ids, const char *id)
{
        if (ids->n == ids->room) {
                ids->room = ids->room ? 2 * ids->room : 8;
                ids->at = xrealloc(ids->at, ids->room * sizeof(*ids->at));
        }
        memcpy(ids->at[ids->n++], id, UUID_LEN + 1);
}

void run_ids_done(struct run_ids *ids)
{
        free(ids->at);
        *ids = (struct run_ids){ 0 };
}

/* -- One claim --------------------------------------------------------------------------------- */

struct claims {
        struct op *op;
        struct runtime *rt;
        struct run_pass *pass;
        const char *agent_id;
        struct db *db;
        struct run_rows rows;
        size_t claimed_before; /* ids of earlier transactions */
};

/* Lock the issue for the run's lifetime, if the agent has the issue and no other run works on it:
 * 1. */
static int lock_issue(struct claims *c, const struct run *run, struct err *err)
{
        struct issue issue, seen;
        bool held = false;
        struct op op = *c->op;
        int r;

        if (!run->issue_id)
                return 0;
        op.run_id = run->id;
        r = issues_get(c->db, run->issue_id, c->op->arena, &issue, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0 || issue_is_closed(&issue) || !issue.assignee_agent_id ||
            !streq(issue.assignee_agent_id, run->agent_id))
                return r;
        r = issue_is_held(c->db, &op, &issue, &held, err);
        if (r < 0 || held)
                return r;
        if (issue_check_blockers(c->db, &op, &issue, err) < 0) {
                err_clear(err);
                return 0;
        }
        seen = issue;
        issue.updated_at = clock_now_us();
        issue_set_status(&issue, "in_progress", issue.updated_at);
        issue.checkout_run_id = issue.execution_run_id = run->id;
        issue.execution_locked_at = issue.updated_at;
        return issues_update(c->db, &issue, &seen, err);
}

/* Record what the issue is now, and whether the agent finds it checked out for this run or has to
 * check it out itself. */
static int tell_issue(struct claims *c, struct run *run, bool is_locked, struct err *err)
{
        json_t *context = run_parse(c->op->arena, run->context_snapshot);
        json_t *told = json_get_object(context, "paperclipWake");
        json_t *issue = json_get_object(told, "issue"), *now = NULL;
        int r;

        if (!run->issue_id)
                return 0;
        r = run_describe_issue(c->db, c->op, run->issue_id, &now, err);
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        if (now)
                json_object_set_new(context, "paperclipIssue", now);
        if (issue)
                json_object_set_new(told, "checkedOutByHarness", json_boolean(is_locked));
        if (issue && is_locked)
                json_object_set_new(issue, "status", json_string("in_progress"));
        run->context_snapshot = json_to_arena(c->op->arena, context);
        return runs_tell(c->db, run->id, run->context_snapshot, err);
}

static int claim_run(struct claims *c, struct run *run, struct err *err)
{
        struct op op = *c->op;
        int64_t now = clock_now_us();
        int r = runs_claim(c->db, run->id, c->rt->node.instance.s, now, err);

        if (r <= 0)
                return r;
        op.run_id = run->id;
        run->status = RUN_RUNNING;
        run->started_at = now;
        run_announce_status(c->db, run);
        r = lock_issue(c, run, err);
        if (r >= 0)
                r = tell_issue(c, run, r > 0, err);
        if (r >= 0)
                r = runs_note_wakeup(c->db, run->wakeup_request_id, "claimed", NULL, now, err);
        if (r >= 0)
                r = audit(c->db, &op, run->company_id, "heartbeat.invoked", "heartbeat_run",
                          run->id, json_pack("{s:s}", "agentId", run->agent_id), err);
        if (r >= 0)
                r = agents_note_run(c->db, run->agent_id, "running", 0, now, err);
        if (r >= 0) {
                run_announce_agent(c->db, run, "running");
                r = run_event_add(c->db, c->rt, run, "lifecycle", "info", "run started", NULL, err);
        }
        if (r >= 0)
                run_ids_add(&c->pass->claimed, run->id);
        return r;
}

/* The agent may not work: the run will never begin. */
static int refuse_run(struct claims *c, struct run *run, struct err *err)
{
        int r;

        run->status = RUN_CANCELLED;
        run->error = RUN_NOT_INVOKABLE_TEXT;
        run->error_code = "agent_not_invokable";
        run->finished_at = run->updated_at = clock_now_us();
        r = runs_end(c->db, run, RUN_QUEUED, err);
        return r <= 0 ? r : run_note_end(c->db, c->rt, run, err);
}

/* How many runs an agent may begin now. */
struct room {
        bool may_work; /* false: its queued runs never begin */
        int64_t n;     /* how many; 0 or less: none */
};

static int find_room(struct db *db, const struct op *op, const char *agent_id, struct room *ret,
                     struct err *err)
{
        struct run_policy policy;
        struct agent agent;
        int64_t running;
        int r = agents_get(db, agent_id, op->arena, &agent, err);

        if (r >= 0)
                r = runs_count_running(db, agent_id, &running, err);
        if (r < 0)
                return r;
        run_policy_read(&agent, op->arena, &policy);
        *ret = (struct room){ run_agent_is_invokable(&agent), policy.max_concurrent - running };
        return 0;
}

static int claim_of_agent(struct db *db, void *arg, struct err *err)
{
        struct claims *c = arg;
        struct room room;
        int r;

        c->db = db;
        c->rows.n = 0;
        c->pass->claimed.n = c->claimed_before;
        r = find_room(db, c->op, c->agent_id, &room, err);
        if (r < 0 || (room.may_work && room.n <= 0))
                return r;
        r = runs_queued(db, c->agent_id, room.may_work ? room.n : 0, c->op->arena, run_rows_add,
                        &c->rows, err);
        for (size_t i = 0; r >= 0 && i < c->rows.n; i++)
                r = room.may_work ? claim_run(c, &c->rows.at[i], err)
                                  : refuse_run(c, &c->rows.at[i], err);
        return r;
}

/* -- The pass ---------------------------------------------------------------------------------- */

static int note_agent_id(void *ctx, const char *agent_id)
{
        run_ids_add(ctx, agent_id);
        return 0;
}

static int note_run_id(void *ctx, const struct run *row)
{
        run_ids_add(ctx, row->id);
        return 0;
}

/* Keep only agents that need a write. An agent that cannot be read is left to its claim. */
static void keep_those_with_room(struct db *db, struct op *op, struct run_ids *ids)
{
        size_t kept = 0;

        for (size_t i = 0; i < ids->n; i++) {
                struct room room;

                if (find_room(db, op, ids->at[i], &room, NULL) >= 0 && room.may_work && room.n <= 0)
                        continue;
                if (kept != i)
                        memcpy(ids->at[kept], ids->at[i], sizeof(ids->at[i]));
                kept++;
        }
        ids->n = kept;
}

/* An agent with runs that cannot be claimed does not stop the others from claiming theirs. */
static int claim_for(struct claims *c, const char *agent_id, struct err *err)
{
        CLEAN(err_done) struct err failure = { 0 };
        int r;

        c->agent_id = agent_id;
        c->claimed_before = c->pass->claimed.n;
        FAULT("run.claim.before");
        r = store_write(c->op, c->rt->store, claim_of_agent, c, &failure);
        FAULT("run.claim.after");
        if (r >= 0)
                return 0;
        c->pass->claimed.n = c->claimed_before;
        if (r == ERR_CANCELLED) {
                err_move(err, &failure);
                return r;
        }
        log_warn("the runs of an agent could not be claimed", LOG_S("agent", agent_id),
                 LOG_S("error", failure.msg));
        return 0;
}

int run_pass(struct op *op, struct runtime *rt, struct run_pass *pass, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        CLEAN(run_ids_done) struct run_ids agents = { 0 };
        struct claims c = { .op = op, .rt = rt, .pass = pass, .rows.arena = op->arena };
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = runs_waiting_agents(db, op->arena, note_agent_id, &agents, err);
        if (r >= 0)
                keep_those_with_room(db, op, &agents);
        if (r >= 0)
                r = runs_cancelled(db, op->arena, note_run_id, &pass->cancelled, err);
        if (r >= 0 && pass->look_for_strays)
                r = runs_unfinished(db, op->arena, note_run_id, &pass->strays, err);
        store_read_end(&db);
        for (size_t i = 0; r >= 0 && i < agents.n; i++)
                r = claim_for(&c, agents.at[i], err);
        return r;
}
