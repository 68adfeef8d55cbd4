/* Rows of `agents` and of their keys. Documents are JSON texts; tokens are digests. */
#pragma once

#include "store/db.h"

struct agent {
        const char *id, *company_id, *name, *url_key, *role, *title, *icon, *status, *reports_to;
        const char *capabilities, *adapter_type;
        const char *adapter_config, *runtime_config, *permissions; /* JSON objects */
        const char *default_environment_id;
        const char *configured_by_agent_id; /* whose key last set what it runs; NULL: the board */
        int64_t budget_monthly_cents, spent_monthly_cents;
        const char *pause_reason;
        int64_t paused_at, last_heartbeat_at;
        const char *metadata; /* JSON object or NULL */
        int64_t created_at, updated_at;
        int64_t erasing_at; /* since when it is being deleted with its history; 0: it is not */
};

extern const struct row_type agent_table;

struct agent_key {
        const char *id, *agent_id, *company_id, *name, *token_sha256;
        int64_t revoked_at, created_at;
};

extern const struct row_type agent_key_table;

typedef int (*agent_fn)(void *ctx, const struct agent *row);
typedef int (*agent_key_fn)(void *ctx, const struct agent_key *row);

ROW_BASICS(agents, struct agent, agent_table) /* agents_insert(), agents_get() */
int agents_list(struct db *db, const char *company_id, struct arena *arena, agent_fn fn, void *ctx,
                struct err *err);
/* The one of that slug, terminated ones aside; ERR_CONFLICT when there are several. */
int agents_find(struct db *db, const char *company_id, const char *url_key, struct arena *arena,
                struct agent *ret, struct err *err);
/* Writes everything but id, company, spending and the last heartbeat, if the status is still
 * `seen_status`; 0 when it is not. */
int agents_update(struct db *db, const struct agent *g, const char *seen_status, struct err *err);
int agents_set_permissions(struct db *db, const char *id, const char *permissions, int64_t now_us,
                           struct err *err);
/* What runs make of it: `running`, `idle` or `error`, when it is one of these; `heartbeat_at` 0
 * leaves the last heartbeat. 0 when its status is none of runs. */
int agents_note_run(struct db *db, const char *id, const char *status, int64_t heartbeat_at,
                    int64_t now_us, struct err *err);
/* With its keys. */
int agents_delete(struct db *db, const char *id, struct err *err);
/* It is to be deleted with its history; and those that are. */
int agents_set_erasing(struct db *db, const char *id, int64_t now_us, struct err *err);
int agents_erasing(struct db *db, struct arena *arena, agent_fn fn, void *ctx, struct err *err);

int agent_keys_insert(struct db *db, const struct agent_key *row, struct err *err);
int agent_keys_list(struct db *db, const char *agent_id, struct arena *arena, agent_key_fn fn,
                    void *ctx, struct err *err);
/* 1, or 0 when the agent has no such key. */
int agent_keys_revoke(struct db *db, const char *agent_id, const char *key_id, int64_t now_us,
                      struct err *err);
/* All that are not revoked yet; how many. */
int agent_keys_revoke_all(struct db *db, const char *agent_id, int64_t now_us, struct err *err);
/* The key that is not revoked; ERR_NOT_FOUND otherwise. */
int agent_keys_by_token(struct db *db, const char *token_sha256, struct arena *arena,
                        struct agent_key *ret, struct err *err);
