/* Keeps empty pages in the database, and gives them up. */
#include "store/disk_reserve.h"

#include "base/util.h"

#define RESERVE ((size_t)1 << 20)

int disk_reserve_is_kept(struct db *db, void *arg, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT id FROM disk_reserve WHERE id = ?1", DB_ARGS(DB_I(1)), &s,
                         err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r >= 0)
                *(bool *)arg = r > 0;
        return MIN(r, 0);
}

int disk_reserve_keep(struct db *db, struct err *err)
{
        CLEAN(cleanup_free) char *filler = xcalloc(1, RESERVE + 1);

        memset(filler, ' ', RESERVE);
        return db_exec(db, "INSERT INTO disk_reserve (id, filler) VALUES (1, ?1)",
                       DB_ARGS(DB_T(filler)), err);
}

int disk_reserve_give(struct db *db, struct err *err)
{
        return db_exec(db, "DELETE FROM disk_reserve WHERE id = ?1", DB_ARGS(DB_I(1)), err);
}
