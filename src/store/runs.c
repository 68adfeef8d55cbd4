#include "store/runs.h"

#include "base/util.h"

#define COLUMNS                                                                                    \
        "id, company_id, agent_id, invocation_source, trigger_detail, status, error, "             \
        "error_code, signal, exit_code, result_json, context_snapshot, usage_json, "               \
        "process_pid, process_group_id, process_started_at, last_output_at, "                      \
        "last_output_seq, retry_of_run_id, process_loss_retry_count, "                             \
        "wakeup_request_id, step, owner, issue_id, task_key, environment_id, "                     \
        "lease_id, execution_id, callback_port, cancel_requested_at, "                             \
        "session_id_before, session_id_after, log_ref, log_sha256, log_bytes, "                    \
        "stdout_excerpt, stderr_excerpt, last_output_stream, last_output_bytes, "                  \
        "scheduled_retry_at, scheduled_retry_attempt, scheduled_retry_reason, "                    \
        "started_at, leased_at, staged_at, spawned_at, first_output_at, exited_at, "               \
        "restored_at, finished_at, released_at, created_at, updated_at, waiting_reason, "          \
        "waiting_since, next_try_at, prepare_failures, waited_ms, is_incomplete"

static void load(struct stmt *s, struct arena *a, struct run *ret)
{
        *ret = (struct run){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .agent_id = stmt_text(s, 2, a),
                .invocation_source = stmt_text(s, 3, a),
                .trigger_detail = stmt_text(s, 4, a),
                .status = stmt_text(s, 5, a),
                .error = stmt_text(s, 6, a),
                .error_code = stmt_text(s, 7, a),
                .signal = stmt_text(s, 8, a),
                .exit_code = stmt_is_null(s, 9) ? -1 : stmt_number(s, 9),
                .result_json = stmt_text(s, 10, a),
                .context_snapshot = stmt_text(s, 11, a),
                .usage_json = stmt_text(s, 12, a),
                .process_pid = stmt_number(s, 13),
                .process_group_id = stmt_number(s, 14),
                .process_started_at = stmt_number(s, 15),
                .last_output_at = stmt_number(s, 16),
                .last_output_seq = stmt_number(s, 17),
                .retry_of_run_id = stmt_text(s, 18, a),
                .process_loss_retry_count = stmt_number(s, 19),
                .wakeup_request_id = stmt_text(s, 20, a),
                .step = stmt_text(s, 21, a),
                .owner = stmt_text(s, 22, a),
                .issue_id = stmt_text(s, 23, a),
                .task_key = stmt_text(s, 24, a),
                .environment_id = stmt_text(s, 25, a),
                .lease_id = stmt_text(s, 26, a),
                .execution_id = stmt_text(s, 27, a),
                .callback_port = stmt_number(s, 28),
                .cancel_requested_at = stmt_number(s, 29),
                .session_id_before = stmt_text(s, 30, a),
                .session_id_after = stmt_text(s, 31, a),
                .log_ref = stmt_text(s, 32, a),
                .log_sha256 = stmt_text(s, 33, a),
                .log_bytes = stmt_number(s, 34),
                .stdout_excerpt = stmt_text(s, 35, a),
                .stderr_excerpt = stmt_text(s, 36, a),
                .last_output_stream = stmt_text(s, 37, a),
                .last_output_bytes = stmt_number(s, 38),
                .scheduled_retry_at = stmt_number(s, 39),
                .scheduled_retry_attempt = stmt_number(s, 40),
                .scheduled_retry_reason = stmt_text(s, 41, a),
                .started_at = stmt_number(s, 42),
                .leased_at = stmt_number(s, 43),
                .staged_at = stmt_number(s, 44),
                .spawned_at = stmt_number(s, 45),
                .first_output_at = stmt_number(s, 46),
                .exited_at = stmt_number(s, 47),
                .restored_at = stmt_number(s, 48),
                .finished_at = stmt_number(s, 49),
                .released_at = stmt_number(s, 50),
                .created_at = stmt_number(s, 51),
                .updated_at = stmt_number(s, 52),
                .waiting_reason = stmt_text(s, 53, a),
                .waiting_since = stmt_number(s, 54),
                .next_try_at = stmt_number(s, 55),
                .prepare_failures = stmt_number(s, 56),
                .waited_ms = stmt_number(s, 57),
                .is_incomplete = stmt_number(s, 58) != 0,
        };
}

static struct db_arg code_or_null(int64_t code)
{
        return code < 0 ? DB_T(NULL) : DB_I(code);
}

#define VALUES                                                                                     \
        "?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, "             \
        "?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, "              \
        "?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40, ?41, ?42, ?43, ?44, ?45, ?46, ?47, "              \
        "?48, ?49, ?50, ?51, ?52, ?53, ?54, ?55, ?56, ?57, ?58, ?59"

int runs_insert(struct db *db, const struct run *row, struct err *err)
{
        return db_exec(
                db, "INSERT INTO heartbeat_runs (" COLUMNS ") VALUES (" VALUES ")",
                DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->agent_id),
                        DB_T(row->invocation_source), DB_T(row->trigger_detail), DB_T(row->status),
                        DB_T(row->error), DB_T(row->error_code), DB_T(row->signal),
                        code_or_null(row->exit_code), DB_T(row->result_json),
                        DB_T(row->context_snapshot), DB_T(row->usage_json),
                        DB_TIME(row->process_pid), DB_TIME(row->process_group_id),
                        DB_TIME(row->process_started_at), DB_TIME(row->last_output_at),
                        DB_I(row->last_output_seq), DB_T(row->retry_of_run_id),
                        DB_I(row->process_loss_retry_count), DB_T(row->wakeup_request_id),
                        DB_T(row->step), DB_T(row->owner), DB_T(row->issue_id), DB_T(row->task_key),
                        DB_T(row->environment_id), DB_T(row->lease_id), DB_T(row->execution_id),
                        DB_TIME(row->callback_port), DB_TIME(row->cancel_requested_at),
                        DB_T(row->session_id_before), DB_T(row->session_id_after),
                        DB_T(row->log_ref), DB_T(row->log_sha256), DB_TIME(row->log_bytes),
                        DB_T(row->stdout_excerpt), DB_T(row->stderr_excerpt),
                        DB_T(row->last_output_stream), DB_TIME(row->last_output_bytes),
                        DB_TIME(row->scheduled_retry_at), DB_I(row->scheduled_retry_attempt),
                        DB_T(row->scheduled_retry_reason), DB_TIME(row->started_at),
                        DB_TIME(row->leased_at), DB_TIME(row->staged_at), DB_TIME(row->spawned_at),
                        DB_TIME(row->first_output_at), DB_TIME(row->exited_at),
                        DB_TIME(row->restored_at), DB_TIME(row->finished_at),
                        DB_TIME(row->released_at), DB_I(row->created_at), DB_I(row->updated_at),
                        DB_T(row->waiting_reason), DB_TIME(row->waiting_since),
                        DB_TIME(row->next_try_at), DB_I(row->prepare_failures),
                        DB_I(row->waited_ms), DB_I(row->is_incomplete)),
                err);
}

#define STEP_SET                                                                                   \
        "context_snapshot = ?5, process_pid = ?6, process_group_id = ?7, "                         \
        "process_started_at = ?8, environment_id = ?9, lease_id = ?10, execution_id = "            \
        "?11, callback_port = ?12, session_id_before = ?13, log_ref = ?14, leased_at "             \
        "= ?15, staged_at = ?16, spawned_at = ?17, exited_at = ?18, restored_at = "                \
        "?19, released_at = ?20, updated_at = ?21, waiting_reason = ?22, waiting_since = "         \
        "?23, next_try_at = ?24, prepare_failures = ?25, waited_ms = ?26"

int runs_step(struct db *db, const struct run *row, const char *from, const char *to,
              struct err *err)
{
        return db_exec(db,
                       "UPDATE heartbeat_runs SET step = ?4, " STEP_SET
                       " WHERE id = ?1 AND owner = ?2 AND step = ?3",
                       DB_ARGS(DB_T(row->id), DB_T(row->owner), DB_T(from), DB_T(to),
                               DB_T(row->context_snapshot), DB_TIME(row->process_pid),
                               DB_TIME(row->process_group_id), DB_TIME(row->process_started_at),
                               DB_T(row->environment_id), DB_T(row->lease_id),
                               DB_T(row->execution_id), DB_TIME(row->callback_port),
                               DB_T(row->session_id_before), DB_T(row->log_ref),
                               DB_TIME(row->leased_at), DB_TIME(row->staged_at),
                               DB_TIME(row->spawned_at), DB_TIME(row->exited_at),
                               DB_TIME(row->restored_at), DB_TIME(row->released_at),
                               DB_I(row->updated_at), DB_T(row->waiting_reason),
                               DB_TIME(row->waiting_since), DB_TIME(row->next_try_at),
                               DB_I(row->prepare_failures), DB_I(row->waited_ms)),
                       err);
}

#define END_SET                                                                                    \
        "status = ?3, error = ?4, error_code = ?5, signal = ?6, exit_code = ?7, "                  \
        "result_json = ?8, usage_json = ?9, session_id_after = ?10, log_sha256 = ?11, "            \
        "log_bytes = ?12, stdout_excerpt = ?13, stderr_excerpt = ?14, finished_at = "              \
        "?15, updated_at = ?16, is_incomplete = ?17"

int runs_end(struct db *db, const struct run *row, const char *from, struct err *err)
{
        return db_exec(
                db, "UPDATE heartbeat_runs SET " END_SET " WHERE id = ?1 AND status = ?2",
                DB_ARGS(DB_T(row->id), DB_T(from), DB_T(row->status), DB_T(row->error),
                        DB_T(row->error_code), DB_T(row->signal), code_or_null(row->exit_code),
                        DB_T(row->result_json), DB_T(row->usage_json), DB_T(row->session_id_after),
                        DB_T(row->log_sha256), DB_TIME(row->log_bytes), DB_T(row->stdout_excerpt),
                        DB_T(row->stderr_excerpt), DB_TIME(row->finished_at), DB_I(row->updated_at),
                        DB_I(row->is_incomplete)),
                err);
}

int runs_note_output(struct db *db, const struct run *row, struct err *err)
{
        return db_exec(db,
                       "UPDATE heartbeat_runs SET last_output_at = ?2, last_output_seq = ?3, "
                       "last_output_stream = ?4, last_output_bytes = ?5, log_bytes = ?6, "
                       "first_output_at = COALESCE(first_output_at, ?7), "
                       "process_pid = COALESCE(CAST(?8 AS BIGINT), process_pid), "
                       "process_group_id = COALESCE(CAST(?8 AS BIGINT), process_group_id), "
                       "process_started_at = COALESCE(CAST(?9 AS BIGINT), process_started_at) "
                       "WHERE id = ?1",
                       DB_ARGS(DB_T(row->id), DB_TIME(row->last_output_at),
                               DB_I(row->last_output_seq), DB_T(row->last_output_stream),
                               DB_TIME(row->last_output_bytes), DB_TIME(row->log_bytes),
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

int runs_get(struct db *db, const char *id, struct arena *arena, struct run *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT " COLUMNS " FROM heartbeat_runs WHERE id = ?1",
                         DB_ARGS(DB_T(id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Heartbeat run not found");
        load(s, arena, ret);
        return 0;
}

static int each(struct stmt *s, struct arena *arena, run_fn fn, void *ctx, struct err *err)
{
        int r = 0;

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct run row;

                load(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

/* The rows behind ?2 and ?3, newest first, at most ?4. */
#define LIST(where)                                                                                \
        "SELECT " COLUMNS " FROM heartbeat_runs WHERE " where " AND (created_at, id) < (?2, ?3) "  \
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
        CLEAN(stmt_end) struct stmt *s = NULL;
        struct db_arg args[] = { DB_T(f->company_id),
                                 DB_I(f->before_us ? f->before_us : INT64_MAX),
                                 DB_T(f->before_id ? f->before_id : ""),
                                 DB_I(f->limit ? f->limit : INT64_MAX),
                                 DB_T(f->company_id),
                                 DB_T(f->agent_id) };
        const char *const *texts = by_company;
        size_t n_args = 4;
        int r;

        if (f->issue_id) {
                texts = by_issue;
                args[0] = DB_T(f->issue_id);
                n_args = 6;
        } else if (f->agent_id) {
                texts = by_agent;
                args[0] = DB_T(f->agent_id);
                n_args = 5;
        }
        r = db_query(db, texts[f->live], args, n_args, &s, err);
        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int runs_unfinished(struct db *db, struct arena *arena, run_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM heartbeat_runs WHERE step <> 'done' "
                         "AND step <> 'queued' ORDER BY created_at, id",
                         DB_NO_ARGS, &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int runs_waiting_agents(struct db *db, struct arena *arena,
                        int (*fn)(void *ctx, const char *agent_id), void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(
                db,
                "SELECT agent_id FROM heartbeat_runs WHERE step <> 'done' "
                "AND step = 'queued' AND status = 'queued' GROUP BY agent_id ORDER BY MIN(created_at)",
                DB_NO_ARGS, &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0)
                r = fn(ctx, stmt_text(s, 0, arena));
        return r;
}

int runs_queued(struct db *db, const char *agent_id, int64_t limit, struct arena *arena, run_fn fn,
                void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM heartbeat_runs "
                         "WHERE step <> 'done' AND step = 'queued' AND status = 'queued' "
                         "AND agent_id = ?1 "
                         "ORDER BY created_at, id LIMIT ?2",
                         DB_ARGS(DB_T(agent_id), DB_I(limit ? limit : INT64_MAX)), &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int runs_cancelled(struct db *db, struct arena *arena, run_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM heartbeat_runs WHERE step <> 'done' "
                         "AND step IN ('preparing', 'executing') AND cancel_requested_at > 0",
                         DB_NO_ARGS, &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int runs_live_of(struct db *db, const char *agent_id, struct arena *arena, run_fn fn, void *ctx,
                 struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM heartbeat_runs WHERE agent_id = ?1 "
                         "AND step <> 'done' AND status IN ('queued', 'scheduled_retry', "
                         "'running') ORDER BY created_at, id",
                         DB_ARGS(DB_T(agent_id)), &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int runs_due(struct db *db, int64_t now_us, struct arena *arena, run_fn fn, void *ctx,
             struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM heartbeat_runs WHERE status = 'scheduled_retry' "
                         "AND scheduled_retry_at <= ?1 ORDER BY scheduled_retry_at",
                         DB_ARGS(DB_I(now_us)), &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int runs_count_running(struct db *db, const char *agent_id, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT COUNT(*) FROM heartbeat_runs WHERE agent_id = ?1 "
                         "AND step <> 'done' AND (status = 'running' "
                         "OR step IN ('preparing', 'executing', 'finishing'))",
                         DB_ARGS(DB_T(agent_id)), ret, err);
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
