/* From the end of the command to the outcome: the channel is closed, the output read, the changes
 * brought home. All of it can be done again. */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/runs/run_internal.h"
#include "core/runs/run_log.h"
#include "core/runs/run_log_file.h"
#include "core/workspaces/workspace.h"

#define READ_CHUNK 65536

struct ending {
        struct run_task *t;
        struct execution execution;
        struct adapter_result result;
        struct run_outcome outcome;
        const char *log_error; /* why the log is incomplete; NULL: it is complete */
        bool fresh;            /* the second attempt, without a session */
        bool was_begun;        /* and an earlier daemon started it */
};

/* -- The log ----------------------------------------------------------------------------------- */

static int finish_log(struct ending *e, struct err *err)
{
        struct run_task *t = e->t;
        CLEAN(cleanup_free) char *out = NULL, *errors = NULL;
        char hex[65];
        struct run_log *log;
        int r = run_log_open(t->rt, &t->run, &log, err);

        if (r < 0)
                return r;
        do {
                r = run_log_pump(log, t->run.execution_id, true, err);
                if (r >= 0 && op_check(t->op, err) < 0)
                        r = ERR_CANCELLED;
        } while (r > 0);
        if (r >= 0 && e->execution.is_incomplete)
                r = run_log_incomplete(log,
                                       e->execution.reason ? e->execution.reason
                                                           : "what became of it is not known.",
                                       err);
        if (r >= 0)
                r = run_log_digest(log, hex, &e->outcome.log_bytes, err);
        if (r >= 0) {
                struct run_log_state state;

                e->outcome.log_sha256 = arena_strdup(t->op->arena, hex);
                run_log_state(log, &state);
                run_set_output(&t->run, &state);
                /* Appended only now, but the output was there before the end. */
                t->run.first_output_at = MIN(t->run.first_output_at, t->run.exited_at);
        }
        run_log_close(log);
        if (r >= 0)
                r = run_log_excerpts(t->rt, t->run.execution_id, &out, &errors, err);
        e->outcome.out = arena_strdup(t->op->arena, out);
        e->outcome.err = arena_strdup(t->op->arena, errors);
        return r;
}

/* -- The result -------------------------------------------------------------------------------- */

static int feed_output(struct ending *e, struct adapter_parser *p, bool is_stderr, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        CLEAN(cleanup_free) char *chunk = xcalloc(1, READ_CHUNK);
        ssize_t n = 0;
        int r = exec_open_output(e->t->rt, e->t->run.execution_id, is_stderr, &fd, err);

        if (r == ERR_NOT_FOUND) { /* it never wrote any */
                err_clear(err);
                return 0;
        }
        while (r >= 0 && (n = read(fd, chunk, READ_CHUNK)) > 0) {
                r = op_check(e->t->op, err);
                if (r >= 0)
                        adapter_parser_feed(p, is_stderr, chunk, (size_t)n);
        }
        return n < 0 ? err_sys(err, ERR_IO, errno, "read a run's output") : MIN(r, 0);
}

static int parse_output(struct ending *e, struct err *err)
{
        struct run_task *t = e->t;
        const struct execution *x = &e->execution;
        struct adapter_exit how = {
                .code = x->exit_code,
                .signal = arena_strdup(t->op->arena, signal_name((int)x->signal)),
                .timed_out = x->timed_out,
                .was_asked = t->end_asked_at != 0,
        };
        struct adapter_parser *p;
        int r = adapter_parser_new(t->rt, &t->input, &t->command, &p, err);

        if (r < 0)
                return r;
        r = feed_output(e, p, false, err);
        if (r >= 0)
                r = feed_output(e, p, true, err);
        if (r >= 0) {
                adapter_parser_finish(p, &how, t->op->arena, &e->result);
                e->outcome.adapter = &e->result;
        }
        adapter_parser_free(p);
        return r;
}

/* environment-runtime 5.6: timed out, else by the exit code (none counts as 0) and the message. */
static void judge_end(struct ending *e)
{
        struct run_task *t = e->t;
        const struct execution *x = &e->execution;
        const struct adapter_result *a = &e->result;
        struct run_outcome *o = &e->outcome;
        int signal = a->as_said ? 0 : (int)x->signal;

        o->is_incomplete = o->is_incomplete || x->is_incomplete;
        o->exit_code = a->exit_code;
        o->signal = arena_strdup(t->op->arena, signal_name(signal));
        o->timed_out = x->timed_out;
        o->error = a->error_message;
        if (a->as_said)
                o->result = run_keep(t->op->arena, json_pack("{s:b}", "terminalResultCleanup", 1));
        if (exec_lacked_room(x)) { /* however it ended: its last output is not known */
                o->status = RUN_FAILED;
                o->error_code = RUN_DISK_FULL_CODE;
                o->error = x->reason;
        } else if (x->timed_out) {
                o->status = RUN_TIMED_OUT;
                o->error_code = a->error_code ? a->error_code : "timeout";
                if (!o->error)
                        o->error = arena_printf(t->op->arena, "Timed out after %llds",
                                                (long long)(t->command.timeout_ms / 1000));
        } else if (!o->error && o->exit_code <= 0 && signal == 0) {
                o->status = RUN_SUCCEEDED;
        } else {
                o->status = RUN_FAILED;
                o->error_code = a->error_code ? a->error_code : RUN_FAILED_CODE;
                if (!o->error && x->is_incomplete && x->reason)
                        o->error = x->reason;
                else if (!o->error && signal)
                        o->error = arena_printf(t->op->arena, "Process ended by %s", o->signal);
                else if (!o->error)
                        o->error = arena_printf(t->op->arena, "Process exited with code %lld",
                                                (long long)o->exit_code);
        }
}

/* The log could not be written for as long as a command waits for room. */
static void judge_log(struct ending *e)
{
        struct run_outcome *o = &e->outcome;
        CLEAN(cleanup_free) char *dir = run_log_path(e->t->rt, "");

        o->is_incomplete = true;
        if (exec_lacked_room(&e->execution)) /* that is reported already */
                return;
        o->status = RUN_FAILED;
        o->error_code = RUN_DISK_FULL_CODE;
        o->error = arena_printf(e->t->op->arena,
                                "The run's log could not be written in %s: %s. Make room on that "
                                "disk, then run it again.",
                                dir, e->log_error);
}

/* The command is gone, and how it ended is unknown. */
static void judge_loss(struct ending *e)
{
        struct run_outcome *o = &e->outcome;

        o->status = RUN_FAILED;
        o->error_code = RUN_LOST_CODE;
        o->exit_code = -1;
        o->is_incomplete = e->execution.is_incomplete;
        o->is_lost = true;
        if (e->t->run.process_pid > 0)
                o->error = arena_printf(e->t->op->arena,
                                        "Process lost -- child pid %lld is no longer running",
                                        (long long)e->t->run.process_pid);
        else
                o->error = RUN_LOST_TEXT;
}

/* -- The workspace ----------------------------------------------------------------------------- */

/* Changes that cannot be brought home now are saved at the lease's end (docs/workspaces.md). */
static int restore_workspace(struct ending *e, struct err *err)
{
        struct run_task *t = e->t;
        struct restore_report report;
        struct workspace_row row;
        int r = workspace_get(t->op, t->rt, t->run.lease_id, &row, err);

        if (r == ERR_NOT_FOUND || (r >= 0 && streq(row.state, WORKSPACE_ENDED))) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        FAULT("run.restore.before");
        r = workspace_restore(t->op, t->rt, &t->record, NULL, &report, err);
        FAULT("run.restore.after");
        if (r >= 0)
                t->run.restored_at = clock_now_us();
        return r;
}

static int note_restore_failure(struct db *db, struct run_task *t, struct err *err)
{
        return run_event_add(db, t->rt, &t->run, "error", "error",
                             "What the run changed could not be brought home; it is saved.",
                             json_pack("{s:s}", "leaseId", t->run.lease_id), err);
}

static int bring_home(struct ending *e, struct err *err)
{
        struct run_task *t = e->t;
        int r;

        if (!t->record.lease.id || !streq(t->record.lease.status, LEASE_ACTIVE) ||
            kind_runs_on_host(t->rt, t->record.env.driver))
                return 0;
        r = restore_workspace(e, err);
        if (r >= 0 || r == ERR_CANCELLED)
                return r;
        if (streq(e->outcome.status, RUN_SUCCEEDED)) {
                e->outcome.status = RUN_FAILED;
                e->outcome.error_code = "workspace_restore_failed";
                e->outcome.error =
                        arena_printf(t->op->arena, "Failed to restore workspace: %s", err->msg);
        }
        err_clear(err);
        return run_step(t, STEP_FINISHING, STEP_FINISHING, note_restore_failure, err);
}

/* -- Once more without a session --------------------------------------------------------------- */

static int keep_fresh(struct db *db, struct run_task *t, struct err *err)
{
        return run_kept_put(db, t, run_key(t, true), err);
}

static int start_fresh(struct run_task *t, const char **ret_id, struct err *err)
{
        int r = run_build(t, true, err);

        if (r >= 0)
                r = run_ready_session(t, err);
        if (r >= 0)
                r = run_step(t, STEP_FINISHING, STEP_FINISHING, keep_fresh, err);
        FAULT("run.fresh.before");
        if (r >= 0)
                r = run_start(t, run_key(t, true), ret_id, err);
        FAULT("run.fresh.after");
        return r;
}

/* 1: it is started once more. A command that was started before a crash stays as it is, and so does
 * the record of it. An agent of another kind by now cannot go on with the work that the earlier
 * kind began. */
static int try_fresh(struct ending *e, struct err *err)
{
        struct run_task *t = e->t;
        struct execution found;
        int r;

        if (!e->result.unknown_session || !t->command.session_id || e->fresh ||
            run_is_terminal(&t->run))
                return 0;
        r = run_task_execution(t, run_key(t, true), &found, err);
        e->was_begun = r >= 0;
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                if (!streq(t->input.type, t->agent.adapter_type))
                        return 0;
                r = start_fresh(t, &found.id, err);
        }
        if (r < 0)
                return r;
        t->run.execution_id = found.id;
        r = run_step(t, STEP_FINISHING, STEP_EXECUTING, NULL, err);
        return r < 0 ? r : 1;
}

/* -- The job ----------------------------------------------------------------------------------- */

/* 1: it is started once more. */
static int find_outcome(struct ending *e, struct err *err)
{
        const struct execution *x = &e->execution;
        int r = run_task_lease(e->t, err);

        if (r == ERR_NOT_FOUND)
                err_clear(err);
        else if (r < 0)
                return r;
        /* The command as it was built for this run: needed to read its output. */
        r = run_rebuild(e->t, x->idempotency_key, err);
        if (r >= 0)
                r = run_note_steps(e->t, err);
        if (r < 0)
                return r;
        if ((streq(x->status, EXEC_LOST) && !e->t->end_asked_at) || exec_never_began(x)) {
                judge_loss(e);
                return 0;
        }
        if (streq(x->status, EXEC_FAILED)) {
                e->outcome.status = RUN_FAILED;
                e->outcome.error_code = RUN_FAILED_CODE;
                e->outcome.exit_code = x->exit_code;
                e->outcome.error = x->reason ? x->reason : "The command could not be started.";
                return 0;
        }
        r = parse_output(e, err);
        if (r >= 0)
                r = try_fresh(e, err);
        if (r != 0)
                return r;
        judge_end(e);
        return 0;
}

static int finish_command(struct ending *e, struct err *err)
{
        struct run_task *t = e->t;
        int r = 0;

        if (streq(t->run.step, STEP_EXECUTING)) {
                t->run.exited_at = clock_now_us();
                r = run_step(t, STEP_EXECUTING, STEP_FINISHING, NULL, err);
        }
        FAULT("run.finish.exit");
        e->fresh = e->execution.idempotency_key &&
                   streq(e->execution.idempotency_key, run_key(t, true));
        /* The command may be started once more, and needs the channel then: a closed channel does
         * not open again, and its gateway would end while a command uses it. */
        if (!t->run.session_id_before || e->fresh || run_is_terminal(&t->run))
                callback_close(t->rt, t->run.id);
        if (r >= 0)
                r = finish_log(e, err);
        if (r == ERR_IO &&
            clock_now_us() - t->run.exited_at > t->rt->settings.output_wait_ms * US_PER_MS) {
                e->log_error = arena_strdup(t->op->arena, err->msg);
                err_clear(err);
                r = 0;
        }
        if (r >= 0)
                r = find_outcome(e, err);
        if (r != 0)
                return r;
        if (e->log_error)
                judge_log(e);
        callback_close(t->rt, t->run.id);
        if (t->record.lease.id && streq(t->record.lease.status, LEASE_ACTIVE))
                run_session_save(t, e->result.session_id);
        r = run_teardown(t, err);
        if (r >= 0)
                r = bring_home(e, err);
        return r < 0 ? r : run_publish(t, err);
}

/* The execution's record is gone, with its lease when the environment was deleted, or because it is
 * too old. Nothing of it can be read any more. */
static enum run_next finish_without_record(struct ending *e)
{
        struct run_task *t = e->t;
        CLEAN(err_done) struct err err = { 0 };

        judge_loss(e);
        e->outcome.is_lost = false; /* the place that it ran in is gone */
        callback_close(t->rt, t->run.id);
        if (run_conclude(t, t->run.step, &e->outcome, &err) >= 0)
                return run_release(t);
        log_warn("could not record the loss of a run", LOG_S("run", t->run.id),
                 LOG_S("error", err.msg));
        return RUN_NEXT_AGAIN;
}

static enum run_next finish_later(const char *id, const struct err *err)
{
        if (err->code != ERR_CANCELLED)
                log_warn("could not finish a run; it will be tried again", LOG_S("run", id),
                         LOG_S("error", err->msg));
        return RUN_NEXT_AGAIN;
}

/* The command was recorded, and never began: the run is where it was before. This does not hold for
 * the second attempt, because there was a first. */
static enum run_next begin_again(struct ending *e, struct run_result *ret)
{
        CLEAN(err_done) struct err why = { 0 }, err = { 0 };
        struct run_task *t = e->t;

        if (t->run.lease_id && run_task_lease(t, &err) < 0)
                t->record = (struct lease_record){ 0 };
        (void)err_set(&why, ERR_BUSY, "%s", e->execution.reason);
        return run_postpone(t, t->run.step, 0, &why, ret);
}

enum run_next run_finish(struct op *op, struct runtime *rt, const char *id, struct run_result *ret)
{
        CLEAN(err_done) struct err err = { 0 };
        struct run_task t;
        struct ending e = { .t = &t };
        int r = run_task_load(op, rt, id, &t, &err);

        if (r == ERR_NOT_FOUND)
                return RUN_NEXT_DONE;
        if (r >= 0) {
                r = run_task_execution(&t, NULL, &e.execution, &err);
                if (r == ERR_NOT_FOUND)
                        return finish_without_record(&e);
        }
        if (r < 0)
                return finish_later(id, &err);
        if (streq(e.execution.status, EXEC_STARTING) || streq(e.execution.status, EXEC_RUNNING)) {
                memcpy(ret->execution, t.run.execution_id, UUID_LEN + 1);
                return RUN_NEXT_WATCH;
        }
        if (exec_never_began(&e.execution) && !run_is_terminal(&t.run) &&
            streq(e.execution.idempotency_key, run_key(&t, false)))
                return begin_again(&e, ret);
        r = finish_command(&e, &err);
        if (r == ERR_CANCELLED || r == ERR_IO || r == ERR_CONFLICT || r == ERR_BUSY)
                return finish_later(id, &err);
        if (r == 1) {
                if (run_is_terminal(&t.run)) /* cancelled meanwhile: the host has to be told */
                        run_host_kick(rt->runs);
                if (e.was_begun)
                        return run_go_on(&t, ret);
                memcpy(ret->execution, t.run.execution_id, UUID_LEN + 1);
                return RUN_NEXT_WATCH;
        }
        if (r < 0)
                e.outcome = run_failure(&t, &err);
        err_clear(&err);
        r = run_conclude(&t, STEP_FINISHING, &e.outcome, &err);
        return r < 0 ? finish_later(id, &err) : run_release(&t);
}
