#include "store/agents.h"

#define COLUMNS                                                                                    \
        "id, company_id, name, url_key, role, title, icon, status, reports_to, "                   \
        "capabilities, adapter_type, adapter_config, runtime_config, permissions, "                \
        "default_environment_id, budget_monthly_cents, spent_monthly_cents, pause_reason, "        \
        "paused_at, last_heartbeat_at, metadata, created_at, updated_at, configured_by_agent_id"
#define KEY_COLUMNS "id, agent_id, company_id, name, token_sha256, revoked_at, created_at"

static void load(struct stmt *s, struct arena *a, struct agent *g)
{
        *g = (struct agent){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .name = stmt_text(s, 2, a),
                .url_key = stmt_text(s, 3, a),
                .role = stmt_text(s, 4, a),
                .title = stmt_text(s, 5, a),
                .icon = stmt_text(s, 6, a),
                .status = stmt_text(s, 7, a),
                .reports_to = stmt_text(s, 8, a),
                .capabilities = stmt_text(s, 9, a),
                .adapter_type = stmt_text(s, 10, a),
                .adapter_config = stmt_text(s, 11, a),
                .runtime_config = stmt_text(s, 12, a),
                .permissions = stmt_text(s, 13, a),
                .default_environment_id = stmt_text(s, 14, a),
                .budget_monthly_cents = stmt_number(s, 15),
                .spent_monthly_cents = stmt_number(s, 16),
                .pause_reason = stmt_text(s, 17, a),
                .paused_at = stmt_number(s, 18),
                .last_heartbeat_at = stmt_number(s, 19),
                .metadata = stmt_text(s, 20, a),
                .created_at = stmt_number(s, 21),
                .updated_at = stmt_number(s, 22),
                .configured_by_agent_id = stmt_text(s, 23, a),
        };
}

static void load_key(struct stmt *s, struct arena *a, struct agent_key *k)
{
        *k = (struct agent_key){
                .id = stmt_text(s, 0, a),
                .agent_id = stmt_text(s, 1, a),
                .company_id = stmt_text(s, 2, a),
                .name = stmt_text(s, 3, a),
                .token_sha256 = stmt_text(s, 4, a),
                .revoked_at = stmt_number(s, 5),
                .created_at = stmt_number(s, 6),
        };
}

int agents_insert(struct db *db, const struct agent *row, struct err *err)
{
        return db_exec(
                db,
                "INSERT INTO agents (" COLUMNS
                ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, "
                "?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24)",
                DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->name), DB_T(row->url_key),
                        DB_T(row->role), DB_T(row->title), DB_T(row->icon), DB_T(row->status),
                        DB_T(row->reports_to), DB_T(row->capabilities), DB_T(row->adapter_type),
                        DB_T(row->adapter_config), DB_T(row->runtime_config),
                        DB_T(row->permissions), DB_T(row->default_environment_id),
                        DB_I(row->budget_monthly_cents), DB_I(row->spent_monthly_cents),
                        DB_T(row->pause_reason), DB_TIME(row->paused_at),
                        DB_TIME(row->last_heartbeat_at), DB_T(row->metadata), DB_I(row->created_at),
                        DB_I(row->updated_at), DB_T(row->configured_by_agent_id)),
                err);
}

int agents_get(struct db *db, const char *id, struct arena *arena, struct agent *ret,
               struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT " COLUMNS " FROM agents WHERE id = ?1", DB_ARGS(DB_T(id)), &s,
                         err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Agent not found");
        load(s, arena, ret);
        return 0;
}

int agents_list(struct db *db, const char *company_id, struct arena *arena, agent_fn fn, void *ctx,
                struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM agents WHERE company_id = ?1 "
                         "ORDER BY created_at, id",
                         DB_ARGS(DB_T(company_id)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct agent g;

                load(s, arena, &g);
                r = fn(ctx, &g);
        }
        return r;
}

int agents_find(struct db *db, const char *company_id, const char *url_key, struct arena *arena,
                struct agent *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM agents WHERE company_id = ?1 AND url_key = ?2 "
                         "AND status <> 'terminated'",
                         DB_ARGS(DB_T(company_id), DB_T(url_key)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Agent not found");
        load(s, arena, ret);
        r = stmt_step(s, err);
        if (r > 0)
                return err_set(err, ERR_CONFLICT,
                               "Agent shortname is ambiguous in this company. Use the agent ID.");
        return r;
}

int agents_update(struct db *db, const struct agent *g, const char *seen_status, struct err *err)
{
        return db_exec(
                db,
                "UPDATE agents SET name = ?2, url_key = ?3, role = ?4, title = ?5, icon = ?6, "
                "status = ?7, reports_to = ?8, capabilities = ?9, adapter_type = ?10, "
                "adapter_config = ?11, runtime_config = ?12, permissions = ?13, "
                "default_environment_id = ?14, budget_monthly_cents = ?15, pause_reason = ?16, "
                "paused_at = ?17, metadata = ?18, updated_at = ?19, configured_by_agent_id = ?21 "
                "WHERE id = ?1 AND status = ?20",
                DB_ARGS(DB_T(g->id), DB_T(g->name), DB_T(g->url_key), DB_T(g->role), DB_T(g->title),
                        DB_T(g->icon), DB_T(g->status), DB_T(g->reports_to), DB_T(g->capabilities),
                        DB_T(g->adapter_type), DB_T(g->adapter_config), DB_T(g->runtime_config),
                        DB_T(g->permissions), DB_T(g->default_environment_id),
                        DB_I(g->budget_monthly_cents), DB_T(g->pause_reason), DB_TIME(g->paused_at),
                        DB_T(g->metadata), DB_I(g->updated_at), DB_T(seen_status),
                        DB_T(g->configured_by_agent_id)),
                err);
}

int agents_set_permissions(struct db *db, const char *id, const char *permissions, int64_t now_us,
                           struct err *err)
{
        return db_exec(db, "UPDATE agents SET permissions = ?2, updated_at = ?3 WHERE id = ?1",
                       DB_ARGS(DB_T(id), DB_T(permissions), DB_I(now_us)), err);
}

int agents_note_run(struct db *db, const char *id, const char *status, int64_t heartbeat_at,
                    int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE agents SET status = ?2, "
                       "last_heartbeat_at = COALESCE(CAST(?3 AS BIGINT), last_heartbeat_at), "
                       "updated_at = ?4 WHERE id = ?1 "
                       "AND status IN ('active', 'idle', 'running', 'error')",
                       DB_ARGS(DB_T(id), DB_T(status), DB_TIME(heartbeat_at), DB_I(now_us)), err);
}

int agents_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM agents WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

int agent_keys_insert(struct db *db, const struct agent_key *row, struct err *err)
{
        return db_exec(
                db,
                "INSERT INTO agent_api_keys (" KEY_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                DB_ARGS(DB_T(row->id), DB_T(row->agent_id), DB_T(row->company_id), DB_T(row->name),
                        DB_T(row->token_sha256), DB_TIME(row->revoked_at), DB_I(row->created_at)),
                err);
}

int agent_keys_list(struct db *db, const char *agent_id, struct arena *arena, agent_key_fn fn,
                    void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " KEY_COLUMNS " FROM agent_api_keys WHERE agent_id = ?1 "
                         "ORDER BY created_at, id",
                         DB_ARGS(DB_T(agent_id)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct agent_key k;

                load_key(s, arena, &k);
                r = fn(ctx, &k);
        }
        return r;
}

int agent_keys_revoke(struct db *db, const char *agent_id, const char *key_id, int64_t now_us,
                      struct err *err)
{
        return db_exec(db,
                       "UPDATE agent_api_keys SET revoked_at = COALESCE(revoked_at, ?3) "
                       "WHERE id = ?2 AND agent_id = ?1",
                       DB_ARGS(DB_T(agent_id), DB_T(key_id), DB_I(now_us)), err);
}

int agent_keys_revoke_all(struct db *db, const char *agent_id, int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE agent_api_keys SET revoked_at = ?2 WHERE agent_id = ?1 "
                       "AND revoked_at IS NULL",
                       DB_ARGS(DB_T(agent_id), DB_I(now_us)), err);
}

int agent_keys_by_token(struct db *db, const char *token_sha256, struct arena *arena,
                        struct agent_key *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " KEY_COLUMNS " FROM agent_api_keys WHERE token_sha256 = ?1 "
                         "AND revoked_at IS NULL",
                         DB_ARGS(DB_T(token_sha256)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Key not found");
        load_key(s, arena, ret);
        return 0;
}
