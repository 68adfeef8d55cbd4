/* From a claim to a running command. Each step is recorded before the next begins. An error that
 * may pass postpones the run (run_postpone.c); any other error ends it with the code of the failed
 * step, and gives up its lease. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/runs/run_internal.h"

/* The list of events names the command before it runs. */
static int add_invocation(struct db *db, struct run_task *t, struct err *err)
{
        int r = run_kept_put(db, t, run_key(t, false), err);

        if (r < 0 || !t->command.invocation)
                return r;
        return run_event_add(db, t->rt, &t->run, "adapter.invoke", "info", "adapter invocation",
                             json_incref(t->command.invocation), err);
}

static int note_command(struct run_task *t, struct err *err)
{
        t->run.session_id_before = t->command.session_id;
        t->run.log_ref = arena_printf(t->op->arena, "%s/%s/%s.ndjson", t->run.company_id,
                                      t->run.agent_id, t->run.id);
        return run_step(t, STEP_PREPARING, STEP_PREPARING, add_invocation, err);
}

static int build_command(struct run_task *t, struct err *err)
{
        return run_build(t, false, err);
}

/* A run that was cancelled while it was prepared begins nothing any more. */
static int still_wanted(struct run_task *t, struct err *err)
{
        if (run_is_terminal(&t->run))
                return err_set(err, ERR_CANCELLED, RUN_CANCELLED_TEXT);
        return op_check(t->op, err);
}

/* *ret_started: the command was handed over, and may run, even if a later step failed. */
static int prepare_and_start(struct run_task *t, bool *ret_started, struct err *err)
{
        static const struct {
                int (*fn)(struct run_task *t, struct err *err);
                bool in_place; /* a run that is a request has no place */
        } steps[] = {
                { run_select, true },       { run_acquire, true },    { run_stage, true },
                { run_assets, false },      { build_command, false }, { run_ready_session, false },
                { note_command, false },    { run_setup, false },     { run_ready_network, false },
                { run_ready_model, false },
        };
        bool has_place = run_needs_place(t);
        const char *id = NULL;
        int r = still_wanted(t, err);

        if (r < 0)
                return r;
        /* Only these steps write what the context says about the place. */
        json_object_del(t->context, "paperclipWorkspace");
        json_object_del(t->context, "paperclipEnvironment");
        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(steps); i++) {
                if (steps[i].in_place && !has_place)
                        continue;
                r = still_wanted(t, err);
                if (r >= 0)
                        r = steps[i].fn(t, err);
        }
        if (r >= 0)
                r = still_wanted(t, err);
        if (r < 0)
                return r;
        if (!t->command.is_http) {
                FAULT("run.start.before");
                r = run_start(t, run_key(t, false), &id, err);
                FAULT("run.start.after");
                if (r < 0)
                        return r;
                *ret_started = true;
        }
        t->run.execution_id = id;
        t->run.spawned_at = id ? clock_now_us() : 0; /* a request waits for its turn: run_http.c */
        t->run.waiting_reason = NULL;
        t->run.waiting_since = t->run.next_try_at = 0;
        return run_step(t, STEP_PREPARING, STEP_EXECUTING, NULL, err);
}

enum run_next run_prepare(struct op *op, struct runtime *rt, const char *id, struct run_result *ret)
{
        CLEAN(err_done) struct err err = { 0 }, why = { 0 };
        struct run_outcome outcome;
        struct run_task t;
        int64_t began_ms = clock_mono_ms();
        bool started = false;
        int r = run_task_load(op, rt, id, &t, &err);

        if (r < 0)
                return r == ERR_NOT_FOUND ? RUN_NEXT_DONE : RUN_NEXT_AGAIN;
        if (!streq(t.run.step, STEP_PREPARING))
                return RUN_NEXT_DONE;
        r = prepare_and_start(&t, &started, &err);
        FAULT("run.prepared");
        if (r >= 0 && t.command.is_http)
                return RUN_NEXT_HTTP;
        if (r >= 0) {
                memcpy(ret->execution, t.run.execution_id, UUID_LEN + 1);
                if (t.command.grace_ms > 0)
                        ret->grace_ms = t.command.grace_ms;
                return RUN_NEXT_WATCH;
        }
        if (run_task_refresh(&t, NULL) < 0)
                return RUN_NEXT_AGAIN;
        /* Cancelled although the run was not: the daemon is stopping, and the next daemon will find
         * the step. Any other error at that time is ignored. */
        if ((r == ERR_CANCELLED || op_check(t.op, NULL) == ERR_CANCELLED) &&
            !run_is_terminal(&t.run))
                return RUN_NEXT_DONE;
        /* Preparing again would start it again. Taking the run up finds it by its key. */
        if (started && !run_is_terminal(&t.run))
                return RUN_NEXT_AGAIN;
        if (!run_is_terminal(&t.run) && run_may_pass(&t, r, &err))
                return run_postpone(&t, STEP_PREPARING, clock_mono_ms() - began_ms, &err, ret);
        outcome = run_failure(&t, &err);
        if (run_conclude(&t, STEP_PREPARING, &outcome, &why) < 0) {
                log_warn("could not record how a run ended", LOG_S("run", id),
                         LOG_S("error", why.msg));
                return RUN_NEXT_AGAIN;
        }
        return run_release(&t);
}
