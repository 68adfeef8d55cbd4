/* Agents that had no environment ran on the machine of the daemon. From version 10 on they would
 * run in the default environment of their company, or nowhere. Those that did run here go on doing
 * so, as a stored choice that the audit trail and `berth doctor` name. An agent whose adapter
 * starts no process needs no place and is left alone. */
#include "base/clock.h"
#include "base/uuid.h"
#include "store/activity.h"
#include "store/migrate.h"

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

int migrate_0010(struct db *db, struct err *err)
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
