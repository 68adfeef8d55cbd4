/* Provisional: ending runs that have not begun. */
#include "core/run.h"

#include "base/clock.h"

struct request {
        struct op *op;
        struct runtime *rt;
        const char *id;
        struct run *run;
};

int run_cancel_in(struct db *db, const struct op *op UNUSED, struct runtime *rt UNUSED,
                  struct run *run, const char *why, const char *code, struct err *err)
{
        const char *from = run->status;
        int r;

        if (run_is_terminal(run))
                return 0;
        run->status = RUN_CANCELLED;
        run->error = why;
        run->error_code = code;
        run->finished_at = run->updated_at = clock_now_us();
        r = runs_end(db, run, from, err);
        return r < 0 ? r : runs_drop(db, run->id, run->updated_at, err);
}

static int cancel(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = runs_get(db, q->id, q->op->arena, q->run, err);

        if (r >= 0)
                r = access_company(db, q->op->actor, q->run->company_id, true, err);
        return r < 0 ? r
                     : run_cancel_in(db, q->op, q->rt, q->run, "Cancelled by control plane",
                                     "cancelled", err);
}

int run_cancel(struct op *op, struct runtime *rt, const char *run_id, struct run *ret,
               struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = run_id, .run = ret };
        int r = access_board(op->actor, err);

        return r < 0 ? r : store_write(op, rt->store, cancel, &q, err);
}
