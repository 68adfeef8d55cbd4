/* Which migrations a database still needs, and running them. */
#include "store/migrate.h"

#include "base/clock.h"
#include "base/embedded.h"
#include "base/uuid.h"
#include "store/activity.h"

/* Agents that had no environment ran on the machine of the daemon. From version 10 on they would
 * run in the default environment of their company, or nowhere. Those that did run here go on doing
 * so, as a stored choice that the audit trail and `berth doctor` name. An agent whose adapter
 * starts no process needs no place and is left alone. */

#define ACTION "agent.environment_kept_by_upgrade"

struct kept {
        const char *agent, *company, *environment, *name, *environment_name;
};

static int keep_on_host(struct db *db, const struct kept *k, int64_t now, struct err *err)
{
        CLEAN(json_decrefp)
        json_t *details = json_pack("{s:s, s:s, s:s}", "name", k->name, "defaultEnvironmentId",
                                    k->environment, "environmentName", k->environment_name);
        CLEAN(cleanup_free) char *text = json_to_text(details);
        struct uuid id = uuid_new();
        struct activity entry = {
                .id = id.s,
                .company_id = k->company,
                .actor_type = "system",
                .actor_id = "upgrade",
                .action = ACTION,
                .entity_type = "agent",
                .entity_id = k->agent,
                .details = text,
                .created_at = now,
        };
        int r = db_exec(db,
                        "UPDATE agents SET default_environment_id = ?2, updated_at = ?3 "
                        "WHERE id = ?1",
                        DB_ARGS(DB_T(k->agent), DB_T(k->environment), DB_I(now)), err);

        return r < 0 ? r : activity_insert(db, &entry, err);
}

static int find_agents(struct db *db, struct arena *arena, struct kept **ret, size_t *ret_n,
                       struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        struct kept *found = NULL;
        size_t n = 0, room = 0;
        int r = db_query(
                db,
                "SELECT g.id, g.company_id, e.id, g.name, e.name FROM agents g "
                "JOIN environments e ON e.company_id = g.company_id AND e.driver = 'local' "
                "WHERE g.default_environment_id IS NULL AND g.adapter_type <> 'http' "
                "AND EXISTS (SELECT 1 FROM heartbeat_runs r "
                "WHERE r.agent_id = g.id AND r.environment_id = e.id) ORDER BY g.id",
                DB_NO_ARGS, &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                found = arena_more(arena, found, n, &room, sizeof(*found));
                found[n++] = (struct kept){
                        stmt_text(s, 0, arena), stmt_text(s, 1, arena), stmt_text(s, 2, arena),
                        stmt_text(s, 3, arena), stmt_text(s, 4, arena),
                };
        }
        *ret = found;
        *ret_n = n;
        return r;
}

/* What the SQL of a migration cannot do by itself, in the same transaction.
 *
 * 10: agents without an environment that ran on this machine keep running there: the local
 * environment of their company is written into them, each with an audit entry. */
static int migrate_0010(struct db *db, struct err *err)
{
        CLEAN(arena_done) struct arena arena;
        struct kept *found;
        size_t n;

        arena_init(&arena);
        int r = find_agents(db, &arena, &found, &n, err);
        for (size_t i = 0; r >= 0 && i < n; i++)
                r = keep_on_host(db, &found[i], clock_now_us(), err);
        return r;
}

/* Number of the migration, from the digits its file name starts with. */
static int64_t number_of(const struct embedded_file *file)
{
        return strtoll(file->name, NULL, 10);
}

static const struct {
        int64_t number;
        int (*after)(struct db *db, struct err *err);
} in_code[] = { { 10, migrate_0010 } };

/* The text of a migration for this back end. */
static const char *text_of(const struct db *db, const struct embedded_file *file)
{
        for (const struct embedded_file *own = db->ops->own_migrations; own && own->name; own++)
                if (streq(own->name, file->name))
                        return own->data;
        return file->data;
}

static int apply_migration(struct db *db, const struct embedded_file *file, struct err *err)
{
        int r = db_script(db, text_of(db, file), err);

        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(in_code); i++)
                if (in_code[i].number == number_of(file))
                        r = in_code[i].after(db, err);
        if (r < 0)
                return err_wrap(err, r, "migration %s", file->name);
        return db_exec(
                db, "INSERT INTO schema_migrations (version, name, applied_at) VALUES (?1, ?2, ?3)",
                DB_ARGS(DB_I(number_of(file)), DB_T(file->name), DB_I(clock_now_us())), err);
}

static int64_t newest_version(void)
{
        const struct embedded_file *last = store_migrations;

        while (last[1].name)
                last++;
        return number_of(last);
}

static int have_version(struct db *db, int64_t *ret, struct err *err)
{
        int r = db_number(db, "SELECT COALESCE(MAX(version), 0) FROM schema_migrations", DB_NO_ARGS,
                          ret, err);

        if (r >= 0 && *ret > newest_version())
                return err_set(
                        err, ERR_VERSION,
                        "the database has version %lld and this berth knows up to %lld: it was "
                        "written by a newer berth; start that one, or restore a backup",
                        (long long)*ret, (long long)newest_version());
        return r;
}

int migrate_check(struct db *db, struct err *err)
{
        int64_t have;

        return have_version(db, &have, err);
}

int migrate_check_same(struct db *db, struct err *err)
{
        int64_t have = 0;
        int r = have_version(db, &have, err);

        if (r >= 0 && have < newest_version())
                return err_set(err, ERR_VERSION,
                               "the database has version %lld and this berth makes %lld of it: "
                               "start its daemon with this berth, or run `berth db migrate`",
                               (long long)have, (long long)newest_version());
        return r;
}

int migrate(struct db *db, struct err *err)
{
        int64_t have;

        int r = db_script(db,
                          "CREATE TABLE IF NOT EXISTS schema_migrations "
                          "(version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, "
                          "applied_at BIGINT NOT NULL)",
                          err);
        if (r >= 0)
                r = have_version(db, &have, err);
        for (const struct embedded_file *f = store_migrations; r >= 0 && f->name; f++)
                if (number_of(f) > have)
                        r = apply_migration(db, f, err);
        return MIN(r, 0);
}
