/* Rows of `company_secret_bindings`, which say who may use a secret and where, and of
 * `secret_access_events`, which say who did. Events outlive the secret. */
#pragma once

#include "store/db.h"

struct secret_binding {
        const char *id, *company_id, *secret_id, *target_type, *target_id, *config_path;
        const char *version_selector; /* "latest" or a number */
        bool required;
        const char *label;
        int64_t created_at, updated_at;
};

extern const struct row_type secret_binding_table;

typedef int (*secret_binding_fn)(void *ctx, const struct secret_binding *row);

/* ERR_CONFLICT when the target has one at this path. */
int secret_bindings_insert(struct db *db, const struct secret_binding *row, struct err *err);
/* 1 and *ret, or 0. */
int secret_bindings_find(struct db *db, const char *company_id, const char *secret_id,
                         const char *target_type, const char *target_id, const char *config_path,
                         struct arena *arena, struct secret_binding *ret, struct err *err);
int secret_bindings_of_secret(struct db *db, const char *secret_id, struct arena *arena,
                              secret_binding_fn fn, void *ctx, struct err *err);
/* Those that do not belong to this environment. */
int secret_bindings_count_others(struct db *db, const char *secret_id, const char *environment_id,
                                 int64_t *ret, struct err *err);
/* All of the target, or those whose path begins with `prefix` (NULL: all). */
int secret_bindings_delete_target(struct db *db, const char *company_id, const char *target_type,
                                  const char *target_id, const char *prefix, struct err *err);

/* The name of a binding's target, as one row of a table of ours. 1, or 0 when it is gone. */
struct secret_target {
        const char *label, *slug, *status;
};
int secret_bindings_target(struct db *db, const struct secret_binding *row, struct arena *arena,
                           struct secret_target *ret, struct err *err);

struct secret_event {
        const char *id, *company_id, *secret_id;
        int64_t version; /* 0: not known */
        const char *provider, *actor_type, *actor_id, *consumer_type, *consumer_id, *config_path;
        const char *issue_id, *heartbeat_run_id, *plugin_id, *outcome, *error_code;
        int64_t created_at;
};

extern const struct row_type secret_event_table;

typedef int (*secret_event_fn)(void *ctx, const struct secret_event *row);

int secret_events_insert(struct db *db, const struct secret_event *row, struct err *err);
/* Newest first. */
int secret_events_list(struct db *db, const char *secret_id, struct arena *arena,
                       secret_event_fn fn, void *ctx, struct err *err);
/* The company of a secret that is gone, by its events. 1, or 0. */
int secret_events_company(struct db *db, const char *secret_id, struct arena *arena,
                          const char **ret, struct err *err);
