/* Rows of `heartbeat_run_decisions`: what was decided about runs that are silent. */
#pragma once

#include "store/db.h"

struct run_decision {
        const char *id, *run_id, *company_id, *decision, *reason;
        int64_t snoozed_until; /* 0: none */
        const char *evaluation_issue_id;
        const char *created_by_agent_id, *created_by_user_id, *created_by_run_id;
        int64_t created_at;
};

extern const struct row_type run_decision_table;

int run_decisions_insert(struct db *db, const struct run_decision *row, struct err *err);
/* The newest of a run: 1, or 0 when there is none. */
int run_decisions_last(struct db *db, const char *run_id, struct arena *arena,
                       struct run_decision *ret, struct err *err);
