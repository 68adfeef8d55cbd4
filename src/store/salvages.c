#include "store/salvages.h"

#define COLUMNS                                                                                     \
        "id, company_id, workspace_id, lease_id, environment_id, state, reason, local_path, "       \
        "exclude, umask, changes, deletes, bytes, applied_at, expires_at, created_at, updated_at, " \
        "seen_at"

static void load(struct stmt *s, struct arena *a, struct salvage *row)
{
        *row = (struct salvage){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .workspace_id = stmt_text(s, 2, a),
                .lease_id = stmt_text(s, 3, a),
                .environment_id = stmt_text(s, 4, a),
                .state = stmt_text(s, 5, a),
                .reason = stmt_text(s, 6, a),
                .local_path = stmt_text(s, 7, a),
                .exclude = stmt_text(s, 8, a),
                .umask = stmt_number(s, 9),
                .changes = stmt_number(s, 10),
                .deletes = stmt_number(s, 11),
                .bytes = stmt_number(s, 12),
                .applied_at = stmt_number(s, 13),
                .expires_at = stmt_number(s, 14),
                .created_at = stmt_number(s, 15),
                .updated_at = stmt_number(s, 16),
                .seen_at = stmt_number(s, 17),
        };
}

int salvages_insert(struct db *db, const struct salvage *row, struct err *err)
{
        int r = db_exec(db,
                        "INSERT INTO salvages (id, company_id, workspace_id, lease_id, "
                        "environment_id, state, reason, local_path, exclude, expires_at, "
                        "created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, "
                        "?11, ?12)",
                        DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->workspace_id),
                                DB_T(row->lease_id), DB_T(row->environment_id), DB_T(row->state),
                                DB_T(row->reason), DB_T(row->local_path), DB_T(row->exclude),
                                DB_I(row->expires_at), DB_I(row->created_at),
                                DB_I(row->updated_at)),
                        err);

        return r < 0 ? r : 0;
}

static int get_one(struct stmt *s, struct arena *arena, struct salvage *ret, struct err *err)
{
        int r = stmt_step(s, err);

        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Salvage not found");
        load(s, arena, ret);
        return 0;
}

int salvages_get(struct db *db, const char *id, struct arena *arena, struct salvage *ret,
                 struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT " COLUMNS " FROM salvages WHERE id = ?1", DB_ARGS(DB_T(id)),
                         &s, err);

        return r < 0 ? r : get_one(s, arena, ret, err);
}

int salvages_saving(struct db *db, const char *workspace_id, struct arena *arena,
                    struct salvage *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(
                db, "SELECT " COLUMNS " FROM salvages WHERE workspace_id = ?1 AND state = 'saving'",
                DB_ARGS(DB_T(workspace_id)), &s, err);

        return r < 0 ? r : get_one(s, arena, ret, err);
}

int salvages_move(struct db *db, const char *id, const char *from, const struct salvage *to,
                  struct err *err)
{
        return db_exec(db,
                       "UPDATE salvages SET state = ?3, umask = ?4, changes = ?5, deletes = ?6, "
                       "bytes = ?7, applied_at = ?8, updated_at = ?9 WHERE id = ?1 AND state = ?2",
                       DB_ARGS(DB_T(id), DB_T(from), DB_T(to->state), DB_I(to->umask),
                               DB_I(to->changes), DB_I(to->deletes), DB_I(to->bytes),
                               DB_TIME(to->applied_at), DB_I(to->updated_at)),
                       err);
}

int salvages_delete(struct db *db, const char *id, const char *state, struct err *err)
{
        return db_exec(db, "DELETE FROM salvages WHERE id = ?1 AND state = ?2",
                       DB_ARGS(DB_T(id), DB_T(state)), err);
}

static int each(struct stmt *s, struct arena *arena, salvage_fn fn, void *ctx, struct err *err)
{
        int r = 0;

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct salvage row;

                load(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

int salvages_list(struct db *db, const char *company_id, int64_t before_us, const char *before_id,
                  int64_t limit, struct arena *arena, salvage_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM salvages WHERE company_id = ?1 "
                         "AND state = 'ready' AND (CAST(?3 AS TEXT) IS NULL OR created_at < ?2 "
                         "OR (created_at = ?2 AND id < ?3)) "
                         "ORDER BY created_at DESC, id DESC LIMIT ?4",
                         DB_ARGS(DB_T(company_id), DB_I(before_us), DB_T(before_id), DB_I(limit)),
                         &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
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
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM salvages WHERE "
                         "(state = 'ready' AND created_at < ?1 AND (seen_at < ?1 OR ?2 = 1)) "
                         "OR state = 'dropping' OR "
                         "(state = 'saving' AND NOT EXISTS (SELECT 1 FROM workspaces w "
                         "WHERE w.id = workspace_id AND w.state <> 'ended')) ORDER BY id",
                         DB_ARGS(DB_I(before_us), DB_I(unseen)), &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}
