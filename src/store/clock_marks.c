/* The count of time that has passed, as rows. */
#include "store/clock_marks.h"

int clock_marks_insert(struct db *db, const struct clock_mark *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO clock_marks (counted_us, wall_us, boot_id, mono_us) "
                       "VALUES (?1, ?2, ?3, ?4)",
                       DB_ARGS(DB_I(row->counted_us), DB_I(row->wall_us), DB_T(row->boot_id),
                               DB_I(row->mono_us)),
                       err);
}

int clock_marks_last(struct db *db, struct arena *arena, struct clock_mark *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT counted_us, wall_us, boot_id, mono_us FROM clock_marks "
                         "ORDER BY counted_us DESC LIMIT 1",
                         DB_NO_ARGS, &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r > 0)
                *ret = (struct clock_mark){ .counted_us = stmt_number(s, 0),
                                            .wall_us = stmt_number(s, 1),
                                            .boot_id = stmt_text(s, 2, arena),
                                            .mono_us = stmt_number(s, 3) };
        return r;
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
