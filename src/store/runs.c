/* SQL for `heartbeat_runs`. */
#include "store/runs.h"

#include "base/util.h"
#include "store/row.h"

/* Which write changes a column: runs_step(), runs_end() and runs_note_output() have theirs. */
enum { BY_STEP = OWN_GROUP, BY_END, BY_OUTPUT };

static const struct column columns[] = {
        TEXT(struct run, id, "id"),
        TEXT(struct run, company_id, "companyId"),
        TEXT(struct run, agent_id, "agentId"),
        TEXT(struct run, invocation_source, "invocationSource"),
        TEXT(struct run, trigger_detail, "triggerDetail"),
        TEXT(struct run, status, "status", BY_END),
        TIME_OR_NULL(struct run, started_at, "startedAt"),
        TIME_OR_NULL(struct run, finished_at, "finishedAt", BY_END),
        TEXT(struct run, error, "error", BY_END),
        TEXT(struct run, wakeup_request_id, "wakeupRequestId"),
        CODE(struct run, exit_code, "exitCode", BY_END),
        TEXT(struct run, signal, "signal", BY_END),
        DOCUMENT(struct run, usage_json, "usageJson", BY_END),
        DOCUMENT(struct run, result_json, "resultJson", BY_END),
        TEXT(struct run, session_id_before, "sessionIdBefore", BY_STEP),
        TEXT(struct run, session_id_after, "sessionIdAfter", BY_END),
        TEXT(struct run, log_ref, "logRef", BY_STEP),
        NUMBER_OR_NULL(struct run, log_bytes, "logBytes", BY_END),
        TEXT(struct run, log_sha256, "logSha256", BY_END),
        TEXT(struct run, stdout_excerpt, "stdoutExcerpt", BY_END),
        TEXT(struct run, stderr_excerpt, "stderrExcerpt", BY_END),
        FLAG(struct run, is_incomplete, "incomplete", BY_END),
        TEXT(struct run, error_code, "errorCode", BY_END),
        NUMBER_OR_NULL(struct run, process_pid, "processPid", BY_STEP),
        NUMBER_OR_NULL(struct run, process_group_id, "processGroupId", BY_STEP),
        TIME_OR_NULL(struct run, process_started_at, "processStartedAt", BY_STEP),
        TIME_OR_NULL(struct run, last_output_at, "lastOutputAt", BY_OUTPUT),
        NUMBER(struct run, last_output_seq, "lastOutputSeq", BY_OUTPUT),
        TEXT(struct run, last_output_stream, "lastOutputStream", BY_OUTPUT),
        NUMBER_OR_NULL(struct run, last_output_bytes, "lastOutputBytes", BY_OUTPUT),
        TEXT(struct run, retry_of_run_id, "retryOfRunId"),
        NUMBER(struct run, process_loss_retry_count, "processLossRetryCount"),
        TIME_OR_NULL(struct run, scheduled_retry_at, "scheduledRetryAt"),
        NUMBER(struct run, scheduled_retry_attempt, "scheduledRetryAttempt"),
        TEXT(struct run, scheduled_retry_reason, "scheduledRetryReason"),
        TEXT(struct run, retry_exhausted_reason, "retryExhaustedReason", BY_END),
        TEXT(struct run, liveness_state, "livenessState", BY_END),
        TEXT(struct run, liveness_reason, "livenessReason", BY_END),
        NUMBER(struct run, continuation_attempt, "continuationAttempt"),
        TIME_OR_NULL(struct run, last_useful_action_at, "lastUsefulActionAt", BY_END),
        DOCUMENT(struct run, context_snapshot, "contextSnapshot", BY_STEP),
        TIME(struct run, created_at, "createdAt"),
        TIME(struct run, updated_at, "updatedAt"),
        TEXT(struct run, step, "step"),
        TEXT(struct run, issue_id, "issueId"),
        TEXT(struct run, task_key, "taskKey"),
        TEXT(struct run, environment_id, "environmentId", BY_STEP),
        TEXT(struct run, lease_id, "leaseId", BY_STEP),
        TEXT(struct run, execution_id, "executionId", BY_STEP),
        /* Shown inside `waiting` and `timeline`, or not at all. */
        TEXT(struct run, waiting_reason, NULL, BY_STEP),
        TIME_OR_NULL(struct run, waiting_since, NULL, BY_STEP),
        TIME_OR_NULL(struct run, next_try_at, NULL, BY_STEP),
        NUMBER(struct run, prepare_failures, NULL, BY_STEP),
        NUMBER(struct run, waited_ms, NULL, BY_STEP),
        TIME_OR_NULL(struct run, leased_at, NULL, BY_STEP),
        TIME_OR_NULL(struct run, staged_at, NULL, BY_STEP),
        TIME_OR_NULL(struct run, spawned_at, NULL, BY_STEP),
        TIME_OR_NULL(struct run, first_output_at),
        TIME_OR_NULL(struct run, exited_at, NULL, BY_STEP),
        TIME_OR_NULL(struct run, restored_at, NULL, BY_STEP),
        TIME_OR_NULL(struct run, released_at, NULL, BY_STEP),
        TEXT(struct run, owner),
        NUMBER_OR_NULL(struct run, callback_port, NULL, BY_STEP),
        TIME_OR_NULL(struct run, cancel_requested_at),
        TEXT(struct run, silence_level),
        TIME_OR_NULL(struct run, silence_noted_at),
};

#define RUN_ROWS(...)                                                                              \
        ROW_TYPE("heartbeat_runs", struct run, columns, "Heartbeat run not found", __VA_ARGS__)

const struct row_type run_table = RUN_ROWS();
static const struct row_type run_step_table = RUN_ROWS(.group = BY_STEP);
static const struct row_type run_end_table = RUN_ROWS(.group = BY_END);
static const struct row_type run_output_table = RUN_ROWS(.group = BY_OUTPUT);

int runs_step(struct db *db, const struct run *row, const char *from, const char *to,
              struct err *err)
{
        return row_exec(db, &run_step_table,
                        "UPDATE heartbeat_runs SET *, step = ?4, updated_at = ?5 "
                        "WHERE id = ?1 AND owner = ?2 AND step = ?3",
                        row,
                        DB_ARGS(DB_T(row->id), DB_T(row->owner), DB_T(from), DB_T(to),
                                DB_I(row->updated_at)),
                        err);
}

int runs_end(struct db *db, const struct run *row, const char *from, struct err *err)
{
        return row_exec(
                db, &run_end_table,
                "UPDATE heartbeat_runs SET *, updated_at = ?3 WHERE id = ?1 AND status = ?2", row,
                DB_ARGS(DB_T(row->id), DB_T(from), DB_I(row->updated_at)), err);
}

int runs_note_output(struct db *db, const struct run *row, struct err *err)
{
        return row_exec(db, &run_output_table,
                        "UPDATE heartbeat_runs SET *, log_bytes = ?2, "
                        "first_output_at = COALESCE(first_output_at, ?3), "
                        "process_pid = COALESCE(CAST(?4 AS BIGINT), process_pid), "
                        "process_group_id = COALESCE(CAST(?4 AS BIGINT), process_group_id), "
                        "process_started_at = COALESCE(CAST(?5 AS BIGINT), process_started_at) "
                        "WHERE id = ?1",
                        row,
                        DB_ARGS(DB_T(row->id), DB_TIME(row->log_bytes),
                                DB_TIME(row->first_output_at), DB_TIME(row->process_pid),
                                DB_TIME(row->process_started_at)),
                        err);
}

int runs_claim(struct db *db, const char *id, const char *owner, int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE heartbeat_runs SET status = 'running', step = 'preparing', "
                       "owner = ?2, started_at = ?3, updated_at = ?3 "
                       "WHERE id = ?1 AND status = 'queued' AND step = 'queued'",
                       DB_ARGS(DB_T(id), DB_T(owner), DB_I(now_us)), err);
}

int runs_tell(struct db *db, const char *id, const char *context_snapshot, struct err *err)
{
        return db_exec(db,
                       "UPDATE heartbeat_runs SET context_snapshot = ?2 "
                       "WHERE id = ?1 AND step = 'preparing'",
                       DB_ARGS(DB_T(id), DB_T(context_snapshot)), err);
}

int runs_wake(struct db *db, const char *id, int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE heartbeat_runs SET status = 'queued', updated_at = ?2 "
                       "WHERE id = ?1 AND status = 'scheduled_retry'",
                       DB_ARGS(DB_T(id), DB_I(now_us)), err);
}

int runs_adopt(struct db *db, const char *id, const char *from, const char *owner, int64_t now_us,
               struct err *err)
{
        return db_exec(db,
                       "UPDATE heartbeat_runs SET owner = ?3, updated_at = ?4 WHERE id = ?1 "
                       "AND step NOT IN ('queued', 'done') "
                       "AND COALESCE(owner, '') = COALESCE(CAST(?2 AS TEXT), '')",
                       DB_ARGS(DB_T(id), DB_T(from), DB_T(owner), DB_I(now_us)), err);
}

int runs_request_cancel(struct db *db, const char *id, int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE heartbeat_runs SET cancel_requested_at = ?2, updated_at = ?2 "
                       "WHERE id = ?1 AND cancel_requested_at IS NULL AND step <> 'done'",
                       DB_ARGS(DB_T(id), DB_I(now_us)), err);
}

int runs_drop(struct db *db, const char *id, int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE heartbeat_runs SET step = 'done', updated_at = ?2 "
                       "WHERE id = ?1 AND step = 'queued' AND finished_at IS NOT NULL",
                       DB_ARGS(DB_T(id), DB_I(now_us)), err);
}

/* The rows behind ?2 and ?3, newest first, at most ?4. */
#define LIST(where)                                                                                \
        "SELECT * FROM heartbeat_runs WHERE " where " AND (created_at, id) < (?2, ?3) "            \
        "ORDER BY created_at DESC, id DESC LIMIT ?4"
#define LIST_LIVE(where)                                                                           \
        LIST("step <> 'done' AND status IN ('queued', 'scheduled_retry', 'running') AND " where)

int runs_list(struct db *db, const struct run_filter *f, struct arena *arena, run_fn fn, void *ctx,
              struct err *err)
{
        /* A text for each thing that is listed, so that each has its index: the narrowest filter
         * leads, the others only check what it finds. */
        static const char *const by_company[] = { LIST("company_id = ?1"),
                                                  LIST_LIVE("company_id = ?1") };
        static const char *const by_agent[] = {
                LIST("agent_id = ?1 AND company_id = COALESCE(CAST(?5 AS TEXT), company_id)"),
                LIST_LIVE("agent_id = ?1 AND company_id = COALESCE(CAST(?5 AS TEXT), company_id)"),
        };
        static const char *const by_issue[] = {
                LIST("issue_id = ?1 AND company_id = COALESCE(CAST(?5 AS TEXT), company_id) "
                     "AND agent_id = COALESCE(CAST(?6 AS TEXT), agent_id)"),
                LIST_LIVE("issue_id = ?1 AND company_id = COALESCE(CAST(?5 AS TEXT), company_id) "
                          "AND agent_id = COALESCE(CAST(?6 AS TEXT), agent_id)"),
        };
        struct db_arg args[] = { DB_T(f->company_id),
                                 DB_I(f->before_us ? f->before_us : INT64_MAX),
                                 DB_T(f->before_id ? f->before_id : ""),
                                 DB_I(f->limit ? f->limit : INT64_MAX),
                                 DB_T(f->company_id),
                                 DB_T(f->agent_id) };
        const char *const *texts = by_company;
        size_t n_args = 4;

        if (f->issue_id) {
                texts = by_issue;
                args[0] = DB_T(f->issue_id);
                n_args = 6;
        } else if (f->agent_id) {
                texts = by_agent;
                args[0] = DB_T(f->agent_id);
                n_args = 5;
        }
        return ROW_EACH(db, &run_table, texts[f->live], DB_ARRAY(args, n_args), arena, fn, ctx,
                        err);
}

int runs_unfinished(struct db *db, struct arena *arena, run_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &run_table,
                        "SELECT * FROM heartbeat_runs WHERE step <> 'done' "
                        "AND step <> 'queued' ORDER BY created_at, id",
                        DB_NO_ARGS, arena, fn, ctx, err);
}

int runs_waiting_agents(struct db *db, struct arena *arena,
                        int (*fn)(void *ctx, const char *agent_id), void *ctx, struct err *err)
{
        return db_texts(
                db,
                "SELECT agent_id FROM heartbeat_runs WHERE step <> 'done' "
                "AND step = 'queued' AND status = 'queued' GROUP BY agent_id ORDER BY MIN(created_at)",
                DB_NO_ARGS, arena, fn, ctx, err);
}

int runs_queued(struct db *db, const char *agent_id, int64_t limit, struct arena *arena, run_fn fn,
                void *ctx, struct err *err)
{
        return ROW_EACH(db, &run_table,
                        "SELECT * FROM heartbeat_runs "
                        "WHERE step <> 'done' AND step = 'queued' AND status = 'queued' "
                        "AND agent_id = ?1 "
                        "ORDER BY created_at, id LIMIT ?2",
                        DB_ARGS(DB_T(agent_id), DB_I(limit ? limit : INT64_MAX)), arena, fn, ctx,
                        err);
}

int runs_cancelled(struct db *db, struct arena *arena, run_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &run_table,
                        "SELECT * FROM heartbeat_runs WHERE step <> 'done' "
                        "AND step IN ('preparing', 'executing') AND cancel_requested_at > 0",
                        DB_NO_ARGS, arena, fn, ctx, err);
}

int runs_live_of(struct db *db, const char *agent_id, struct arena *arena, run_fn fn, void *ctx,
                 struct err *err)
{
        return ROW_EACH(db, &run_table,
                        "SELECT * FROM heartbeat_runs WHERE agent_id = ?1 "
                        "AND step <> 'done' AND status IN ('queued', 'scheduled_retry', "
                        "'running') ORDER BY created_at, id",
                        DB_ARGS(DB_T(agent_id)), arena, fn, ctx, err);
}

int runs_last_in_place(struct db *db, const char *place_id, struct arena *arena, run_fn fn,
                       void *ctx, struct err *err)
{
        return ROW_EACH(db, &run_table,
                        "SELECT * FROM heartbeat_runs WHERE id = "
                        "(SELECT heartbeat_run_id FROM environment_leases WHERE place_id = ?1 "
                        "ORDER BY acquired_at DESC LIMIT 1)",
                        DB_ARGS(DB_T(place_id)), arena, fn, ctx, err);
}

int runs_due(struct db *db, int64_t now_us, struct arena *arena, run_fn fn, void *ctx,
             struct err *err)
{
        return ROW_EACH(db, &run_table,
                        "SELECT * FROM heartbeat_runs WHERE status = 'scheduled_retry' "
                        "AND scheduled_retry_at <= ?1 ORDER BY scheduled_retry_at",
                        DB_ARGS(DB_I(now_us)), arena, fn, ctx, err);
}

int runs_silent(struct db *db, int64_t since_us, struct arena *arena, run_fn fn, void *ctx,
                struct err *err)
{
        return ROW_EACH(db, &run_table,
                        "SELECT * FROM heartbeat_runs WHERE step <> 'done' AND step = 'executing' "
                        "AND status = 'running' AND COALESCE(last_output_at, started_at) <= ?1",
                        DB_ARGS(DB_I(since_us)), arena, fn, ctx, err);
}

int runs_note_silence(struct db *db, const char *id, const char *level, int64_t now_us,
                      struct err *err)
{
        return db_exec(db,
                       "UPDATE heartbeat_runs SET silence_level = ?2, silence_noted_at = ?3 "
                       "WHERE id = ?1 AND status = 'running'",
                       DB_ARGS(DB_T(id), DB_T(level), DB_I(now_us)), err);
}

int runs_count_running(struct db *db, const char *agent_id, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT COUNT(*) FROM heartbeat_runs WHERE agent_id = ?1 "
                         "AND step <> 'done' AND (status = 'running' "
                         "OR step IN ('preparing', 'executing', 'finishing'))",
                         DB_ARGS(DB_T(agent_id)), ret, err);
}

int runs_count_open_of(struct db *db, const char *company_id, const char *agent_id, int64_t *ret,
                       struct err *err)
{
        return db_number(db,
                         agent_id ? "SELECT COUNT(*) FROM heartbeat_runs WHERE agent_id = ?1 "
                                    "AND step <> 'done'"
                                  : "SELECT COUNT(*) FROM heartbeat_runs WHERE company_id = ?1 "
                                    "AND step <> 'done'",
                         DB_ARGS(DB_T(agent_id ? agent_id : company_id)), ret, err);
}

int runs_delete_some(struct db *db, const char *company_id, const char *agent_id, int64_t limit,
                     struct err *err)
{
        return db_exec(db,
                       agent_id
                               ? "DELETE FROM heartbeat_runs WHERE id IN (SELECT id FROM "
                                 "heartbeat_runs WHERE agent_id = ?1 AND step = 'done' LIMIT ?2)"
                               : "DELETE FROM heartbeat_runs WHERE id IN (SELECT id FROM "
                                 "heartbeat_runs WHERE company_id = ?1 AND step = 'done' LIMIT ?2)",
                       DB_ARGS(DB_T(agent_id ? agent_id : company_id), DB_I(limit)), err);
}

int runs_count_open(struct db *db, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT COUNT(*) FROM heartbeat_runs WHERE step <> 'done' "
                         "AND (step <> 'queued' OR status = 'queued')",
                         DB_NO_ARGS, ret, err);
}

int runs_note_wakeup(struct db *db, const char *wakeup_id, const char *status, const char *error,
                     int64_t now_us, struct err *err)
{
        if (!wakeup_id)
                return 0;
        return db_exec(db,
                       "UPDATE agent_wakeup_requests SET status = ?2, error = ?3, "
                       "claimed_at = COALESCE(claimed_at, ?4), "
                       "finished_at = CASE WHEN ?2 = 'claimed' THEN finished_at ELSE ?4 END "
                       "WHERE id = ?1",
                       DB_ARGS(DB_T(wakeup_id), DB_T(status), DB_T(error), DB_I(now_us)), err);
}

bool run_is_terminal(const struct run *run)
{
        static const char *const ends[] = { RUN_SUCCEEDED, RUN_FAILED, RUN_CANCELLED,
                                            RUN_TIMED_OUT };

        for (size_t i = 0; i < ARRAY_LEN(ends); i++)
                if (streq(run->status, ends[i]))
                        return true;
        return false;
}
