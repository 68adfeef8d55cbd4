#include "store/executions.h"

#define COLUMNS                                                                                    \
        "id, company_id, lease_id, place_id, command, args, cwd, is_terminal, timeout_ms, "        \
        "idempotency_key, status, pid, exit_code, signal, timed_out, is_incomplete, "              \
        "stdout_len, stderr_len, reason, started_at, ended_at, created_at, updated_at, boot_id"

static void load(struct stmt *s, struct arena *a, struct execution *e)
{
        *e = (struct execution){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .lease_id = stmt_text(s, 2, a),
                .place_id = stmt_text(s, 3, a),
                .command = stmt_text(s, 4, a),
                .args = stmt_text(s, 5, a),
                .cwd = stmt_text(s, 6, a),
                .is_terminal = stmt_number(s, 7) != 0,
                .timeout_ms = stmt_number(s, 8),
                .idempotency_key = stmt_text(s, 9, a),
                .status = stmt_text(s, 10, a),
                .pid = stmt_number(s, 11),
                .exit_code = stmt_is_null(s, 12) ? -1 : stmt_number(s, 12),
                .signal = stmt_number(s, 13),
                .timed_out = stmt_number(s, 14) != 0,
                .is_incomplete = stmt_number(s, 15) != 0,
                .stdout_len = stmt_number(s, 16),
                .stderr_len = stmt_number(s, 17),
                .reason = stmt_text(s, 18, a),
                .started_at = stmt_number(s, 19),
                .ended_at = stmt_number(s, 20),
                .created_at = stmt_number(s, 21),
                .updated_at = stmt_number(s, 22),
                .boot_id = stmt_text(s, 23, a),
        };
}

static struct db_arg code_or_null(int64_t code)
{
        return code < 0 ? DB_T(NULL) : DB_I(code);
}

int executions_insert(struct db *db, const struct execution *row, struct err *err)
{
        return db_exec(
                db,
                "INSERT INTO executions (" COLUMNS
                ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, "
                "?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)",
                DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->lease_id),
                        DB_T(row->place_id), DB_T(row->command), DB_T(row->args), DB_T(row->cwd),
                        DB_I(row->is_terminal), DB_TIME(row->timeout_ms),
                        DB_T(row->idempotency_key), DB_T(row->status), DB_TIME(row->pid),
                        code_or_null(row->exit_code), DB_TIME(row->signal), DB_I(row->timed_out),
                        DB_I(row->is_incomplete), DB_I(row->stdout_len), DB_I(row->stderr_len),
                        DB_T(row->reason), DB_TIME(row->started_at), DB_TIME(row->ended_at),
                        DB_I(row->created_at), DB_I(row->updated_at), DB_T(row->boot_id)),
                err);
}

static int get_one(struct stmt *s, struct arena *arena, struct execution *ret, struct err *err)
{
        int r = stmt_step(s, err);

        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Execution not found");
        load(s, arena, ret);
        return 0;
}

static int each(struct stmt *s, struct arena *arena, execution_fn fn, void *ctx, struct err *err)
{
        int r = 0;

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct execution e;

                load(s, arena, &e);
                r = fn(ctx, &e);
        }
        return r;
}

int executions_get(struct db *db, const char *id, struct arena *arena, struct execution *ret,
                   struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT " COLUMNS " FROM executions WHERE id = ?1", DB_ARGS(DB_T(id)),
                         &s, err);

        return r < 0 ? r : get_one(s, arena, ret, err);
}

int executions_by_key(struct db *db, const char *lease_id, const char *key, struct arena *arena,
                      struct execution *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM executions WHERE lease_id = ?1 "
                         "AND idempotency_key = ?2 AND idempotency_key IS NOT NULL",
                         DB_ARGS(DB_T(lease_id), DB_T(key)), &s, err);

        return r < 0 ? r : get_one(s, arena, ret, err);
}

int executions_free_key(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "UPDATE executions SET idempotency_key = NULL WHERE id = ?1",
                       DB_ARGS(DB_T(id)), err);
}

int executions_list(struct db *db, const char *lease_id, int64_t before_us, const char *before_id,
                    int64_t limit, struct arena *arena, execution_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM executions WHERE lease_id = ?1 "
                         "AND (?2 = 0 OR created_at < ?2 OR (created_at = ?2 AND id < ?3)) "
                         "ORDER BY created_at DESC, id DESC LIMIT ?4",
                         DB_ARGS(DB_T(lease_id), DB_I(before_us), DB_T(before_id ? before_id : ""),
                                 DB_I(limit ? limit : INT64_MAX)),
                         &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int executions_open(struct db *db, const char *place_id, struct arena *arena, execution_fn fn,
                    void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM executions "
                         "WHERE (status = 'starting' OR status = 'running') "
                         "AND (CAST(?1 AS TEXT) IS NULL OR place_id = ?1)",
                         DB_ARGS(DB_T(place_id)), &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int executions_end(struct db *db, const struct execution *row, struct err *err)
{
        return db_exec(
                db,
                "UPDATE executions SET status = ?2, pid = COALESCE(?3, pid), exit_code = ?4, "
                "signal = ?5, timed_out = ?6, is_incomplete = ?7, stdout_len = ?8, "
                "stderr_len = ?9, reason = ?10, started_at = COALESCE(?11, started_at), "
                "ended_at = ?12, updated_at = ?13 "
                "WHERE id = ?1 AND (status = 'starting' OR status = 'running')",
                DB_ARGS(DB_T(row->id), DB_T(row->status), DB_TIME(row->pid),
                        code_or_null(row->exit_code), DB_TIME(row->signal), DB_I(row->timed_out),
                        DB_I(row->is_incomplete), DB_I(row->stdout_len), DB_I(row->stderr_len),
                        DB_T(row->reason), DB_TIME(row->started_at), DB_I(row->ended_at),
                        DB_I(row->updated_at)),
                err);
}

int executions_ended_before(struct db *db, int64_t before_us, int64_t limit, struct arena *arena,
                            execution_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM executions WHERE ended_at IS NOT NULL "
                         "AND ended_at < ?1 ORDER BY ended_at LIMIT ?2",
                         DB_ARGS(DB_I(before_us), DB_I(limit)), &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int executions_output(struct db *db, int64_t most, struct arena *arena,
                      int (*fn)(void *ctx, const char *place_id, int64_t bytes), void *ctx,
                      struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(
                db,
                "SELECT e.place_id, SUM(CASE WHEN e.stdout_len + e.stderr_len > ?1 THEN ?1 "
                "ELSE e.stdout_len + e.stderr_len END) FROM executions e "
                "JOIN places p ON p.id = e.place_id AND p.state <> 'gone' "
                "WHERE e.ended_at IS NOT NULL GROUP BY e.place_id",
                DB_ARGS(DB_I(most)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0)
                r = fn(ctx, stmt_text(s, 0, arena), stmt_number(s, 1));
        return r;
}

int executions_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM executions WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

/* Output to be removed */

int outputs_to_remove(struct db *db, int64_t limit, struct arena *arena, output_to_remove_fn fn,
                      void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT execution_id, attempts, note FROM outputs_to_remove "
                         "ORDER BY attempts LIMIT ?1",
                         DB_ARGS(DB_I(limit)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct output_to_remove row = { stmt_text(s, 0, arena), stmt_number(s, 1),
                                                stmt_text(s, 2, arena) };

                r = fn(ctx, &row);
        }
        return r;
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
