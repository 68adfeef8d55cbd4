/* Taking up a run that no job works on, by its step: after a restart of the daemon, when a job
 * could not be done, and when the pause of a waiting run is over. A recorded command goes on; a run
 * without one is prepared again. A request that was announced may have arrived, so it is not made
 * again; a request that waited for its turn is made. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/runs/run_internal.h"

#define LOST_REQUEST_TEXT                                                                          \
        "Process lost -- the request was being made when the server stopped; it may have arrived " \
        "and is not made again"

#define GIVEN_UP_TEXT                                                                              \
        "Process lost -- its end could not be read or recorded, although it was tried many times"

static int run_adopt_in(struct db *db, void *arg, struct err *err)
{
        struct run_task *t = arg;

        db_keep(db, &t->run, sizeof(t->run));
        int r = runs_adopt(db, t->run.id, t->run.owner, t->rt->node.instance.s, clock_now_us(),
                           err);

        return r < 0 ? r : runs_get(db, t->run.id, t->op->arena, &t->run, err);
}

/* The callback goes on where it was. A channel that cannot be opened is no reason to end the
 * command: it may not need it. */
static void open_callback(struct run_task *t)
{
        CLEAN(err_done) struct err err = { 0 };
        struct callback_address *address = arena_new(t->op->arena, struct callback_address);

        if (run_task_lease(t, &err) < 0 || run_is_terminal(&t->run))
                return;
        if (callback_open(t->op, t->rt, &t->run, &t->record, address, &err) < 0)
                log_warn("the callback channel of a run could not be taken up",
                         LOG_S("run", t->run.id), LOG_S("error", err.msg));
        explicit_bzero(address->key, sizeof(address->key));
}

/* The command's input was in the memory of the daemon that started it. The box knows how much of it
 * the command has by now, and takes the rest. */
static void keep_input(struct run_task *t, struct run_result *ret)
{
        CLEAN(err_done) struct err err = { 0 };
        struct execution row;

        if (!t->kind || run_task_execution(t, NULL, &row, &err) < 0 ||
            run_rebuild(t, row.idempotency_key, &err) < 0)
                return;
        if (t->command.grace_ms > 0)
                ret->grace_ms = t->command.grace_ms;
        if (!t->command.stdin_text)
                return;
        ret->input = xcalloc(1, t->command.stdin_len + 1);
        ret->input_len = t->command.stdin_len;
        memcpy(ret->input, t->command.stdin_text, ret->input_len);
}

enum run_next run_go_on(struct run_task *t, struct run_result *ret)
{
        open_callback(t);
        keep_input(t, ret);
        memcpy(ret->execution, t->run.execution_id, UUID_LEN + 1);
        return RUN_NEXT_WATCH;
}

/* The run cannot go on: record it as lost. */
static enum run_next run_lose(struct run_task *t, const char *why)
{
        CLEAN(err_done) struct err err = { 0 };
        struct run_outcome outcome = {
                .status = RUN_FAILED,
                .error = why,
                .error_code = RUN_LOST_CODE,
                .exit_code = -1,
        };

        if (run_conclude(t, t->run.step, &outcome, &err) < 0) {
                log_warn("could not record the loss of a run", LOG_S("run", t->run.id),
                         LOG_S("error", err.msg));
                return RUN_NEXT_AGAIN;
        }
        return run_release(t);
}

static enum run_next recover_preparing(struct run_task *t, struct run_result *ret)
{
        CLEAN(err_done) struct err err = { 0 };
        struct execution row;
        int r = t->run.lease_id ? run_task_execution(t, run_key(t, false), &row, &err)
                                : ERR_NOT_FOUND;

        if (r == ERR_NOT_FOUND || (r >= 0 && streq(row.status, EXEC_FAILED)))
                return RUN_NEXT_PREPARE; /* nothing ran */
        if (r < 0)
                return RUN_NEXT_AGAIN;
        t->run.execution_id = row.id;
        t->run.spawned_at = row.started_at ? row.started_at : row.created_at;
        t->run.waiting_reason = NULL;
        t->run.waiting_since = t->run.next_try_at = 0;
        if (run_step(t, STEP_PREPARING, STEP_EXECUTING, NULL, &err) < 0)
                return RUN_NEXT_AGAIN;
        return run_go_on(t, ret);
}

/* Load the run and make this instance its owner. */
static int take_up(struct op *op, struct runtime *rt, const char *id, struct run_task *t)
{
        CLEAN(err_done) struct err err = { 0 };
        int r = run_task_load(op, rt, id, t, &err);

        if (r == ERR_NOT_FOUND)
                return r;
        FAULT("run.adopt.before");
        if (r >= 0)
                r = store_write(op, rt->store, run_adopt_in, t, &err);
        FAULT("run.adopt.after");
        if (r < 0)
                log_warn("could not take up a run", LOG_S("run", id), LOG_S("error", err.msg));
        return r;
}

enum run_next run_recover(struct op *op, struct runtime *rt, const char *id, struct run_result *ret)
{
        struct run_task t;
        int r = take_up(op, rt, id, &t);

        if (r < 0)
                return r == ERR_NOT_FOUND ? RUN_NEXT_DONE : RUN_NEXT_AGAIN;
        if (streq(t.run.step, STEP_PREPARING))
                return recover_preparing(&t, ret);
        if (streq(t.run.step, STEP_EXECUTING) && !t.run.execution_id)
                return t.run.spawned_at ? run_lose(&t, LOST_REQUEST_TEXT) : RUN_NEXT_HTTP;
        if (streq(t.run.step, STEP_EXECUTING))
                return run_go_on(&t, ret);
        if (streq(t.run.step, STEP_FINISHING))
                return RUN_NEXT_FINISH;
        return streq(t.run.step, STEP_RELEASING) ? run_release(&t) : RUN_NEXT_DONE;
}

enum run_next run_give_up(struct op *op, struct runtime *rt, const char *id, struct run_result *ret)
{
        struct run_task t;
        int r = take_up(op, rt, id, &t);

        /* A run that never began is not lost. */
        if (r < 0 || streq(t.run.step, STEP_PREPARING) || streq(t.run.step, STEP_RELEASING) ||
            streq(t.run.step, STEP_DONE))
                return RUN_NEXT_AGAIN;
        log_error("a run is given up: what is left of it could not be done", LOG_S("run", id),
                  LOG_S("step", t.run.step));
        callback_close(rt, id);
        return run_lose(&t, GIVEN_UP_TEXT);
}
