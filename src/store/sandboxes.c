#include "store/sandboxes.h"

/* More than any range has: what begins earlier cannot reach us. */
#define RANGE_MAX 65536

int sandboxes_insert(struct db *db, const struct sandbox_row *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO sandboxes (place_id, first_id, n_ids, snapshot_id, is_paused, "
                       "created_at, node_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                       DB_ARGS(DB_T(row->place_id), DB_I(row->first_id), DB_I(row->n_ids),
                               DB_T(row->snapshot_id), DB_I(row->is_paused), DB_I(row->created_at),
                               DB_T(row->node_id)),
                       err);
}

int sandboxes_get(struct db *db, const char *place_id, struct arena *arena, struct sandbox_row *ret,
                  struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT place_id, first_id, n_ids, snapshot_id, is_paused, created_at, "
                         "node_id FROM sandboxes WHERE place_id = ?1",
                         DB_ARGS(DB_T(place_id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Sandbox not found");
        if (r < 0)
                return r;
        *ret = (struct sandbox_row){
                .place_id = stmt_text(s, 0, arena),
                .first_id = stmt_number(s, 1),
                .n_ids = stmt_number(s, 2),
                .snapshot_id = stmt_text(s, 3, arena),
                .is_paused = stmt_number(s, 4) != 0,
                .created_at = stmt_number(s, 5),
                .node_id = stmt_text(s, 6, arena),
        };
        return 0;
}

int sandboxes_delete(struct db *db, const char *place_id, struct err *err)
{
        return db_exec(db, "DELETE FROM sandboxes WHERE place_id = ?1", DB_ARGS(DB_T(place_id)),
                       err);
}

int sandboxes_overlap(struct db *db, const char *node_id, int64_t first, int64_t n, bool *ret,
                      struct err *err)
{
        int64_t found;
        int r = db_number(
                db,
                "SELECT COUNT(*) FROM sandboxes WHERE node_id = ?4 AND first_id < ?2 "
                "AND first_id > ?3 AND first_id + n_ids > ?1",
                DB_ARGS(DB_I(first), DB_I(first + n), DB_I(first - RANGE_MAX), DB_T(node_id)),
                &found, err);

        if (r >= 0)
                *ret = found > 0;
        return r;
}

int sandboxes_set_paused(struct db *db, const char *place_id, bool is_paused, struct err *err)
{
        return db_exec(db, "UPDATE sandboxes SET is_paused = ?2 WHERE place_id = ?1",
                       DB_ARGS(DB_T(place_id), DB_I(is_paused)), err);
}
