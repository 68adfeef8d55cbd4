#include "store/agent_state.h"

#define REVISION_COLUMNS                                                                           \
        "id, company_id, agent_id, source, rolled_back_from_id, changed_keys, before_config, "     \
        "after_config, created_by_agent_id, created_by_user_id, created_at"

int agent_runtime_state_get(struct db *db, const char *agent_id, struct arena *a,
                            struct agent_runtime_state *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT agent_id, company_id, adapter_type, session_id, "
                         "session_display_id, session_params_json, state_json, last_run_id, "
                         "last_run_status, last_error, total_input_tokens, total_output_tokens, "
                         "total_cached_input_tokens, total_cost_cents, created_at, updated_at "
                         "FROM agent_runtime_state WHERE agent_id = ?1",
                         DB_ARGS(DB_T(agent_id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Agent has no runtime state");
        *ret = (struct agent_runtime_state){
                .agent_id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .adapter_type = stmt_text(s, 2, a),
                .session_id = stmt_text(s, 3, a),
                .session_display_id = stmt_text(s, 4, a),
                .session_params_json = stmt_text(s, 5, a),
                .state_json = stmt_text(s, 6, a),
                .last_run_id = stmt_text(s, 7, a),
                .last_run_status = stmt_text(s, 8, a),
                .last_error = stmt_text(s, 9, a),
                .total_input_tokens = stmt_number(s, 10),
                .total_output_tokens = stmt_number(s, 11),
                .total_cached_input_tokens = stmt_number(s, 12),
                .total_cost_cents = stmt_number(s, 13),
                .created_at = stmt_number(s, 14),
                .updated_at = stmt_number(s, 15),
        };
        return 0;
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

int agent_runtime_state_add(struct db *db, const struct agent_runtime_state *row,
                            bool clear_session, struct err *err)
{
        return db_exec(
                db,
                "INSERT INTO agent_runtime_state (agent_id, company_id, adapter_type, session_id, "
                "session_display_id, session_params_json, last_run_id, last_run_status, "
                "last_error, total_input_tokens, total_output_tokens, total_cached_input_tokens, "
                "total_cost_cents, created_at, updated_at) "
                "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?14) "
                "ON CONFLICT (agent_id) DO UPDATE SET adapter_type = ?3, "
                "session_id = CASE WHEN ?15 = 1 OR CAST(?6 AS TEXT) IS NOT NULL "
                "THEN ?4 ELSE agent_runtime_state.session_id END, "
                "session_display_id = CASE WHEN ?15 = 1 OR CAST(?6 AS TEXT) IS NOT NULL "
                "THEN ?5 ELSE agent_runtime_state.session_display_id END, "
                "session_params_json = CASE WHEN ?15 = 1 OR CAST(?6 AS TEXT) IS NOT NULL "
                "THEN ?6 ELSE agent_runtime_state.session_params_json END, "
                "last_run_id = ?7, last_run_status = ?8, last_error = ?9, "
                "total_input_tokens = agent_runtime_state.total_input_tokens + ?10, "
                "total_output_tokens = agent_runtime_state.total_output_tokens + ?11, "
                "total_cached_input_tokens = "
                "agent_runtime_state.total_cached_input_tokens + ?12, "
                "total_cost_cents = agent_runtime_state.total_cost_cents + ?13, updated_at = ?14",
                DB_ARGS(DB_T(row->agent_id), DB_T(row->company_id), DB_T(row->adapter_type),
                        DB_T(row->session_id), DB_T(row->session_display_id),
                        DB_T(row->session_params_json), DB_T(row->last_run_id),
                        DB_T(row->last_run_status), DB_T(row->last_error),
                        DB_I(row->total_input_tokens), DB_I(row->total_output_tokens),
                        DB_I(row->total_cached_input_tokens), DB_I(row->total_cost_cents),
                        DB_I(row->updated_at), DB_I(clear_session)),
                err);
}

#define SESSION_COLUMNS                                                                            \
        "agent_id, task_key, adapter_type, session_params_json, session_display_id, last_run_id, " \
        "last_error, updated_at"

static struct agent_task_session read_session(struct stmt *s, struct arena *a)
{
        return (struct agent_task_session){
                .agent_id = stmt_text(s, 0, a),
                .task_key = stmt_text(s, 1, a),
                .adapter_type = stmt_text(s, 2, a),
                .session_params_json = stmt_text(s, 3, a),
                .session_display_id = stmt_text(s, 4, a),
                .last_run_id = stmt_text(s, 5, a),
                .last_error = stmt_text(s, 6, a),
                .updated_at = stmt_number(s, 7),
        };
}

int agent_task_session_get(struct db *db, const char *agent_id, const char *task_key,
                           struct arena *a, struct agent_task_session *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " SESSION_COLUMNS
                         " FROM agent_task_sessions WHERE agent_id = ?1 AND task_key = ?2",
                         DB_ARGS(DB_T(agent_id), DB_T(task_key)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Agent has no session for this task");
        *ret = read_session(s, a);
        return 0;
}

int agent_task_sessions_list(struct db *db, const char *agent_id, struct arena *a,
                             agent_task_session_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " SESSION_COLUMNS " FROM agent_task_sessions WHERE agent_id = ?1 "
                         "ORDER BY updated_at DESC, task_key",
                         DB_ARGS(DB_T(agent_id)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct agent_task_session row = read_session(s, a);

                r = fn(ctx, &row);
        }
        return r;
}

int agent_task_session_put(struct db *db, const struct agent_task_session *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO agent_task_sessions (agent_id, task_key, adapter_type, "
                       "session_params_json, session_display_id, last_run_id, last_error, "
                       "created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8) "
                       "ON CONFLICT (agent_id, task_key) DO UPDATE SET adapter_type = ?3, "
                       "session_params_json = ?4, session_display_id = ?5, last_run_id = ?6, "
                       "last_error = ?7, updated_at = ?8",
                       DB_ARGS(DB_T(row->agent_id), DB_T(row->task_key), DB_T(row->adapter_type),
                               DB_T(row->session_params_json), DB_T(row->session_display_id),
                               DB_T(row->last_run_id), DB_T(row->last_error),
                               DB_I(row->updated_at)),
                       err);
}

int agent_config_revisions_insert(struct db *db, const struct agent_config_revision *v,
                                  struct err *err)
{
        return db_exec(db,
                       "INSERT INTO agent_config_revisions (" REVISION_COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                       DB_ARGS(DB_T(v->id), DB_T(v->company_id), DB_T(v->agent_id), DB_T(v->source),
                               DB_T(v->rolled_back_from_id), DB_T(v->changed_keys),
                               DB_T(v->before_config), DB_T(v->after_config),
                               DB_T(v->created_by_agent_id), DB_T(v->created_by_user_id),
                               DB_I(v->created_at)),
                       err);
}

static int each_revision(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
                         struct arena *a, agent_config_revision_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, sql, args, n_args, &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct agent_config_revision row = {
                        .id = stmt_text(s, 0, a),
                        .company_id = stmt_text(s, 1, a),
                        .agent_id = stmt_text(s, 2, a),
                        .source = stmt_text(s, 3, a),
                        .rolled_back_from_id = stmt_text(s, 4, a),
                        .changed_keys = stmt_text(s, 5, a),
                        .before_config = stmt_text(s, 6, a),
                        .after_config = stmt_text(s, 7, a),
                        .created_by_agent_id = stmt_text(s, 8, a),
                        .created_by_user_id = stmt_text(s, 9, a),
                        .created_at = stmt_number(s, 10),
                };

                r = fn(ctx, &row);
        }
        return r;
}

static int note(void *ctx, const struct agent_config_revision *row)
{
        *(struct agent_config_revision *)ctx = *row;
        return 0;
}

int agent_config_revisions_get(struct db *db, const char *agent_id, const char *id,
                               struct arena *arena, struct agent_config_revision *ret,
                               struct err *err)
{
        struct agent_config_revision found = { 0 };
        int r = each_revision(db,
                              "SELECT " REVISION_COLUMNS " FROM agent_config_revisions "
                              "WHERE agent_id = ?1 AND id = ?2",
                              DB_ARGS(DB_T(agent_id), DB_T(id)), arena, note, &found, err);

        if (r >= 0 && !found.id)
                r = err_set(err, ERR_NOT_FOUND, "Config revision not found");
        if (r >= 0)
                *ret = found;
        return r;
}

int agent_config_revisions_list(struct db *db, const char *agent_id, struct arena *arena,
                                agent_config_revision_fn fn, void *ctx, struct err *err)
{
        return each_revision(db,
                             "SELECT " REVISION_COLUMNS " FROM agent_config_revisions "
                             "WHERE agent_id = ?1 ORDER BY created_at DESC, id DESC",
                             DB_ARGS(DB_T(agent_id)), arena, fn, ctx, err);
}
