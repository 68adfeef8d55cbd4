#include "store/run_decisions.h"

#define COLUMNS                                                                                    \
        "id, run_id, company_id, decision, reason, snoozed_until, evaluation_issue_id, "           \
        "created_by_agent_id, created_by_user_id, created_by_run_id, created_at"

int run_decisions_insert(struct db *db, const struct run_decision *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO heartbeat_run_decisions (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, "
                       "?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                       DB_ARGS(DB_T(row->id), DB_T(row->run_id), DB_T(row->company_id),
                               DB_T(row->decision), DB_T(row->reason), DB_TIME(row->snoozed_until),
                               DB_T(row->evaluation_issue_id), DB_T(row->created_by_agent_id),
                               DB_T(row->created_by_user_id), DB_T(row->created_by_run_id),
                               DB_I(row->created_at)),
                       err);
}

int run_decisions_last(struct db *db, const char *run_id, struct arena *arena,
                       struct run_decision *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM heartbeat_run_decisions WHERE run_id = ?1 "
                         "ORDER BY created_at DESC, id DESC LIMIT 1",
                         DB_ARGS(DB_T(run_id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        *ret = (struct run_decision){ 0 };
        if (r <= 0)
                return r;
        *ret = (struct run_decision){
                .id = stmt_text(s, 0, arena),
                .run_id = stmt_text(s, 1, arena),
                .company_id = stmt_text(s, 2, arena),
                .decision = stmt_text(s, 3, arena),
                .reason = stmt_text(s, 4, arena),
                .snoozed_until = stmt_number(s, 5),
                .evaluation_issue_id = stmt_text(s, 6, arena),
                .created_by_agent_id = stmt_text(s, 7, arena),
                .created_by_user_id = stmt_text(s, 8, arena),
                .created_by_run_id = stmt_text(s, 9, arena),
                .created_at = stmt_number(s, 10),
        };
        return 1;
}
