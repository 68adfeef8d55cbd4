/* Records how a run ended: one transaction for everything that follows from it. Then releases its
 * leases. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/access/audit.h"
#include "core/issues/rules/issue_rules.h"
#include "core/runs/run_internal.h"
#include "core/runs/run_state.h"
#include "core/runs/run_wake.h"
#include "store/agent_state.h"
#include "store/run_commands.h"

/* -- Events ------------------------------------------------------------------------------------ */

/* What a terminal status is called elsewhere. */
struct end_words {
        const char *status, *event, *wakeup, *stop_reason;
};

static const struct end_words *end_words(const struct run *run)
{
        static const struct end_words all[] = {
                { RUN_SUCCEEDED, "run succeeded", "completed", "completed" },
                { RUN_CANCELLED, "run cancelled", "cancelled", "cancelled" },
                { RUN_TIMED_OUT, "run timed out", "failed", "timeout" },
                { RUN_FAILED, "run failed", "failed", RUN_FAILED_CODE },
        };
        size_t i = 0;

        while (i + 1 < ARRAY_LEN(all) && !streq(all[i].status, run->status))
                i++;
        return &all[i];
}

int run_note_end(struct db *db, struct runtime *rt, const struct run *run, struct err *err)
{
        bool ok = streq(run->status, RUN_SUCCEEDED) || streq(run->status, RUN_CANCELLED);
        json_t *payload = json_pack("{s:s, s:s?, s:s?}", "status", run->status, "error", run->error,
                                    "errorCode", run->error_code);
        int r = runs_drop(db, run->id, run->updated_at, err);

        json_object_set_new(payload, "exitCode",
                            run->exit_code >= 0 ? json_integer(run->exit_code) : json_null());
        if (r >= 0)
                r = runs_note_wakeup(db, run->wakeup_request_id, end_words(run)->wakeup, run->error,
                                     run->updated_at, err);
        if (r < 0) {
                json_decref(payload);
                return r;
        }
        run_announce_status(db, run);
        return run_event_add(db, rt, run, "lifecycle", ok ? "info" : "error", end_words(run)->event,
                             payload, err);
}

/* Inside a transaction: remove the run's locks on its issue. Only once its command is over: no
 * other run may begin beside it. */
static int run_free_issue(struct db *db, const struct op *op, const struct run *run,
                          struct err *err)
{
        struct issue issue, seen;
        int r;

        if (!run->issue_id)
                return 0;
        r = issues_get(db, run->issue_id, op->arena, &issue, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        seen = issue;
        if (issue.checkout_run_id && streq(issue.checkout_run_id, run->id))
                issue.checkout_run_id = NULL;
        if (issue.execution_run_id && streq(issue.execution_run_id, run->id)) {
                issue.execution_run_id = NULL;
                issue.execution_locked_at = 0;
        }
        if (issue.checkout_run_id == seen.checkout_run_id &&
            issue.execution_run_id == seen.execution_run_id)
                return 0;
        issue.updated_at = clock_now_us();
        return issues_update(db, &issue, &seen, err);
}

/* -- The documents of the row ------------------------------------------------------------------ */

/* What the adapter knows about a failure: its family, whether and when to try again, where to log
 * in. */
static void add_failure(json_t *result, const struct adapter_result *a)
{
        char at[ISO_TIME_LEN + 1];

        if (a->error_family)
                json_object_set_new(result, "errorFamily", json_string(a->error_family));
        if (a->error_meta)
                json_object_set(result, "errorMeta", a->error_meta);
        if (a->retry_not_before) {
                clock_iso(a->retry_not_before, at);
                json_object_set_new(result, "retryNotBefore", json_string(at));
        }
}

/* Why the run stopped, and the limit that it had. */
static void add_stop(json_t *result, const struct run *run, bool timed_out, bool configured,
                     int64_t timeout_ms)
{
        bool lost = run->error_code && streq(run->error_code, RUN_LOST_CODE);
        const char *reason = lost ? RUN_LOST_CODE : end_words(run)->stop_reason;

        json_object_set_new(result, "stopReason", json_string(reason));
        json_object_set_new(result, "timeoutFired", json_boolean(timed_out));
        json_object_set_new(result, "timeoutSource",
                            json_string(configured ? "config" : "default"));
        json_object_set_new(result, "timeoutConfigured", json_boolean(configured));
        json_object_set_new(result, "effectiveTimeoutSec", json_integer(timeout_ms / 1000));
}

static const char *result_json(struct run_task *t, const struct run *run,
                               const struct run_outcome *o)
{
        json_t *result = json_object();
        const struct adapter_command *c = &t->command;
        bool configured = c->timeout_source && streq(c->timeout_source, "configured");
        const char *text;

        if (o->adapter && o->adapter->result_json)
                json_object_update(result, o->adapter->result_json);
        if (o->adapter && o->adapter->summary)
                json_object_set_new(result, "summary", json_string(o->adapter->summary));
        if (o->adapter)
                add_failure(result, o->adapter);
        if (o->result)
                json_object_update(result, o->result);
        add_stop(result, run, o->timed_out, configured, c->timeout_ms);
        text = json_to_arena(t->op->arena, result);
        json_decref(result);
        return text;
}

static const char *usage_json(struct run_task *t, const struct adapter_result *a)
{
        json_t *usage;
        const char *text;

        if (!a || (!a->has_usage && !a->has_cost))
                return NULL;
        usage = json_pack("{s:I, s:I, s:I, s:s?, s:s?, s:s?, s:s?}", "inputTokens",
                          (json_int_t)a->input_tokens, "outputTokens", (json_int_t)a->output_tokens,
                          "cachedInputTokens", (json_int_t)a->cached_input_tokens, "provider",
                          a->provider, "biller", a->biller, "model", a->model, "billingType",
                          a->billing_type);
        if (a->has_cost)
                json_object_set_new(usage, "costUsd", json_real(a->cost_usd));
        text = json_to_arena(t->op->arena, usage);
        json_decref(usage);
        return text;
}

/* -- What is remembered of the agent ----------------------------------------------------------- */

static int remember_session(struct db *db, struct run_task *t, const struct run *run,
                            const struct run_outcome *o, struct err *err)
{
        const struct adapter_result *a = o->adapter;
        const char *params =
                a && a->session_params ? json_to_arena(t->op->arena, a->session_params) : NULL;
        bool clear = a && a->clear_session;
        const char *type = t->input.type ? t->input.type : t->agent.adapter_type;
        struct agent_runtime_state state = {
                .agent_id = run->agent_id,
                .company_id = run->company_id,
                .adapter_type = type,
                .session_id = params ? a->session_id : NULL,
                .session_display_id = params ? a->session_display_id : NULL,
                .session_params_json = params,
                .last_run_id = run->id,
                .last_run_status = run->status,
                .last_error = run->error,
                .total_input_tokens = a ? a->input_tokens : 0,
                .total_output_tokens = a ? a->output_tokens : 0,
                .total_cached_input_tokens = a ? a->cached_input_tokens : 0,
                .total_cost_cents = a && a->has_cost ? (int64_t)(a->cost_usd * 100 + 0.5) : 0,
                .updated_at = run->updated_at,
        };
        struct agent_task_session task = {
                .agent_id = run->agent_id,
                .task_key = run->task_key,
                .adapter_type = type,
                .session_params_json = params,
                .session_display_id = state.session_display_id,
                .last_run_id = run->id,
                .last_error = run->error,
                .updated_at = run->updated_at,
        };
        int r = agent_runtime_state_add(db, &state, clear, err);

        if (r >= 0 && run->task_key && (params || clear))
                r = agent_task_session_put(db, &task, err);
        return r;
}

static int settle_agent(struct db *db, struct run_task *t, const struct run *run, struct err *err)
{
        bool bad = streq(run->status, RUN_FAILED) || streq(run->status, RUN_TIMED_OUT);
        const char *status = bad ? "error" : "idle";
        int64_t running;
        int r = runs_count_running(db, run->agent_id, &running, err);

        if (r < 0)
                return r;
        if (running > 0)
                status = "running";
        r = agents_note_run(db, run->agent_id, status, run->finished_at, run->updated_at, err);
        if (r > 0)
                run_announce_agent(db, run, status);
        return r;
}

/* -- Once more --------------------------------------------------------------------------------- */

#define TRIES_DEFAULT 3
#define TRIES_MAX     20
#define RETRY_MAX_S   (INT64_C(8) * 24 * 3600)

/* Another run for the same work. */
struct again {
        const char *reason; /* NULL: none */
        int64_t at;         /* 0: at once */
        bool is_exhausted;  /* none, because it was tried often enough */
};

/* A run whose command was lost through no fault of its own is tried once more, at once. One whose
 * adapter says that its failure may pass (adapter_run.h) is tried again `adapterConfig.maxRetries`
 * times: at the time that the service names, else each time after twice the pause. */
static struct again plan_again(const struct run_task *t, const struct run *run,
                               const struct run_outcome *o)
{
        const struct adapter_result *a = o->adapter;
        const json_t *given = json_object_get(t->config, "maxRetries");
        int64_t tries =
                json_is_integer(given) ? MIN(json_integer_value(given), TRIES_MAX) : TRIES_DEFAULT;
        int64_t now = clock_wall_us(), pause;

        if (!streq(run->status, RUN_FAILED) || !run_agent_is_invokable(&t->agent))
                return (struct again){ 0 };
        if (o->is_lost)
                return (struct again){ run->process_loss_retry_count < 1 ? "process_lost_retry"
                                                                         : NULL };
        if (!a || !a->retry_not_before)
                return (struct again){ 0 };
        if (run->scheduled_retry_attempt >= tries)
                return (struct again){ .is_exhausted = run->scheduled_retry_attempt > 0 };
        pause = MAX(a->retry_not_before - now, 0);
        if (!a->retry_named)
                pause <<= run->scheduled_retry_attempt;
        if (pause > RETRY_MAX_S * US_PER_S)
                return (struct again){ 0 };
        return (struct again){ "transient_failure_retry", now + pause, false };
}

static const char *again_text(struct arena *arena, const char *error, const struct again *again)
{
        char at[ISO_TIME_LEN + 1];

        if (!again->at)
                return arena_printf(arena, "%s; retrying once", error);
        clock_iso(again->at, at);
        return arena_printf(arena, "%s; trying again at %s", error, at);
}

static int queue_again(struct db *db, struct run_task *t, const struct run *run,
                       const struct again *why, struct err *err)
{
        json_t *context = json_deep_copy(t->context);
        struct run again = {
                .id = arena_strdup(t->op->arena, uuid_new_run().s),
                .company_id = run->company_id,
                .agent_id = run->agent_id,
                .invocation_source = "automation",
                .trigger_detail = "system",
                .status = why->at ? RUN_SCHEDULED_RETRY : RUN_QUEUED,
                .step = STEP_QUEUED,
                .exit_code = -1,
                .retry_of_run_id = run->id,
                .process_loss_retry_count = run->process_loss_retry_count + !why->at,
                .scheduled_retry_at = why->at,
                .scheduled_retry_attempt = run->scheduled_retry_attempt + !!why->at,
                .scheduled_retry_reason = why->at ? why->reason : NULL,
                .issue_id = run->issue_id,
                .task_key = run->task_key,
                .continuation_attempt = run->continuation_attempt,
                .created_at = clock_now_us(),
        };
        int r;

        json_object_del(context, "paperclipEnvironment");
        json_object_del(context, "paperclipWorkspace");
        json_object_set_new(context, "retryOfRunId", json_string(run->id));
        json_object_set_new(context, "wakeReason", json_string(why->reason));
        again.context_snapshot = json_to_arena(t->op->arena, context);
        again.updated_at = again.created_at;
        json_decref(context);
        r = runs_insert(db, &again, err);
        run_announce_queued(db, &again);
        if (r >= 0)
                r = run_event_add(db, t->rt, run, "lifecycle", "warn",
                                  why->at ? "run is tried again later" : "run is tried once more",
                                  json_pack("{s:s}", "retryRunId", again.id), err);
        return r;
}

/* -- The transaction --------------------------------------------------------------------------- */

struct conclusion {
        struct run_task *t;
        const char *from;
        const struct run_outcome *o;
        bool kick;
        struct again again;
};

static void fill_outcome(struct conclusion *q, struct run *row, bool was_over)
{
        const struct run_outcome *o = q->o;
        struct arena *a = q->t->op->arena;

        if (!was_over) {
                row->status = o->status;
                row->error = o->error;
                row->error_code = o->error_code;
                row->finished_at = clock_now_us();
        }
        row->signal = o->signal;
        row->exit_code = o->exit_code;
        row->usage_json = usage_json(q->t, o->adapter);
        row->session_id_after = o->adapter ? o->adapter->session_id : NULL;
        row->log_sha256 = o->log_sha256;
        row->log_bytes = o->log_bytes ? o->log_bytes : row->log_bytes;
        row->stdout_excerpt = o->out;
        row->stderr_excerpt = o->err;
        row->is_incomplete = o->is_incomplete;
        row->updated_at = clock_now_us();
        q->again = (struct again){ 0 };
        if (!was_over)
                q->again = plan_again(q->t, row, o);
        if (q->again.reason)
                row->error = again_text(a, row->error, &q->again);
        if (q->again.is_exhausted)
                row->retry_exhausted_reason =
                        arena_printf(a, "Bounded retry exhausted after %lld scheduled attempts",
                                     (long long)row->scheduled_retry_attempt);
        row->result_json = result_json(q->t, row, o);
}

static int conclude_in(struct db *db, void *arg, struct err *err)
{
        struct conclusion *q = arg;
        struct run_task *t = q->t;
        struct run row;
        const char *before;
        bool was_over;
        int r = runs_get(db, t->run.id, t->op->arena, &row, err);

        if (r < 0)
                return r;
        if (!streq(row.step, q->from))
                return err_set(err, ERR_CONFLICT, "Somebody else works on the run.");
        before = row.status;
        was_over = run_is_terminal(&row);
        /* The rest of the row is for every reader, the step for the engine. */
        row.context_snapshot = json_to_arena(t->op->arena, t->context);
        row.exited_at = t->run.exited_at;
        row.restored_at = t->run.restored_at;
        row.owner = t->rt->node.instance.s;
        row.waiting_reason = NULL;
        row.waiting_since = row.next_try_at = 0;
        row.prepare_failures = t->run.prepare_failures;
        row.waited_ms = t->run.waited_ms;
        fill_outcome(q, &row, was_over);
        r = run_transition_check(q->from, STEP_RELEASING, err);
        if (r >= 0 && !was_over)
                r = run_judge_liveness(db, t->op, &row, q->o->adapter && q->o->adapter->summary,
                                       err);
        if (r >= 0)
                r = runs_end(db, &row, before, err);
        if (r >= 0)
                r = runs_step(db, &row, q->from, STEP_RELEASING, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "Somebody else works on the run.");
        if (r >= 0 && t->run.last_output_at)
                r = runs_note_output(db, &t->run, err);
        if (r >= 0)
                r = remember_session(db, t, &row, q->o, err);
        if (r >= 0 && !was_over)
                r = run_note_end(db, t->rt, &row, err);
        if (r >= 0)
                r = run_free_issue(db, t->op, &row, err);
        if (r >= 0 && q->again.reason) {
                r = queue_again(db, t, &row, &q->again, err);
                q->kick = true;
        }
        if (r >= 0)
                r = run_wake_promote_in(db, t->op, t->rt, &row, &q->kick, err);
        if (r >= 0 && !was_over && !q->again.reason)
                r = run_follow(db, t, &row, &q->kick, err);
        if (r >= 0)
                r = settle_agent(db, t, &row, err);
        return r < 0 ? r : runs_get(db, row.id, t->op->arena, &t->run, err);
}

int run_conclude(struct run_task *t, const char *from, const struct run_outcome *outcome,
                 struct err *err)
{
        struct conclusion q = { .t = t, .from = from, .o = outcome };
        struct op op = run_note_op(t);
        int r;

        FAULT("run.conclude.before");
        r = store_write(&op, t->rt->store, conclude_in, &q, err);
        FAULT("run.conclude.after");
        if (r >= 0 && q.kick)
                run_host_kick(t->rt->runs);
        return r;
}

struct run_outcome run_failure(const struct run_task *t, const struct err *cause)
{
        return (struct run_outcome){
                .status = RUN_FAILED,
                .error = arena_strdup(t->op->arena, cause->msg),
                .error_code = t->failure_code ? t->failure_code : RUN_FAILED_CODE,
                .exit_code = -1,
        };
}

/* -- Giving up what it had --------------------------------------------------------------------- */

static int ignore_lease(void *ctx, const struct lease_record *record)
{
        return 0;
}

static int forget_commands(struct db *db, struct run_task *t, struct err *err)
{
        return run_commands_delete(db, t->run.id, err);
}

enum run_next run_release(struct run_task *t)
{
        CLEAN(err_done) struct err err = { 0 };
        bool bad = streq(t->run.status, RUN_FAILED) || streq(t->run.status, RUN_TIMED_OUT);
        struct op op = *t->op;
        int r;

        if (op_check(t->op, NULL) < 0) /* the job was cancelled with the run: another job goes on */
                return RUN_NEXT_AGAIN;
        callback_settle(t->op, t->rt, t->run.id);
        op.actor = &actor_system;
        FAULT("run.release.before");
        r = lease_release_run(&op, t->rt, t->run.id, bad ? LEASE_FAILED : LEASE_RELEASED,
                              ignore_lease, NULL, &err);
        FAULT("run.release.after");
        /* A lease has ended even if its place cannot be given up; the sweeper goes on with the
         * place. A lease that has not ended is still the run's. */
        if (r < 0)
                log_warn("could not release the leases of a run", LOG_S("run", t->run.id),
                         LOG_S("error", err.msg));
        if (r == ERR_CANCELLED || r == ERR_IO)
                return RUN_NEXT_AGAIN;
        err_clear(&err);
        t->run.released_at = clock_now_us();
        r = run_step(t, STEP_RELEASING, STEP_DONE, forget_commands, &err);
        FAULT("run.done");
        if (r < 0 && r != ERR_CONFLICT)
                return RUN_NEXT_AGAIN;
        return RUN_NEXT_DONE;
}

/* -- Ending runs from outside ------------------------------------------------------------------ */

/* What is known of a cancelled run's limit before its command has ended: what its agent asks for.
 */
static int cancelled_result(struct db *db, const struct op *op, struct run *run, struct err *err)
{
        CLEAN(json_decrefp) json_t *result = json_object();
        const json_t *config, *seconds, *ms;
        bool configured;
        struct agent g;
        int r = agents_get(db, run->agent_id, op->arena, &g, err);

        if (r < 0)
                return r;
        config = run_parse(op->arena, g.adapter_config);
        seconds = json_object_get(config, "timeoutSec");
        ms = json_object_get(config, "timeoutMs"); /* of a request */
        configured = json_number_value(seconds) != 0 || json_integer_value(ms) > 0;
        add_stop(result, run, false, configured,
                 json_number_value(seconds) > 0 ? (int64_t)json_number_value(seconds) * 1000
                                                : MAX(json_integer_value(ms), 0));
        run->result_json = json_to_arena(op->arena, result);
        return 0;
}

/* A run that has not begun is over at once. A running one is terminal at once; the host finds it by
 * `cancel_requested_at` and looks after its command, its changes and its leases. Until its command
 * is gone it keeps its issue and counts among the runs of its agent (RUN_HOLDS). */
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
        run->finished_at = run->updated_at = now;
        r = cancelled_result(db, op, run, err);
        if (r >= 0)
                r = run_judge_liveness(db, op, run, false, err);
        if (r >= 0)
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

struct cancellation {
        struct op *op;
        struct runtime *rt;
        const char *id;
        struct run *run;
};

static int cancel_by_caller(struct db *db, void *arg, struct err *err)
{
        struct cancellation *q = arg;
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
        struct cancellation q = { op, rt, run_id, ret };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        FAULT("run.cancel.before");
        r = store_write(op, rt->store, cancel_by_caller, &q, err);
        FAULT("run.cancel.after");
        if (r >= 0)
                run_host_kick(rt->runs);
        return r;
}

int run_cancel_agent(struct db *db, const struct op *op, struct runtime *rt, const char *agent_id,
                     const char *why, struct err *err)
{
        struct run_rows rows = { .arena = op->arena };
        int r = runs_live_of(db, agent_id, op->arena, run_rows_add, &rows, err);

        for (size_t i = 0; r >= 0 && i < rows.n; i++)
                r = run_cancel_in(db, op, rt, &rows.at[i], why, RUN_CANCELLED_CODE, err);
        return r;
}
