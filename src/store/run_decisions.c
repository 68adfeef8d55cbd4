/* SQL for `heartbeat_run_decisions`. */
#include "store/run_decisions.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct run_decision, id, "id"),
        TEXT(struct run_decision, company_id, "companyId"),
        TEXT(struct run_decision, run_id, "runId"),
        TEXT(struct run_decision, evaluation_issue_id, "evaluationIssueId"),
        TEXT(struct run_decision, decision, "decision"),
        TIME_OR_NULL(struct run_decision, snoozed_until, "snoozedUntil"),
        TEXT(struct run_decision, reason, "reason"),
        TEXT(struct run_decision, created_by_agent_id, "createdByAgentId"),
        TEXT(struct run_decision, created_by_user_id, "createdByUserId"),
        TEXT(struct run_decision, created_by_run_id, "createdByRunId"),
        TIME(struct run_decision, created_at, "createdAt"),
};
const struct row_type run_decision_table =
        ROW_TYPE("heartbeat_run_decisions", struct run_decision, columns, NULL);

int run_decisions_insert(struct db *db, const struct run_decision *row, struct err *err)
{
        return row_insert(db, &run_decision_table, row, err);
}

int run_decisions_last(struct db *db, const char *run_id, struct arena *arena,
                       struct run_decision *ret, struct err *err)
{
        *ret = (struct run_decision){ 0 };
        return row_find(db, &run_decision_table,
                        "SELECT * FROM heartbeat_run_decisions WHERE run_id = ?1 "
                        "ORDER BY created_at DESC, id DESC LIMIT 1",
                        DB_ARGS(DB_T(run_id)), arena, ret, err);
}
