/* What is remembered of an agent besides its row: the state between its runs, its sessions, and how
 * it was configured before. Documents are JSON texts. */
#pragma once

#include "store/db.h"

struct agent_runtime_state {
        const char *agent_id, *company_id, *adapter_type;
        const char *session_id, *session_display_id, *session_params_json, *state_json;
        const char *last_run_id, *last_run_status, *last_error;
        int64_t total_input_tokens, total_output_tokens, total_cached_input_tokens;
        int64_t total_cost_cents;
        int64_t created_at, updated_at;
};

extern const struct row_type agent_runtime_state_table;

struct agent_config_revision {
        const char *id, *company_id, *agent_id, *source, *rolled_back_from_id;
        const char *changed_keys;                 /* array */
        const char *before_config, *after_config; /* objects */
        const char *created_by_agent_id, *created_by_user_id;
        int64_t created_at;
};

extern const struct row_type agent_config_revision_table;

typedef int (*agent_config_revision_fn)(void *ctx, const struct agent_config_revision *row);

/* ERR_NOT_FOUND when nothing is remembered yet. */
int agent_runtime_state_get(struct db *db, const char *agent_id, struct arena *arena,
                            struct agent_runtime_state *ret, struct err *err);
/* What a run that ended leaves: its session (a NULL session_params_json with clear_session forgets
 * it, else it stays), itself as the last run, and its tokens and cost on top of the totals. */
int agent_runtime_state_add(struct db *db, const struct agent_runtime_state *row,
                            bool clear_session, struct err *err);

struct agent_task_session {
        const char *agent_id, *task_key, *adapter_type;
        const char *session_params_json, *session_display_id, *last_run_id, *last_error;
        int64_t created_at, updated_at;
};

extern const struct row_type agent_task_session_table;

/* ERR_NOT_FOUND when there is none. */
int agent_task_session_get(struct db *db, const char *agent_id, const char *task_key,
                           struct arena *arena, struct agent_task_session *ret, struct err *err);
typedef int (*agent_task_session_fn)(void *ctx, const struct agent_task_session *row);
/* Last used first. */
int agent_task_sessions_list(struct db *db, const char *agent_id, struct arena *arena,
                             agent_task_session_fn fn, void *ctx, struct err *err);
int agent_task_session_put(struct db *db, const struct agent_task_session *row, struct err *err);
/* Forget sessions: of one task, or with NULL all of them. Totals stay. */
int agent_runtime_state_reset(struct db *db, const char *agent_id, const char *task_key,
                              int64_t now_us, struct err *err);

int agent_config_revisions_insert(struct db *db, const struct agent_config_revision *v,
                                  struct err *err);
/* ERR_NOT_FOUND "Config revision not found", also for one of another agent. */
int agent_config_revisions_get(struct db *db, const char *agent_id, const char *id,
                               struct arena *arena, struct agent_config_revision *ret,
                               struct err *err);
/* Newest first. */
int agent_config_revisions_list(struct db *db, const char *agent_id, struct arena *arena,
                                agent_config_revision_fn fn, void *ctx, struct err *err);
