/* Rows of `activity_log`: the audit trail. `details` is JSON text that was redacted before. */
#ifndef BERTH_STORE_ACTIVITY_H
#define BERTH_STORE_ACTIVITY_H

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

#endif
