/* SQL for `agent_wakeup_requests`. */
#include "store/wakeups.h"

#include "store/row.h"
#include "store/runs.h"

static const struct column columns[] = {
        TEXT(struct wakeup, id),
        TEXT(struct wakeup, company_id),
        TEXT(struct wakeup, agent_id),
        TEXT(struct wakeup, source),
        TEXT(struct wakeup, trigger_detail),
        TEXT(struct wakeup, reason),
        DOCUMENT(struct wakeup, payload),
        TEXT(struct wakeup, status),
        NUMBER(struct wakeup, coalesced_count),
        TEXT(struct wakeup, requested_by_actor_type),
        TEXT(struct wakeup, requested_by_actor_id),
        TEXT(struct wakeup, idempotency_key),
        TEXT(struct wakeup, issue_id),
        TEXT(struct wakeup, run_id),
        TEXT(struct wakeup, error),
        TIME(struct wakeup, requested_at),
        TIME_OR_NULL(struct wakeup, claimed_at),
        TIME_OR_NULL(struct wakeup, finished_at),
};
const struct row_type wakeup_table =
        ROW_TYPE("agent_wakeup_requests", struct wakeup, columns, "Wakeup request not found");

int wakeups_insert(struct db *db, const struct wakeup *row, struct err *err)
{
        return row_insert(db, &wakeup_table, row, err);
}

int wakeups_by_key(struct db *db, const char *agent_id, const char *key, struct arena *arena,
                   struct wakeup *ret, struct err *err)
{
        return row_get(db, &wakeup_table,
                       "SELECT * FROM agent_wakeup_requests WHERE agent_id = ?1 "
                       "AND idempotency_key = ?2",
                       DB_ARGS(DB_T(agent_id), DB_T(key)), arena, ret, err);
}

int wakeups_deferred_of(struct db *db, const char *agent_id, const char *issue_id,
                        struct arena *arena, struct wakeup *ret, struct err *err)
{
        return row_get(db, &wakeup_table,
                       "SELECT * FROM agent_wakeup_requests WHERE issue_id = ?2 "
                       "AND status = 'deferred_issue_execution' AND agent_id = ?1 "
                       "ORDER BY requested_at, id LIMIT 1",
                       DB_ARGS(DB_T(agent_id), DB_T(issue_id)), arena, ret, err);
}

int wakeups_deferred(struct db *db, struct arena *arena, wakeup_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &wakeup_table,
                        "SELECT * FROM agent_wakeup_requests "
                        "WHERE status = 'deferred_issue_execution' ORDER BY requested_at, id",
                        DB_NO_ARGS, arena, fn, ctx, err);
}

int wakeups_deferred_after(struct db *db, const char *run_id, const char *issue_id,
                           struct arena *arena, wakeup_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &wakeup_table,
                        "SELECT * FROM agent_wakeup_requests "
                        "WHERE status = 'deferred_issue_execution' "
                        "AND (run_id = ?1 OR issue_id = CAST(?2 AS TEXT)) "
                        "ORDER BY requested_at, id",
                        DB_ARGS(DB_T(run_id), DB_T(issue_id)), arena, fn, ctx, err);
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

int wakeups_waiting_run(struct db *db, const char *agent_id, const char *issue_id,
                        const char *task_key, struct arena *arena, const char **ret,
                        struct err *err)
{
        int r = db_text(db,
                        "SELECT id FROM heartbeat_runs WHERE step <> 'done' AND step = 'queued' "
                        "AND agent_id = ?1 "
                        "AND status IN ('queued', 'scheduled_retry') "
                        "AND COALESCE(issue_id, '') = COALESCE(CAST(?2 AS TEXT), '') "
                        "AND (CAST(?2 AS TEXT) IS NOT NULL "
                        "OR COALESCE(task_key, '') = COALESCE(CAST(?3 AS TEXT), '')) "
                        "ORDER BY created_at, id LIMIT 1",
                        DB_ARGS(DB_T(agent_id), DB_T(issue_id), DB_T(task_key)), arena, ret, err);

        return MIN(r, 0);
}

int wakeups_live_run(struct db *db, const char *issue_id, struct arena *arena, const char **ret,
                     struct err *err)
{
        int r = db_text(db,
                        "SELECT id FROM heartbeat_runs WHERE issue_id = ?1 AND " RUN_HOLDS
                        " ORDER BY CASE WHEN step <> 'queued' THEN 0 ELSE 1 END, created_at, id "
                        "LIMIT 1",
                        DB_ARGS(DB_T(issue_id)), arena, ret, err);

        return MIN(r, 0);
}

int wakeups_leaving_run(struct db *db, const char *issue_id, const char *aside, const char *but,
                        struct arena *arena, const char **ret, struct err *err)
{
        int r = db_text(db,
                        "SELECT id FROM heartbeat_runs WHERE issue_id = ?1 AND " RUN_HOLDS
                        " AND status NOT IN ('queued', 'scheduled_retry', 'running') "
                        "AND id <> COALESCE(CAST(?3 AS TEXT), '') "
                        "AND (COALESCE(error_code, '') = 'issue_reassigned' OR NOT EXISTS "
                        "(SELECT 1 FROM agent_wakeup_requests w "
                        "WHERE w.id = heartbeat_runs.wakeup_request_id AND w.reason = ?2)) "
                        "ORDER BY created_at, id LIMIT 1",
                        DB_ARGS(DB_T(issue_id), DB_T(aside), DB_T(but)), arena, ret, err);

        return MIN(r, 0);
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
        static const struct column schedule_columns[] = {
                TEXT(struct agent_schedule, agent_id, .sql = "a.id"),
                TEXT(struct agent_schedule, status, .sql = "a.status"),
                DOCUMENT(struct agent_schedule, runtime_config, .sql = "a.runtime_config"),
                TIME(struct agent_schedule, last_due_at, .sql = "COALESCE(s.last_due_at, 0)"),
        };
        static const struct row_type schedule_table =
                ROW_TYPE(NULL, struct agent_schedule, schedule_columns, NULL);

        return ROW_EACH(db, &schedule_table,
                        "SELECT * FROM agents a LEFT JOIN agent_schedules s ON s.agent_id = a.id "
                        "WHERE s.agent_id IS NOT NULL "
                        "OR a.runtime_config LIKE '%\"enabled\":true%'",
                        DB_NO_ARGS, arena, fn, ctx, err);
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
