/* SQL for `sandboxes`. */
#include "store/sandboxes.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct sandbox_row, place_id),  NUMBER(struct sandbox_row, first_id),
        NUMBER(struct sandbox_row, n_ids),   TEXT(struct sandbox_row, snapshot_id),
        FLAG(struct sandbox_row, is_paused), TIME(struct sandbox_row, created_at),
        TEXT(struct sandbox_row, node_id),   TEXT(struct sandbox_row, image_id),
        NUMBER(struct sandbox_row, user_id), NUMBER(struct sandbox_row, group_id),
};
const struct row_type sandbox_table =
        ROW_TYPE("sandboxes", struct sandbox_row, columns, "Sandbox not found");

/* More than any range has: a range that begins earlier cannot reach this one. */
#define RANGE_MAX 65536

int sandboxes_insert(struct db *db, const struct sandbox_row *row, struct err *err)
{
        return row_insert(db, &sandbox_table, row, err);
}

int sandboxes_get(struct db *db, const char *place_id, struct arena *arena, struct sandbox_row *ret,
                  struct err *err)
{
        return row_get(db, &sandbox_table, "SELECT * FROM sandboxes WHERE place_id = ?1",
                       DB_ARGS(DB_T(place_id)), arena, ret, err);
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
