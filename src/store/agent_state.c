/* SQL for the runtime state, the task sessions and the earlier configurations of agents. */
#include "store/agent_state.h"

#include "store/row.h"

static const struct column agent_runtime_state_columns[] = {
        TEXT(struct agent_runtime_state, agent_id, "agentId"),
        TEXT(struct agent_runtime_state, company_id, "companyId"),
        TEXT(struct agent_runtime_state, adapter_type, "adapterType"),
        TEXT(struct agent_runtime_state, session_id, "sessionId"),
        DOCUMENT(struct agent_runtime_state, state_json, "stateJson", READ_ONLY),
        TEXT(struct agent_runtime_state, last_run_id, "lastRunId"),
        TEXT(struct agent_runtime_state, last_run_status, "lastRunStatus"),
        NUMBER(struct agent_runtime_state, total_input_tokens, "totalInputTokens"),
        NUMBER(struct agent_runtime_state, total_output_tokens, "totalOutputTokens"),
        NUMBER(struct agent_runtime_state, total_cached_input_tokens, "totalCachedInputTokens"),
        NUMBER(struct agent_runtime_state, total_cost_cents, "totalCostCents"),
        TEXT(struct agent_runtime_state, last_error, "lastError"),
        TIME(struct agent_runtime_state, created_at, "createdAt"),
        TIME(struct agent_runtime_state, updated_at, "updatedAt"),
        TEXT(struct agent_runtime_state, session_display_id, "sessionDisplayId"),
        DOCUMENT(struct agent_runtime_state, session_params_json, "sessionParamsJson"),
};
const struct row_type agent_runtime_state_table =
        ROW_TYPE("agent_runtime_state", struct agent_runtime_state, agent_runtime_state_columns,
                 "Agent has no runtime state");

static const struct column agent_task_session_columns[] = {
        TEXT(struct agent_task_session, agent_id, "agentId"),
        TEXT(struct agent_task_session, task_key, "taskKey"),
        TEXT(struct agent_task_session, adapter_type, "adapterType"),
        TEXT(struct agent_task_session, session_display_id, "sessionDisplayId"),
        DOCUMENT(struct agent_task_session, session_params_json, "sessionParamsJson"),
        TEXT(struct agent_task_session, last_run_id, "lastRunId"),
        TEXT(struct agent_task_session, last_error, "lastError"),
        TIME(struct agent_task_session, created_at),
        TIME(struct agent_task_session, updated_at, "updatedAt"),
};
const struct row_type agent_task_session_table =
        ROW_TYPE("agent_task_sessions", struct agent_task_session, agent_task_session_columns,
                 "Agent has no session for this task");

static const struct column agent_config_revision_columns[] = {
        TEXT(struct agent_config_revision, id, "id"),
        TEXT(struct agent_config_revision, company_id, "companyId"),
        TEXT(struct agent_config_revision, agent_id, "agentId"),
        TEXT(struct agent_config_revision, created_by_agent_id, "createdByAgentId"),
        TEXT(struct agent_config_revision, created_by_user_id, "createdByUserId"),
        TEXT(struct agent_config_revision, source, "source"),
        TEXT(struct agent_config_revision, rolled_back_from_id, "rolledBackFromRevisionId"),
        DOCUMENT(struct agent_config_revision, changed_keys, "changedKeys"),
        DOCUMENT(struct agent_config_revision, before_config, "beforeConfig"),
        DOCUMENT(struct agent_config_revision, after_config, "afterConfig"),
        TIME(struct agent_config_revision, created_at, "createdAt"),
};
const struct row_type agent_config_revision_table =
        ROW_TYPE("agent_config_revisions", struct agent_config_revision,
                 agent_config_revision_columns, "Config revision not found");

int agent_runtime_state_get(struct db *db, const char *agent_id, struct arena *a,
                            struct agent_runtime_state *ret, struct err *err)
{
        return row_get(db, &agent_runtime_state_table,
                       "SELECT * FROM agent_runtime_state WHERE agent_id = ?1",
                       DB_ARGS(DB_T(agent_id)), a, ret, err);
}

int agent_runtime_state_reset(struct db *db, const char *agent_id, const char *task_key,
                              int64_t now_us, struct err *err)
{
        int r = db_exec(db,
                        "DELETE FROM agent_task_sessions WHERE agent_id = ?1 AND "
                        "(CAST(?2 AS TEXT) IS NULL OR task_key = ?2)",
                        DB_ARGS(DB_T(agent_id), DB_T(task_key)), err);

        if (r < 0 || task_key)
                return r;
        return db_exec(db,
                       "UPDATE agent_runtime_state SET session_id = NULL, "
                       "session_display_id = NULL, session_params_json = NULL, "
                       "state_json = '{}', last_error = NULL, updated_at = ?2 WHERE agent_id = ?1",
                       DB_ARGS(DB_T(agent_id), DB_I(now_us)), err);
}

/* The session stays unless the run has another (?1: or none). */
#define SESSION(column)                                                                            \
        "CASE WHEN ?1 = 1 OR excluded.session_params_json IS NOT NULL THEN excluded." column       \
        " ELSE agent_runtime_state." column " END"
#define SUM(column) "agent_runtime_state." column " + excluded." column

int agent_runtime_state_add(struct db *db, const struct agent_runtime_state *row,
                            bool clear_session, struct err *err)
{
        struct agent_runtime_state made = *row;

        made.created_at = row->updated_at;
        return row_exec(
                db, &agent_runtime_state_table,
                "INSERT INTO agent_runtime_state (*) "
                "ON CONFLICT (agent_id) DO UPDATE SET adapter_type = excluded.adapter_type, "
                "session_id = " SESSION("session_id") ", session_display_id = " SESSION("session_display_id") ", session_params_json = " SESSION(
                        "session_params_json") ", last_run_id = excluded.last_run_id, "
                                               "last_run_status = excluded.last_run_status, last_error = excluded.last_error, "
                                               "total_input_tokens = " SUM("total_input_tokens") ", total_output_tokens = " SUM("total_output_tokens") ", total_cached_input_tokens = " SUM(
                                                       "total_cached_input_tokens") ", total_cost_cents = " SUM("total_cost_cents") ", updated_at = excluded.updated_at",
                &made, DB_ARGS(DB_I(clear_session)), err);
}

int agent_task_session_get(struct db *db, const char *agent_id, const char *task_key,
                           struct arena *a, struct agent_task_session *ret, struct err *err)
{
        return row_get(db, &agent_task_session_table,
                       "SELECT * FROM agent_task_sessions WHERE agent_id = ?1 AND task_key = ?2",
                       DB_ARGS(DB_T(agent_id), DB_T(task_key)), a, ret, err);
}

int agent_task_sessions_list(struct db *db, const char *agent_id, struct arena *a,
                             agent_task_session_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &agent_task_session_table,
                        "SELECT * FROM agent_task_sessions WHERE agent_id = ?1 "
                        "ORDER BY updated_at DESC, task_key",
                        DB_ARGS(DB_T(agent_id)), a, fn, ctx, err);
}

int agent_task_session_put(struct db *db, const struct agent_task_session *row, struct err *err)
{
        struct agent_task_session made = *row;

        made.created_at = row->updated_at;
        return row_exec(db, &agent_task_session_table,
                        "INSERT INTO agent_task_sessions (*) "
                        "ON CONFLICT (agent_id, task_key) DO UPDATE SET "
                        "adapter_type = excluded.adapter_type, "
                        "session_params_json = excluded.session_params_json, "
                        "session_display_id = excluded.session_display_id, "
                        "last_run_id = excluded.last_run_id, last_error = excluded.last_error, "
                        "updated_at = excluded.updated_at",
                        &made, DB_NO_ARGS, err);
}

int agent_config_revisions_insert(struct db *db, const struct agent_config_revision *v,
                                  struct err *err)
{
        return row_insert(db, &agent_config_revision_table, v, err);
}

int agent_config_revisions_get(struct db *db, const char *agent_id, const char *id,
                               struct arena *arena, struct agent_config_revision *ret,
                               struct err *err)
{
        return row_get(db, &agent_config_revision_table,
                       "SELECT * FROM agent_config_revisions WHERE agent_id = ?1 AND id = ?2",
                       DB_ARGS(DB_T(agent_id), DB_T(id)), arena, ret, err);
}

int agent_config_revisions_list(struct db *db, const char *agent_id, struct arena *arena,
                                agent_config_revision_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &agent_config_revision_table,
                        "SELECT * FROM agent_config_revisions "
                        "WHERE agent_id = ?1 ORDER BY created_at DESC, id DESC",
                        DB_ARGS(DB_T(agent_id)), arena, fn, ctx, err);
}
