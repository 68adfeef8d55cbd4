#include "store/snapshots.h"

#define COLUMNS                                                                                    \
        "id, company_id, name, state, parent_id, rootfs, place_id, lease_id, first_id, bytes, "    \
        "owner_instance, created_at, updated_at"

static void load(struct stmt *s, struct arena *a, struct snapshot *row)
{
        *row = (struct snapshot){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .name = stmt_text(s, 2, a),
                .state = stmt_text(s, 3, a),
                .parent_id = stmt_text(s, 4, a),
                .rootfs = stmt_text(s, 5, a),
                .place_id = stmt_text(s, 6, a),
                .lease_id = stmt_text(s, 7, a),
                .first_id = stmt_number(s, 8),
                .bytes = stmt_number(s, 9),
                .owner_instance = stmt_text(s, 10, a),
                .created_at = stmt_number(s, 11),
                .updated_at = stmt_number(s, 12),
        };
}

int snapshots_insert(struct db *db, const struct snapshot *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO snapshots (" COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
                       DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->name),
                               DB_T(row->state), DB_T(row->parent_id), DB_T(row->rootfs),
                               DB_T(row->place_id), DB_T(row->lease_id), DB_I(row->first_id),
                               DB_I(row->bytes), DB_T(row->owner_instance), DB_I(row->created_at),
                               DB_I(row->updated_at)),
                       err);
}

static int get_one(struct stmt *s, struct arena *arena, struct snapshot *ret, struct err *err)
{
        int r = stmt_step(s, err);

        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Snapshot not found");
        load(s, arena, ret);
        return 0;
}

int snapshots_get(struct db *db, const char *id, struct arena *arena, struct snapshot *ret,
                  struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT " COLUMNS " FROM snapshots WHERE id = ?1", DB_ARGS(DB_T(id)),
                         &s, err);

        return r < 0 ? r : get_one(s, arena, ret, err);
}

int snapshots_by_name(struct db *db, const char *company_id, const char *name, struct arena *arena,
                      struct snapshot *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM snapshots WHERE company_id = ?1 AND name = ?2",
                         DB_ARGS(DB_T(company_id), DB_T(name)), &s, err);

        return r < 0 ? r : get_one(s, arena, ret, err);
}

int snapshots_move(struct db *db, const char *id, const char *from, const struct snapshot *to,
                   struct err *err)
{
        return db_exec(db,
                       "UPDATE snapshots SET state = ?3, bytes = ?4, owner_instance = ?5, "
                       "updated_at = ?6 WHERE id = ?1 AND state = ?2",
                       DB_ARGS(DB_T(id), DB_T(from), DB_T(to->state), DB_I(to->bytes),
                               DB_T(to->owner_instance), DB_I(to->updated_at)),
                       err);
}

int snapshots_delete(struct db *db, const char *id, const char *state, struct err *err)
{
        return db_exec(db, "DELETE FROM snapshots WHERE id = ?1 AND state = ?2",
                       DB_ARGS(DB_T(id), DB_T(state)), err);
}

static int each(struct stmt *s, struct arena *arena, snapshot_fn fn, void *ctx, struct err *err)
{
        int r = 0;

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct snapshot row;

                load(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

int snapshots_list(struct db *db, const char *company_id, int64_t before_us, const char *before_id,
                   int64_t limit, struct arena *arena, snapshot_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM snapshots WHERE company_id = ?1 "
                         "AND (CAST(?3 AS TEXT) IS NULL OR created_at < ?2 "
                         "OR (created_at = ?2 AND id < ?3)) "
                         "ORDER BY created_at DESC, id DESC LIMIT ?4",
                         DB_ARGS(DB_T(company_id), DB_I(before_us), DB_T(before_id), DB_I(limit)),
                         &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int snapshots_open(struct db *db, struct arena *arena, snapshot_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT " COLUMNS " FROM snapshots WHERE state <> 'ready' ORDER BY id",
                         DB_NO_ARGS, &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int snapshots_count_users(struct db *db, const char *id, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT (SELECT COUNT(*) FROM sandboxes WHERE snapshot_id = ?1) + "
                         "(SELECT COUNT(*) FROM snapshots WHERE parent_id = ?1)",
                         DB_ARGS(DB_T(id)), ret, err);
}
