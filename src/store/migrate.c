/* Which migrations a database still needs, and running them. */
#include "store/migrate.h"

#include "base/clock.h"
#include "base/embedded.h"

/* Number of the migration, from the digits its file name starts with. */
static int64_t number_of(const struct embedded_file *file)
{
        return strtoll(file->name, NULL, 10);
}

static const struct {
        int64_t number;
        int (*after)(struct db *db, struct err *err);
} in_code[] = { { 10, migrate_0010 } };

static int apply_migration(struct db *db, const struct embedded_file *file, struct err *err)
{
        int r = db_script(db, file->data, err);

        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(in_code); i++)
                if (in_code[i].number == number_of(file))
                        r = in_code[i].after(db, err);
        if (r < 0)
                return err_wrap(err, r, "migration %s", file->name);
        return db_exec(
                db, "INSERT INTO schema_migrations (version, name, applied_at) VALUES (?1, ?2, ?3)",
                DB_ARGS(DB_I(number_of(file)), DB_T(file->name), DB_I(clock_now_us())), err);
}

int migrate(struct db *db, struct err *err)
{
        int64_t have, newest = 0;

        int r = db_script(db,
                          "CREATE TABLE IF NOT EXISTS schema_migrations "
                          "(version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, "
                          "applied_at BIGINT NOT NULL)",
                          err);
        if (r < 0)
                return r;
        r = db_number(db, "SELECT COALESCE(MAX(version), 0) FROM schema_migrations", DB_NO_ARGS,
                      &have, err);
        if (r < 0)
                return r;
        for (const struct embedded_file *f = store_migrations; f->name; f++) {
                newest = number_of(f);
                if (newest <= have)
                        continue;
                r = apply_migration(db, f, err);
                if (r < 0)
                        return r;
        }
        if (have > newest)
                return err_set(
                        err, ERR_VERSION,
                        "the database has version %lld and this berth knows up to %lld: it was "
                        "written by a newer berth; start that one, or restore a backup",
                        (long long)have, (long long)newest);
        return 0;
}
