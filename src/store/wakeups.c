#include "store/wakeups.h"

#include "store/runs.h"

#define COLUMNS                                                                                    \
        "id, company_id, agent_id, source, trigger_detail, reason, payload, status, "              \
        "coalesced_count, requested_by_actor_type, requested_by_actor_id, idempotency_key, "       \
        "issue_id, run_id, error, requested_at, claimed_at, finished_at"

static void load(struct stmt *s, struct arena *a, struct wakeup *ret)
{
        *ret = (struct wakeup){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .agent_id = stmt_text(s, 2, a),
                .source = stmt_text(s, 3, a),
                .trigger_detail = stmt_text(s, 4, a),
                .reason = stmt_text(s, 5, a),
                .payload = stmt_text(s, 6, a),
                .status = stmt_text(s, 7, a),
                .coalesced_count = stmt_number(s, 8),
                .requested_by_actor_type = stmt_text(s, 9, a),
                .requested_by_actor_id = stmt_text(s, 10, a),
                .idempotency_key = stmt_text(s, 11, a),
                .issue_id = stmt_text(s, 12, a),
                .run_id = stmt_text(s, 13, a),
                .error = stmt_text(s, 14, a),
                .requested_at = stmt_number(s, 15),
                .claimed_at = stmt_number(s, 16),
                .finished_at = stmt_number(s, 17),
        };
}

int wakeups_insert(struct db *db, const struct wakeup *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO agent_wakeup_requests (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, "
                       "?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
                       DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->agent_id),
                               DB_T(row->source), DB_T(row->trigger_detail), DB_T(row->reason),
                               DB_T(row->payload), DB_T(row->status), DB_I(row->coalesced_count),
                               DB_T(row->requested_by_actor_type), DB_T(row->requested_by_actor_id),
                               DB_T(row->idempotency_key), DB_T(row->issue_id), DB_T(row->run_id),
                               DB_T(row->error), DB_I(row->requested_at), DB_TIME(row->claimed_at),
                               DB_TIME(row->finished_at)),
                       err);
}

/* The first row of a query; the statement is ended. */
static int first(struct stmt **s, int r, struct arena *arena, struct wakeup *ret, struct err *err)
{
        if (r >= 0)
                r = stmt_step(*s, err);
        if (r > 0)
                load(*s, arena, ret);
        stmt_end(s);
        if (r < 0)
                return r;
        return r == 0 ? err_set(err, ERR_NOT_FOUND, "Wakeup request not found") : 0;
}

int wakeups_by_key(struct db *db, const char *agent_id, const char *key, struct arena *arena,
                   struct wakeup *ret, struct err *err)
{
        struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM agent_wakeup_requests WHERE agent_id = ?1 "
                         "AND idempotency_key = ?2",
                         DB_ARGS(DB_T(agent_id), DB_T(key)), &s, err);

        return first(&s, r, arena, ret, err);
}

int wakeups_deferred_of(struct db *db, const char *agent_id, const char *issue_id,
                        struct arena *arena, struct wakeup *ret, struct err *err)
{
        struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM agent_wakeup_requests WHERE issue_id = ?2 "
                         "AND status = 'deferred_issue_execution' AND agent_id = ?1 "
                         "ORDER BY requested_at, id LIMIT 1",
                         DB_ARGS(DB_T(agent_id), DB_T(issue_id)), &s, err);

        return first(&s, r, arena, ret, err);
}

static int each(struct stmt *s, int r, struct arena *arena, wakeup_fn fn, void *ctx,
                struct err *err)
{
        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct wakeup row;

                load(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

int wakeups_deferred(struct db *db, struct arena *arena, wakeup_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM agent_wakeup_requests "
                         "WHERE status = 'deferred_issue_execution' ORDER BY requested_at, id",
                         DB_NO_ARGS, &s, err);

        return each(s, r, arena, fn, ctx, err);
}

int wakeups_deferred_after(struct db *db, const char *run_id, const char *issue_id,
                           struct arena *arena, wakeup_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM agent_wakeup_requests "
                         "WHERE status = 'deferred_issue_execution' "
                         "AND (run_id = ?1 OR issue_id = CAST(?2 AS TEXT)) "
                         "ORDER BY requested_at, id",
                         DB_ARGS(DB_T(run_id), DB_T(issue_id)), &s, err);

        return each(s, r, arena, fn, ctx, err);
}

int wakeups_merge(struct db *db, const char *id, const char *from, const char *reason,
                  const char *payload, struct err *err)
{
        return db_exec(db,
                       "UPDATE agent_wakeup_requests SET coalesced_count = coalesced_count + 1, "
                       "reason = ?3, payload = ?4 WHERE id = ?1 AND status = ?2",
                       DB_ARGS(DB_T(id), DB_T(from), DB_T(reason), DB_T(payload)), err);
}

int wakeups_move(struct db *db, const char *id, const char *from, const char *to,
                 const char *run_id, const char *error, int64_t now_us, struct err *err)
{
        return db_exec(
                db,
                "UPDATE agent_wakeup_requests SET status = ?3, "
                "run_id = COALESCE(CAST(?4 AS TEXT), run_id), error = ?5, "
                "finished_at = CASE WHEN ?3 = 'skipped' THEN ?6 ELSE finished_at END "
                "WHERE id = ?1 AND status = ?2",
                DB_ARGS(DB_T(id), DB_T(from), DB_T(to), DB_T(run_id), DB_T(error), DB_I(now_us)),
                err);
}

static int find_run(struct stmt **s, int r, struct arena *arena, const char **ret, struct err *err)
{
        if (r >= 0)
                r = stmt_step(*s, err);
        *ret = r > 0 ? stmt_text(*s, 0, arena) : NULL;
        stmt_end(s);
        return r < 0 ? r : 0;
}

int wakeups_waiting_run(struct db *db, const char *agent_id, const char *issue_id,
                        const char *task_key, struct arena *arena, const char **ret,
                        struct err *err)
{
        struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT id FROM heartbeat_runs WHERE step <> 'done' AND step = 'queued' "
                         "AND agent_id = ?1 "
                         "AND status IN ('queued', 'scheduled_retry') "
                         "AND COALESCE(issue_id, '') = COALESCE(CAST(?2 AS TEXT), '') "
                         "AND (CAST(?2 AS TEXT) IS NOT NULL "
                         "OR COALESCE(task_key, '') = COALESCE(CAST(?3 AS TEXT), '')) "
                         "ORDER BY created_at, id LIMIT 1",
                         DB_ARGS(DB_T(agent_id), DB_T(issue_id), DB_T(task_key)), &s, err);

        return find_run(&s, r, arena, ret, err);
}

int wakeups_live_run(struct db *db, const char *issue_id, struct arena *arena, const char **ret,
                     struct err *err)
{
        struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT id FROM heartbeat_runs WHERE issue_id = ?1 AND " RUN_HOLDS
                         " ORDER BY CASE WHEN step <> 'queued' THEN 0 ELSE 1 END, created_at, id "
                         "LIMIT 1",
                         DB_ARGS(DB_T(issue_id)), &s, err);

        return find_run(&s, r, arena, ret, err);
}

int wakeups_leaving_run(struct db *db, const char *issue_id, const char *aside, const char *but,
                        struct arena *arena, const char **ret, struct err *err)
{
        struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT id FROM heartbeat_runs WHERE issue_id = ?1 AND " RUN_HOLDS
                         " AND status NOT IN ('queued', 'scheduled_retry', 'running') "
                         "AND id <> COALESCE(CAST(?3 AS TEXT), '') "
                         "AND (COALESCE(error_code, '') = 'issue_reassigned' OR NOT EXISTS "
                         "(SELECT 1 FROM agent_wakeup_requests w "
                         "WHERE w.id = heartbeat_runs.wakeup_request_id AND w.reason = ?2)) "
                         "ORDER BY created_at, id LIMIT 1",
                         DB_ARGS(DB_T(issue_id), DB_T(aside), DB_T(but)), &s, err);

        return find_run(&s, r, arena, ret, err);
}

int wakeups_set_context(struct db *db, const char *run_id, const char *context_snapshot,
                        int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE heartbeat_runs SET context_snapshot = ?2, updated_at = ?3 "
                       "WHERE id = ?1 AND status IN ('queued', 'scheduled_retry')",
                       DB_ARGS(DB_T(run_id), DB_T(context_snapshot), DB_I(now_us)), err);
}

int wakeups_next_retry(struct db *db, int64_t *ret_us, struct err *err)
{
        return db_number(db,
                         "SELECT COALESCE(MIN(scheduled_retry_at), 0) FROM heartbeat_runs "
                         "WHERE status = 'scheduled_retry'",
                         DB_NO_ARGS, ret_us, err);
}

int wakeups_count_deferred(struct db *db, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT COUNT(*) FROM agent_wakeup_requests "
                         "WHERE status = 'deferred_issue_execution'",
                         DB_NO_ARGS, ret, err);
}

/* -- Schedules -------------------------------------------------------------------------------- */

/* Documents are stored without spaces, so agents without any timer need not be parsed. */
int agent_schedules_list(struct db *db, struct arena *arena, agent_schedule_fn fn, void *ctx,
                         struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT a.id, a.status, a.runtime_config, COALESCE(s.last_due_at, 0) "
                         "FROM agents a LEFT JOIN agent_schedules s ON s.agent_id = a.id "
                         "WHERE s.agent_id IS NOT NULL "
                         "OR a.runtime_config LIKE '%\"enabled\":true%'",
                         DB_NO_ARGS, &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct agent_schedule row = {
                        .agent_id = stmt_text(s, 0, arena),
                        .status = stmt_text(s, 1, arena),
                        .runtime_config = stmt_text(s, 2, arena),
                        .last_due_at = stmt_number(s, 3),
                };

                r = fn(ctx, &row);
        }
        return r;
}

int agent_schedules_advance(struct db *db, const char *agent_id, int64_t due_us, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO agent_schedules (agent_id, last_due_at) VALUES (?1, ?2) "
                       "ON CONFLICT (agent_id) DO UPDATE SET last_due_at = ?2 "
                       "WHERE agent_schedules.last_due_at < ?2",
                       DB_ARGS(DB_T(agent_id), DB_I(due_us)), err);
}

int agent_schedules_reset(struct db *db, const char *agent_id, int64_t due_us, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO agent_schedules (agent_id, last_due_at) VALUES (?1, ?2) "
                       "ON CONFLICT (agent_id) DO UPDATE SET last_due_at = ?2",
                       DB_ARGS(DB_T(agent_id), DB_I(due_us)), err);
}

int agent_schedules_forget(struct db *db, const char *agent_id, struct err *err)
{
        return db_exec(db, "DELETE FROM agent_schedules WHERE agent_id = ?1",
                       DB_ARGS(DB_T(agent_id)), err);
}
