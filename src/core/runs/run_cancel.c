/* Ending runs from outside. A run that has not begun is over at once. A running one is terminal at
 * once; the host finds it by `cancel_requested_at` and looks after its command, its changes and its
 * leases. Until its command is gone it keeps its issue and counts among the runs of its agent
 * (RUN_HOLDS). */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/runs/run_internal.h"
#include "core/runs/run_wake.h"

int run_cancel_in(struct db *db, const struct op *op, struct runtime *rt, struct run *run,
                  const char *why, const char *code, struct err *err)
{
        const char *from = run->status;
        int64_t now = clock_now_us();
        int r;

        if (run_is_terminal(run))
                return 0;
        run->status = RUN_CANCELLED;
        run->error = why;
        run->error_code = code;
        run->result_json = "{\"stopReason\":\"cancelled\"}";
        run->finished_at = run->updated_at = now;
        r = runs_end(db, run, from, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "The run was changed by someone else.");
        if (r >= 0 && streq(from, RUN_RUNNING))
                r = runs_request_cancel(db, run->id, now, err);
        if (r >= 0)
                r = run_note_end(db, rt, run, err);
        if (r >= 0 && !streq(from, RUN_RUNNING)) /* else once its command has ended */
                r = run_wake_promote_in(db, op, rt, run, NULL, err);
        return r;
}

struct request {
        struct op *op;
        struct runtime *rt;
        const char *id;
        struct run *run;
};

static int cancel(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = runs_get(db, q->id, q->op->arena, q->run, err);

        if (r >= 0)
                r = access_company(db, q->op->actor, q->run->company_id, true, err);
        if (r < 0 || run_is_terminal(q->run))
                return r;
        r = run_cancel_in(db, q->op, q->rt, q->run, RUN_CANCELLED_TEXT, RUN_CANCELLED_CODE, err);
        if (r >= 0)
                r = audit(db, q->op, q->run->company_id, "heartbeat.cancelled", "heartbeat_run",
                          q->run->id, json_pack("{s:s}", "agentId", q->run->agent_id), err);
        return r < 0 ? r : runs_get(db, q->id, q->op->arena, q->run, err);
}

int run_cancel(struct op *op, struct runtime *rt, const char *run_id, struct run *ret,
               struct err *err)
{
        struct request q = { op, rt, run_id, ret };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        FAULT("run.cancel.before");
        r = store_write(op, rt->store, cancel, &q, err);
        FAULT("run.cancel.after");
        if (r >= 0)
                run_host_kick(rt->runs);
        return r;
}

/* -- All runs of an agent ---------------------------------------------------------------------- */

int run_cancel_agent(struct db *db, const struct op *op, struct runtime *rt, const char *agent_id,
                     const char *why, struct err *err)
{
        struct run_rows rows = { .arena = op->arena };
        int r = runs_live_of(db, agent_id, op->arena, run_rows_add, &rows, err);

        for (size_t i = 0; r >= 0 && i < rows.n; i++)
                r = run_cancel_in(db, op, rt, &rows.at[i], why, RUN_CANCELLED_CODE, err);
        return r;
}
