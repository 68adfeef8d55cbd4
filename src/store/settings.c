/* SQL for `instance_settings` and the numbers of live events. */
#include "store/settings.h"

int settings_get(struct db *db, struct arena *arena, struct instance_settings *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT general, experimental FROM instance_settings "
                         "WHERE singleton_key = 'default'",
                         DB_NO_ARGS, &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        ret->general = r > 0 ? stmt_text(s, 0, arena) : "{}";
        ret->experimental = r > 0 ? stmt_text(s, 1, arena) : "{}";
        return 0;
}

int settings_put(struct db *db, const struct instance_settings *row, int64_t now_us,
                 struct err *err)
{
        return db_exec(
                db,
                "INSERT INTO instance_settings "
                "(singleton_key, general, experimental, created_at, updated_at) "
                "VALUES ('default', ?1, ?2, ?3, ?3) ON CONFLICT (singleton_key) DO UPDATE SET "
                "general = excluded.general, experimental = excluded.experimental, "
                "updated_at = excluded.updated_at",
                DB_ARGS(DB_T(row->general), DB_T(row->experimental), DB_I(now_us)), err);
}

/* A document whose only content is a number. */
int settings_get_event_numbers(struct db *db, int64_t *ret_end, struct err *err)
{
        int r = db_number(db,
                          "SELECT CAST(general AS BIGINT) FROM instance_settings "
                          "WHERE singleton_key = 'event-numbers'",
                          DB_NO_ARGS, ret_end, err);

        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        *ret_end = 0;
        return 0;
}

int settings_put_event_numbers(struct db *db, int64_t end, int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO instance_settings "
                       "(singleton_key, general, created_at, updated_at) "
                       "VALUES ('event-numbers', CAST(?1 AS TEXT), ?2, ?2) "
                       "ON CONFLICT (singleton_key) DO UPDATE SET "
                       "general = excluded.general, updated_at = excluded.updated_at",
                       DB_ARGS(DB_I(end), DB_I(now_us)), err);
}
