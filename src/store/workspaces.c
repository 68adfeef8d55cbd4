/* SQL for `workspaces`. */
#include "store/workspaces.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct workspace_row, id, "id", FIXED),
        TEXT(struct workspace_row, company_id, NULL, FIXED),
        TEXT(struct workspace_row, lease_id, "leaseId", FIXED),
        TEXT(struct workspace_row, place_id, NULL, FIXED),
        TEXT(struct workspace_row, state, "state"),
        NUMBER(struct workspace_row, epoch),
        TEXT(struct workspace_row, step),
        TEXT(struct workspace_row, way, "way", FIXED),
        TEXT(struct workspace_row, isolation, "isolation", FIXED),
        TEXT(struct workspace_row, local_path, "localPath", FIXED),
        TEXT(struct workspace_row, target_path),
        DOCUMENT(struct workspace_row, exclude, "exclude", FIXED),
        TEXT(struct workspace_row, cwd, "cwd"),
        NUMBER(struct workspace_row, umask),
        NUMBER(struct workspace_row, staged_ns, NULL, FIXED),
        NUMBER(struct workspace_row, files, "files"),
        NUMBER(struct workspace_row, bytes, "bytes"),
        NUMBER(struct workspace_row, sent_bytes, "sentBytes"),
        TIME_OR_NULL(struct workspace_row, restored_at, "restoredAt"),
        DOCUMENT(struct workspace_row, report, "lastRestore"),
        TEXT(struct workspace_row, note, "note"),
        NUMBER(struct workspace_row, attempts),
        TIME_OR_NULL(struct workspace_row, next_attempt_at),
        TEXT(struct workspace_row, owner_instance),
        TIME(struct workspace_row, created_at, "createdAt", FIXED),
        TIME(struct workspace_row, updated_at, "updatedAt"),
};
const struct row_type workspace_table =
        ROW_TYPE("workspaces", struct workspace_row, columns, "Workspace not found");

int workspaces_of_lease(struct db *db, const char *lease_id, struct arena *arena,
                        struct workspace_row *ret, struct err *err)
{
        int r = row_find(db, &workspace_table,
                         "SELECT * FROM workspaces WHERE lease_id = ?1 "
                         "ORDER BY created_at DESC, id DESC LIMIT 1",
                         DB_ARGS(DB_T(lease_id)), arena, ret, err);

        return r == 0 ? err_set(err, ERR_NOT_FOUND, "The lease has no workspace") : MIN(r, 0);
}

int workspaces_replace(struct db *db, const struct workspace_row *from,
                       const struct workspace_row *to, struct err *err)
{
        return row_exec(db, &workspace_table,
                        "UPDATE workspaces SET * WHERE id = ?1 AND state = ?2 AND epoch = ?3", to,
                        DB_ARGS(DB_T(from->id), DB_T(from->state), DB_I(from->epoch)), err);
}

int workspaces_living(struct db *db, const char *place_id, struct arena *arena, workspace_row_fn fn,
                      void *ctx, struct err *err)
{
        return ROW_EACH(db, &workspace_table,
                        "SELECT * FROM workspaces WHERE state <> 'ended' "
                        "AND (CAST(?1 AS TEXT) IS NULL OR place_id = ?1) ORDER BY created_at, id",
                        DB_ARGS(DB_T(place_id)), arena, fn, ctx, err);
}

int workspaces_of_execution_workspace(struct db *db, const char *id, struct arena *arena,
                                      workspace_row_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &workspace_table,
                        "SELECT * FROM workspaces WHERE lease_id IN (SELECT l.id FROM "
                        "environment_leases l WHERE l.execution_workspace_id = ?1) "
                        "ORDER BY created_at DESC, id DESC",
                        DB_ARGS(DB_T(id)), arena, fn, ctx, err);
}
