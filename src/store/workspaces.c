#include "store/workspaces.h"

#define COLUMNS                                                                                    \
        "id, company_id, lease_id, place_id, state, epoch, step, way, isolation, local_path, "     \
        "target_path, exclude, cwd, umask, staged_ns, files, bytes, sent_bytes, restored_at, "     \
        "report, note, attempts, next_attempt_at, owner_instance, created_at, updated_at"

static void load(struct stmt *s, struct arena *a, struct workspace_row *row)
{
        *row = (struct workspace_row){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .lease_id = stmt_text(s, 2, a),
                .place_id = stmt_text(s, 3, a),
                .state = stmt_text(s, 4, a),
                .epoch = stmt_number(s, 5),
                .step = stmt_text(s, 6, a),
                .way = stmt_text(s, 7, a),
                .isolation = stmt_text(s, 8, a),
                .local_path = stmt_text(s, 9, a),
                .target_path = stmt_text(s, 10, a),
                .exclude = stmt_text(s, 11, a),
                .cwd = stmt_text(s, 12, a),
                .umask = stmt_number(s, 13),
                .staged_ns = stmt_number(s, 14),
                .files = stmt_number(s, 15),
                .bytes = stmt_number(s, 16),
                .sent_bytes = stmt_number(s, 17),
                .restored_at = stmt_number(s, 18),
                .report = stmt_text(s, 19, a),
                .note = stmt_text(s, 20, a),
                .attempts = stmt_number(s, 21),
                .next_attempt_at = stmt_number(s, 22),
                .owner_instance = stmt_text(s, 23, a),
                .created_at = stmt_number(s, 24),
                .updated_at = stmt_number(s, 25),
        };
}

int workspaces_insert(struct db *db, const struct workspace_row *row, struct err *err)
{
        int r = db_exec(db,
                        "INSERT INTO workspaces (id, company_id, lease_id, place_id, state, epoch, "
                        "way, isolation, local_path, exclude, staged_ns, owner_instance, "
                        "created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "
                        "?11, ?12, ?13, ?14)",
                        DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->lease_id),
                                DB_T(row->place_id), DB_T(row->state), DB_I(row->epoch),
                                DB_T(row->way), DB_T(row->isolation), DB_T(row->local_path),
                                DB_T(row->exclude), DB_I(row->staged_ns), DB_T(row->owner_instance),
                                DB_I(row->created_at), DB_I(row->updated_at)),
                        err);

        return r < 0 ? r : 0;
}

static int get_one(struct stmt *s, const char *missing, struct arena *arena,
                   struct workspace_row *ret, struct err *err)
{
        int r = stmt_step(s, err);

        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "%s", missing);
        load(s, arena, ret);
        return 0;
}

int workspaces_get(struct db *db, const char *id, struct arena *arena, struct workspace_row *ret,
                   struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT " COLUMNS " FROM workspaces WHERE id = ?1", DB_ARGS(DB_T(id)),
                         &s, err);

        return r < 0 ? r : get_one(s, "Workspace not found", arena, ret, err);
}

int workspaces_of_lease(struct db *db, const char *lease_id, struct arena *arena,
                        struct workspace_row *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM workspaces WHERE lease_id = ?1 "
                         "ORDER BY created_at DESC, id DESC LIMIT 1",
                         DB_ARGS(DB_T(lease_id)), &s, err);

        return r < 0 ? r : get_one(s, "The lease has no workspace", arena, ret, err);
}

int workspaces_replace(struct db *db, const struct workspace_row *from,
                       const struct workspace_row *to, struct err *err)
{
        return db_exec(db,
                       "UPDATE workspaces SET state = ?4, epoch = ?5, step = ?6, target_path = ?7, "
                       "cwd = ?8, umask = ?9, files = ?10, bytes = ?11, sent_bytes = ?12, "
                       "restored_at = ?13, report = ?14, note = ?15, attempts = ?16, "
                       "next_attempt_at = ?17, owner_instance = ?18, updated_at = ?19 "
                       "WHERE id = ?1 AND state = ?2 AND epoch = ?3",
                       DB_ARGS(DB_T(from->id), DB_T(from->state), DB_I(from->epoch),
                               DB_T(to->state), DB_I(to->epoch), DB_T(to->step),
                               DB_T(to->target_path), DB_T(to->cwd), DB_I(to->umask),
                               DB_I(to->files), DB_I(to->bytes), DB_I(to->sent_bytes),
                               DB_TIME(to->restored_at), DB_T(to->report), DB_T(to->note),
                               DB_I(to->attempts), DB_TIME(to->next_attempt_at),
                               DB_T(to->owner_instance), DB_I(to->updated_at)),
                       err);
}

static int each(struct stmt *s, struct arena *arena, workspace_row_fn fn, void *ctx,
                struct err *err)
{
        int r = 0;

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct workspace_row row;

                load(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

int workspaces_living(struct db *db, const char *place_id, struct arena *arena, workspace_row_fn fn,
                      void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM workspaces WHERE state <> 'ended' "
                         "AND (CAST(?1 AS TEXT) IS NULL OR place_id = ?1) ORDER BY created_at, id",
                         DB_ARGS(DB_T(place_id)), &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int workspaces_of_execution_workspace(struct db *db, const char *id, struct arena *arena,
                                      workspace_row_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM workspaces WHERE lease_id IN (SELECT l.id FROM "
                         "environment_leases l WHERE l.execution_workspace_id = ?1) "
                         "ORDER BY created_at DESC, id DESC",
                         DB_ARGS(DB_T(id)), &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}
