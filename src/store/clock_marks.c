/* The count of time that has passed, as rows. */
#include "store/clock_marks.h"

#include "store/row.h"

static const struct column columns[] = {
        NUMBER(struct clock_mark, counted_us),
        NUMBER(struct clock_mark, wall_us),
        TEXT(struct clock_mark, boot_id),
        NUMBER(struct clock_mark, mono_us),
};
const struct row_type clock_mark_table = ROW_TYPE("clock_marks", struct clock_mark, columns, NULL);

int clock_marks_insert(struct db *db, const struct clock_mark *row, struct err *err)
{
        return row_insert(db, &clock_mark_table, row, err);
}

int clock_marks_last(struct db *db, struct arena *arena, struct clock_mark *ret, struct err *err)
{
        return row_find(db, &clock_mark_table,
                        "SELECT * FROM clock_marks ORDER BY counted_us DESC LIMIT 1", DB_NO_ARGS,
                        arena, ret, err);
}

int clock_marks_lowest_since(struct db *db, int64_t counted_us, int64_t *ret_wall_us,
                             struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT MIN(wall_us) FROM clock_marks WHERE counted_us >= "
                         "(SELECT MAX(counted_us) FROM clock_marks WHERE counted_us <= ?1)",
                         DB_ARGS(DB_I(counted_us)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r <= 0 || stmt_is_null(s, 0))
                return MIN(r, 0);
        *ret_wall_us = stmt_number(s, 0);
        return 1;
}

int clock_marks_forget(struct db *db, int64_t counted_us, struct err *err)
{
        return db_exec(db,
                       "DELETE FROM clock_marks WHERE counted_us < "
                       "(SELECT MAX(counted_us) FROM clock_marks WHERE counted_us <= ?1)",
                       DB_ARGS(DB_I(counted_us)), err);
}
