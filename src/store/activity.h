/* Rows of `activity_log`: the audit trail. `details` is JSON text that was redacted before. */
#pragma once

#include "store/db.h"

struct activity {
        const char *id, *company_id, *actor_type, *actor_id, *action, *entity_type, *entity_id;
        const char *agent_id, *run_id, *details;
        int64_t created_at;
};

extern const struct row_type activity_table;

typedef int (*activity_fn)(void *ctx, const struct activity *row);

int activity_insert(struct db *db, const struct activity *row, struct err *err);
/* Newest first; the filters are exact or NULL. */
int activity_list(struct db *db, const char *company_id, const char *agent_id,
                  const char *entity_type, const char *entity_id, const char *action, int64_t limit,
                  struct arena *arena, activity_fn fn, void *ctx, struct err *err);

/* 1 when the company has entries, else 0. */
int activity_count(struct db *db, const char *company_id, int64_t *ret, struct err *err);
/* What the run's agent did, by action: neither the run itself nor its leases count. */
int activity_of_run(struct db *db, const char *run_id, struct arena *arena,
                    int (*fn)(void *ctx, const char *action, int64_t n), void *ctx,
                    struct err *err);
/* When it did the last of that; 0: nothing. */
int activity_last_of_run(struct db *db, const char *run_id, int64_t *ret, struct err *err);
/* How often the run commented on the issue. */
int activity_comments_of_run(struct db *db, const char *run_id, const char *issue_id, int64_t *ret,
                             struct err *err);
