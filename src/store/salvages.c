/* SQL for `salvages`. */
#include "store/salvages.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct salvage, id, "id", FIXED),
        TEXT(struct salvage, company_id, "companyId", FIXED),
        TEXT(struct salvage, workspace_id, NULL, FIXED),
        TEXT(struct salvage, lease_id, "leaseId", FIXED),
        TEXT(struct salvage, environment_id, "environmentId", FIXED),
        TEXT(struct salvage, state),
        TEXT(struct salvage, reason, "reason", FIXED),
        TEXT(struct salvage, local_path, "localPath", FIXED),
        DOCUMENT(struct salvage, exclude, NULL, FIXED),
        NUMBER(struct salvage, umask),
        NUMBER(struct salvage, changes, "changes"),
        NUMBER(struct salvage, deletes, "deletes"),
        NUMBER(struct salvage, bytes, "bytes"),
        TIME_OR_NULL(struct salvage, applied_at, "appliedAt"),
        TIME(struct salvage, expires_at, "expiresAt", FIXED),
        TIME(struct salvage, created_at, "createdAt", FIXED),
        TIME(struct salvage, updated_at),
        TIME_OR_NULL(struct salvage, seen_at, NULL, FIXED),
};
const struct row_type salvage_table =
        ROW_TYPE("salvages", struct salvage, columns, "Salvage not found");

int salvages_saving(struct db *db, const char *workspace_id, struct arena *arena,
                    struct salvage *ret, struct err *err)
{
        return row_get(db, &salvage_table,
                       "SELECT * FROM salvages WHERE workspace_id = ?1 AND state = 'saving'",
                       DB_ARGS(DB_T(workspace_id)), arena, ret, err);
}

int salvages_move(struct db *db, const char *id, const char *from, const struct salvage *to,
                  struct err *err)
{
        return row_exec(db, &salvage_table, "UPDATE salvages SET * WHERE id = ?1 AND state = ?2",
                        to, DB_ARGS(DB_T(id), DB_T(from)), err);
}

int salvages_delete(struct db *db, const char *id, const char *state, struct err *err)
{
        return db_exec(db, "DELETE FROM salvages WHERE id = ?1 AND state = ?2",
                       DB_ARGS(DB_T(id), DB_T(state)), err);
}

int salvages_list(struct db *db, const char *company_id, int64_t before_us, const char *before_id,
                  int64_t limit, struct arena *arena, salvage_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &salvage_table,
                        "SELECT * FROM salvages WHERE company_id = ?1 "
                        "AND state = 'ready' AND (CAST(?3 AS TEXT) IS NULL OR created_at < ?2 "
                        "OR (created_at = ?2 AND id < ?3)) "
                        "ORDER BY created_at DESC, id DESC LIMIT ?4",
                        DB_ARGS(DB_T(company_id), DB_I(before_us), DB_T(before_id), DB_I(limit)),
                        arena, fn, ctx, err);
}

int salvages_note_seen(struct db *db, const char *id, int64_t now_us, int64_t expires_at,
                       struct err *err)
{
        return db_exec(db,
                       "UPDATE salvages SET seen_at = ?2, expires_at = ?3 "
                       "WHERE id = ?1 AND seen_at IS NULL",
                       DB_ARGS(DB_T(id), DB_I(now_us), DB_I(expires_at)), err);
}

int salvages_over(struct db *db, int64_t before_us, bool unseen, struct arena *arena, salvage_fn fn,
                  void *ctx, struct err *err)
{
        return ROW_EACH(db, &salvage_table,
                        "SELECT * FROM salvages WHERE "
                        "(state = 'ready' AND created_at < ?1 AND (seen_at < ?1 OR ?2 = 1)) "
                        "OR state = 'dropping' OR "
                        "(state = 'saving' AND NOT EXISTS (SELECT 1 FROM workspaces w "
                        "WHERE w.id = workspace_id AND w.state <> 'ended')) ORDER BY id",
                        DB_ARGS(DB_I(before_us), DB_I(unseen)), arena, fn, ctx, err);
}
