/* SQL for `executions`. */
#include "store/executions.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct execution, id, "execId", FIXED),
        TEXT(struct execution, lease_id, "leaseId", FIXED),
        TEXT(struct execution, command, "command", FIXED),
        DOCUMENT(struct execution, args, "args", FIXED),
        TEXT(struct execution, cwd, "cwd", FIXED),
        FLAG(struct execution, is_terminal, "tty", FIXED),
        NUMBER_OR_NULL(struct execution, pid, "pid", FIXED),
        CODE(struct execution, exit_code, "exitCode"),
        NUMBER_OR_NULL(struct execution, signal, NULL),
        FLAG(struct execution, timed_out, "timedOut"),
        FLAG(struct execution, is_incomplete, "incomplete"),
        TEXT(struct execution, reason, "reason"),
        TIME_OR_NULL(struct execution, started_at, "startedAt", FIXED),
        TIME_OR_NULL(struct execution, ended_at, "endedAt"),
        TIME(struct execution, created_at, "createdAt", FIXED),
        TEXT(struct execution, company_id, NULL, FIXED),
        TEXT(struct execution, place_id, NULL, FIXED),
        NUMBER_OR_NULL(struct execution, timeout_ms, NULL, FIXED),
        TEXT(struct execution, idempotency_key, NULL, FIXED),
        TEXT(struct execution, status, "status"),
        NUMBER(struct execution, stdout_len, "stdoutBytes"),
        NUMBER(struct execution, stderr_len, "stderrBytes"),
        TIME(struct execution, updated_at),
        TEXT(struct execution, boot_id, NULL, FIXED),
};
const struct row_type execution_table =
        ROW_TYPE("executions", struct execution, columns, "Execution not found");

int executions_by_key(struct db *db, const char *lease_id, const char *key, struct arena *arena,
                      struct execution *ret, struct err *err)
{
        return row_get(db, &execution_table,
                       "SELECT * FROM executions WHERE lease_id = ?1 "
                       "AND idempotency_key = ?2 AND idempotency_key IS NOT NULL",
                       DB_ARGS(DB_T(lease_id), DB_T(key)), arena, ret, err);
}

int executions_free_key(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "UPDATE executions SET idempotency_key = NULL WHERE id = ?1",
                       DB_ARGS(DB_T(id)), err);
}

int executions_list(struct db *db, const char *lease_id, int64_t before_us, const char *before_id,
                    int64_t limit, struct arena *arena, execution_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &execution_table,
                        "SELECT * FROM executions WHERE lease_id = ?1 "
                        "AND (?2 = 0 OR created_at < ?2 OR (created_at = ?2 AND id < ?3)) "
                        "ORDER BY created_at DESC, id DESC LIMIT ?4",
                        DB_ARGS(DB_T(lease_id), DB_I(before_us), DB_T(before_id ? before_id : ""),
                                DB_I(limit ? limit : INT64_MAX)),
                        arena, fn, ctx, err);
}

int executions_open(struct db *db, const char *place_id, struct arena *arena, execution_fn fn,
                    void *ctx, struct err *err)
{
        return ROW_EACH(db, &execution_table,
                        "SELECT * FROM executions "
                        "WHERE (status = 'starting' OR status = 'running') "
                        "AND (CAST(?1 AS TEXT) IS NULL OR place_id = ?1)",
                        DB_ARGS(DB_T(place_id)), arena, fn, ctx, err);
}

int executions_end(struct db *db, const struct execution *row, struct err *err)
{
        return row_exec(db, &execution_table,
                        "UPDATE executions SET *, pid = COALESCE(?2, pid), "
                        "started_at = COALESCE(?3, started_at) "
                        "WHERE id = ?1 AND (status = 'starting' OR status = 'running')",
                        row, DB_ARGS(DB_T(row->id), DB_TIME(row->pid), DB_TIME(row->started_at)),
                        err);
}

int executions_ended_before(struct db *db, int64_t before_us, int64_t limit, struct arena *arena,
                            execution_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &execution_table,
                        "SELECT * FROM executions WHERE ended_at IS NOT NULL "
                        "AND ended_at < ?1 ORDER BY ended_at LIMIT ?2",
                        DB_ARGS(DB_I(before_us), DB_I(limit)), arena, fn, ctx, err);
}

int executions_output(struct db *db, int64_t most, struct arena *arena,
                      int (*fn)(void *ctx, const char *place_id, int64_t bytes), void *ctx,
                      struct err *err)
{
        return db_counts(
                db,
                "SELECT e.place_id, SUM(CASE WHEN e.stdout_len + e.stderr_len > ?1 THEN ?1 "
                "ELSE e.stdout_len + e.stderr_len END) FROM executions e "
                "JOIN places p ON p.id = e.place_id AND p.state <> 'gone' "
                "WHERE e.ended_at IS NOT NULL GROUP BY e.place_id",
                DB_ARGS(DB_I(most)), arena, fn, ctx, err);
}

int executions_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM executions WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

/* Output to be removed */

static const struct column output_columns[] = {
        TEXT(struct output_to_remove, execution_id),
        NUMBER(struct output_to_remove, attempts),
        TEXT(struct output_to_remove, note),
};
const struct row_type output_to_remove_table =
        ROW_TYPE("outputs_to_remove", struct output_to_remove, output_columns, NULL);

int outputs_to_remove(struct db *db, int64_t limit, struct arena *arena, output_to_remove_fn fn,
                      void *ctx, struct err *err)
{
        return ROW_EACH(db, &output_to_remove_table,
                        "SELECT * FROM outputs_to_remove ORDER BY attempts LIMIT ?1",
                        DB_ARGS(DB_I(limit)), arena, fn, ctx, err);
}

int outputs_to_remove_done(struct db *db, const char *execution_id, struct err *err)
{
        return db_exec(db, "DELETE FROM outputs_to_remove WHERE execution_id = ?1",
                       DB_ARGS(DB_T(execution_id)), err);
}

int outputs_to_remove_failed(struct db *db, const char *execution_id, const char *note,
                             struct err *err)
{
        return db_exec(db,
                       "UPDATE outputs_to_remove SET attempts = attempts + 1, note = ?2 "
                       "WHERE execution_id = ?1",
                       DB_ARGS(DB_T(execution_id), DB_T(note)), err);
}
