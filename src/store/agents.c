/* SQL for `agents` and their keys. */
#include "store/agents.h"

#include "store/row.h"

static const struct column agent_columns[] = {
        TEXT(struct agent, id, "id", FIXED),
        TEXT(struct agent, company_id, "companyId", FIXED),
        TEXT(struct agent, name, "name"),
        TEXT(struct agent, url_key, "urlKey"),
        TEXT(struct agent, role, "role"),
        TEXT(struct agent, title, "title"),
        TEXT(struct agent, icon, "icon"),
        TEXT(struct agent, status, "status"),
        TEXT(struct agent, reports_to, "reportsTo"),
        TEXT(struct agent, capabilities, "capabilities"),
        TEXT(struct agent, adapter_type, "adapterType"),
        DOCUMENT(struct agent, adapter_config, "adapterConfig"),
        DOCUMENT(struct agent, runtime_config, "runtimeConfig"),
        TEXT(struct agent, default_environment_id, "defaultEnvironmentId"),
        NUMBER(struct agent, budget_monthly_cents, "budgetMonthlyCents"),
        NUMBER(struct agent, spent_monthly_cents, "spentMonthlyCents", FIXED),
        TEXT(struct agent, pause_reason, "pauseReason"),
        TIME_OR_NULL(struct agent, paused_at, "pausedAt"),
        DOCUMENT(struct agent, permissions, "permissions"),
        TIME_OR_NULL(struct agent, last_heartbeat_at, "lastHeartbeatAt", FIXED),
        DOCUMENT(struct agent, metadata, "metadata"),
        TIME(struct agent, created_at, "createdAt", FIXED),
        TIME(struct agent, updated_at, "updatedAt"),
        TEXT(struct agent, configured_by_agent_id),
        TIME_OR_NULL(struct agent, erasing_at, NULL, FIXED),
};
const struct row_type agent_table =
        ROW_TYPE("agents", struct agent, agent_columns, "Agent not found");

static const struct column agent_key_columns[] = {
        TEXT(struct agent_key, id, "id"),
        TEXT(struct agent_key, agent_id),
        TEXT(struct agent_key, company_id),
        TEXT(struct agent_key, name, "name"),
        TEXT(struct agent_key, token_sha256),
        TIME(struct agent_key, created_at, "createdAt"),
        TIME_OR_NULL(struct agent_key, revoked_at, "revokedAt"),
};
const struct row_type agent_key_table =
        ROW_TYPE("agent_api_keys", struct agent_key, agent_key_columns, "Key not found");

int agents_list(struct db *db, const char *company_id, struct arena *arena, agent_fn fn, void *ctx,
                struct err *err)
{
        return ROW_EACH(db, &agent_table,
                        "SELECT * FROM agents WHERE company_id = ?1 "
                        "ORDER BY created_at, id",
                        DB_ARGS(DB_T(company_id)), arena, fn, ctx, err);
}

int agents_find(struct db *db, const char *company_id, const char *url_key, struct arena *arena,
                struct agent *ret, struct err *err)
{
        return row_only(db, &agent_table,
                        "SELECT * FROM agents WHERE company_id = ?1 AND url_key = ?2 "
                        "AND status <> 'terminated'",
                        DB_ARGS(DB_T(company_id), DB_T(url_key)),
                        "Agent shortname is ambiguous in this company. Use the agent ID.", arena,
                        ret, err);
}

int agents_update(struct db *db, const struct agent *g, const char *seen_status, struct err *err)
{
        return row_exec(db, &agent_table, "UPDATE agents SET * WHERE id = ?1 AND status = ?2", g,
                        DB_ARGS(DB_T(g->id), DB_T(seen_status)), err);
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

int agents_set_erasing(struct db *db, const char *id, int64_t now_us, struct err *err)
{
        return db_exec(db, "UPDATE agents SET erasing_at = ?2 WHERE id = ?1",
                       DB_ARGS(DB_T(id), DB_I(now_us)), err);
}

int agents_erasing(struct db *db, struct arena *arena, agent_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &agent_table, "SELECT * FROM agents WHERE erasing_at IS NOT NULL",
                        DB_NO_ARGS, arena, fn, ctx, err);
}

int agents_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM agents WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

int agent_keys_insert(struct db *db, const struct agent_key *row, struct err *err)
{
        return row_insert(db, &agent_key_table, row, err);
}

int agent_keys_list(struct db *db, const char *agent_id, struct arena *arena, agent_key_fn fn,
                    void *ctx, struct err *err)
{
        return ROW_EACH(db, &agent_key_table,
                        "SELECT * FROM agent_api_keys WHERE agent_id = ?1 "
                        "ORDER BY created_at, id",
                        DB_ARGS(DB_T(agent_id)), arena, fn, ctx, err);
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
        return row_get(db, &agent_key_table,
                       "SELECT * FROM agent_api_keys WHERE token_sha256 = ?1 "
                       "AND revoked_at IS NULL",
                       DB_ARGS(DB_T(token_sha256)), arena, ret, err);
}
