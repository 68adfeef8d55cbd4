/* SQL for `heartbeat_run_commands`. */
#include "store/run_commands.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct run_command, run_id),
        TEXT(struct run_command, execution_key),
        DOCUMENT(struct run_command, adapter),
        TEXT(struct run_command, input),
        TIME_OR_NULL(struct run_command, end_asked_at),
        TIME(struct run_command, created_at),
};
const struct row_type run_command_table =
        ROW_TYPE("heartbeat_run_commands", struct run_command, columns, NULL);

int run_commands_put(struct db *db, const struct run_command *row, struct err *err)
{
        return row_exec(db, &run_command_table,
                        "INSERT INTO heartbeat_run_commands (*) "
                        "ON CONFLICT (run_id, execution_key) DO UPDATE SET "
                        "adapter = excluded.adapter, input = excluded.input",
                        row, DB_NO_ARGS, err);
}

int run_commands_get(struct db *db, const char *run_id, const char *execution_key,
                     struct arena *arena, struct run_command *ret, struct err *err)
{
        *ret = (struct run_command){ 0 };
        return row_find(
                db, &run_command_table,
                "SELECT * FROM heartbeat_run_commands WHERE run_id = ?1 AND execution_key = ?2",
                DB_ARGS(DB_T(run_id), DB_T(execution_key)), arena, ret, err);
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
