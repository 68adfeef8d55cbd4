/* SQL for `snapshots`. */
#include "store/snapshots.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct snapshot, id, "id", FIXED),
        TEXT(struct snapshot, company_id, "companyId", FIXED),
        TEXT(struct snapshot, name, "name", FIXED),
        TEXT(struct snapshot, state, "state"),
        TEXT(struct snapshot, parent_id, "parentId", FIXED),
        TEXT(struct snapshot, rootfs, "rootfs", FIXED),
        TEXT(struct snapshot, image_id, "imageId", FIXED),
        TEXT(struct snapshot, place_id, NULL, FIXED),
        TEXT(struct snapshot, lease_id, "leaseId", FIXED),
        NUMBER(struct snapshot, first_id, NULL, FIXED),
        TEXT(struct snapshot, fork_by, NULL, FIXED),
        FLAG(struct snapshot, is_whole, NULL, FIXED),
        NUMBER(struct snapshot, bytes, "bytes"),
        TEXT(struct snapshot, owner_instance),
        TIME(struct snapshot, created_at, "createdAt", FIXED),
        TIME(struct snapshot, updated_at, "updatedAt"),
};
const struct row_type snapshot_table =
        ROW_TYPE("snapshots", struct snapshot, columns, "Snapshot not found");

int snapshots_by_name(struct db *db, const char *company_id, const char *name, struct arena *arena,
                      struct snapshot *ret, struct err *err)
{
        return row_get(db, &snapshot_table,
                       "SELECT * FROM snapshots WHERE company_id = ?1 AND name = ?2",
                       DB_ARGS(DB_T(company_id), DB_T(name)), arena, ret, err);
}

int snapshots_move(struct db *db, const char *id, const char *from, const struct snapshot *to,
                   struct err *err)
{
        return row_exec(db, &snapshot_table, "UPDATE snapshots SET * WHERE id = ?1 AND state = ?2",
                        to, DB_ARGS(DB_T(id), DB_T(from)), err);
}

int snapshots_delete(struct db *db, const char *id, const char *state, struct err *err)
{
        return db_exec(db, "DELETE FROM snapshots WHERE id = ?1 AND state = ?2",
                       DB_ARGS(DB_T(id), DB_T(state)), err);
}

int snapshots_list(struct db *db, const char *company_id, int64_t before_us, const char *before_id,
                   int64_t limit, struct arena *arena, snapshot_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &snapshot_table,
                        "SELECT * FROM snapshots WHERE company_id = ?1 AND fork_by IS NULL "
                        "AND (CAST(?3 AS TEXT) IS NULL OR created_at < ?2 "
                        "OR (created_at = ?2 AND id < ?3)) "
                        "ORDER BY created_at DESC, id DESC LIMIT ?4",
                        DB_ARGS(DB_T(company_id), DB_I(before_us), DB_T(before_id), DB_I(limit)),
                        arena, fn, ctx, err);
}

int snapshots_unused(struct db *db, struct arena *arena, struct snapshot **ret, struct err *err)
{
        return row_all(db, &snapshot_table,
                       "SELECT * FROM snapshots AS s WHERE fork_by IS NOT NULL AND state = 'ready' "
                       "AND NOT EXISTS (SELECT 1 FROM sandboxes WHERE snapshot_id = s.id) "
                       "AND NOT EXISTS (SELECT 1 FROM snapshots WHERE parent_id = s.id) "
                       "ORDER BY id",
                       DB_NO_ARGS, arena, ret, err);
}

int snapshots_open(struct db *db, struct arena *arena, struct snapshot **ret, struct err *err)
{
        return row_all(db, &snapshot_table,
                       "SELECT * FROM snapshots WHERE state <> 'ready' ORDER BY id", DB_NO_ARGS,
                       arena, ret, err);
}

int snapshots_count_users(struct db *db, const char *id, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT (SELECT COUNT(*) FROM sandboxes WHERE snapshot_id = ?1) + "
                         "(SELECT COUNT(*) FROM snapshots WHERE parent_id = ?1)",
                         DB_ARGS(DB_T(id)), ret, err);
}
