#include "store/run_commands.h"

int run_commands_put(struct db *db, const struct run_command *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO heartbeat_run_commands (run_id, execution_key, adapter, input, "
                       "created_at) VALUES (?1, ?2, ?3, ?4, ?5) "
                       "ON CONFLICT (run_id, execution_key) DO UPDATE SET "
                       "adapter = excluded.adapter, input = excluded.input",
                       DB_ARGS(DB_T(row->run_id), DB_T(row->execution_key), DB_T(row->adapter),
                               DB_T(row->input), DB_I(row->created_at)),
                       err);
}

int run_commands_get(struct db *db, const char *run_id, const char *execution_key,
                     struct arena *arena, struct run_command *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT run_id, execution_key, adapter, input, end_asked_at, created_at "
                         "FROM heartbeat_run_commands WHERE run_id = ?1 AND execution_key = ?2",
                         DB_ARGS(DB_T(run_id), DB_T(execution_key)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        *ret = (struct run_command){ 0 };
        if (r <= 0)
                return r;
        *ret = (struct run_command){
                .run_id = stmt_text(s, 0, arena),
                .execution_key = stmt_text(s, 1, arena),
                .adapter = stmt_text(s, 2, arena),
                .input = stmt_text(s, 3, arena),
                .end_asked_at = stmt_number(s, 4),
                .created_at = stmt_number(s, 5),
        };
        return 1;
}

int run_commands_ask_end(struct db *db, const char *run_id, const char *execution_key,
                         int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE heartbeat_run_commands SET end_asked_at = ?3 WHERE run_id = ?1 "
                       "AND execution_key = ?2 AND end_asked_at IS NULL",
                       DB_ARGS(DB_T(run_id), DB_T(execution_key), DB_I(now_us)), err);
}

int run_commands_delete(struct db *db, const char *run_id, struct err *err)
{
        return db_exec(db, "DELETE FROM heartbeat_run_commands WHERE run_id = ?1",
                       DB_ARGS(DB_T(run_id)), err);
}
