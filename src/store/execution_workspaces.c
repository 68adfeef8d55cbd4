#include "store/execution_workspaces.h"

int execution_workspaces_metadata(struct db *db, const char *company_id, const char *id,
                                  struct arena *arena, const char **ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT metadata FROM execution_workspaces WHERE id = ?1 AND "
                         "company_id = ?2",
                         DB_ARGS(DB_T(id), DB_T(company_id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Execution workspace not found");
        *ret = stmt_text(s, 0, arena);
        return 0;
}

int execution_workspaces_set_metadata(struct db *db, const char *id, const char *metadata,
                                      int64_t now_us, struct err *err)
{
        return db_exec(
                db, "UPDATE execution_workspaces SET metadata = ?2, updated_at = ?3 WHERE id = ?1",
                DB_ARGS(DB_T(id), DB_T(metadata), DB_I(now_us)), err);
}
