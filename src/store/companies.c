/* SQL for `companies`. */
#include "store/companies.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct company, id, "id", FIXED),
        TEXT(struct company, name, "name"),
        TEXT(struct company, description, "description"),
        TEXT(struct company, status, "status"),
        TEXT(struct company, issue_prefix, "issuePrefix", FIXED),
        NUMBER(struct company, issue_counter, "issueCounter", FIXED),
        NUMBER(struct company, budget_monthly_cents, "budgetMonthlyCents"),
        NUMBER(struct company, spent_monthly_cents, "spentMonthlyCents", FIXED),
        NUMBER(struct company, attachment_max_bytes, "attachmentMaxBytes"),
        FLAG(struct company, require_board_approval, "requireBoardApprovalForNewAgents"),
        TEXT(struct company, brand_color, "brandColor"),
        TEXT(struct company, default_environment_id, "defaultEnvironmentId"),
        TIME(struct company, created_at, "createdAt", FIXED),
        TIME(struct company, updated_at, "updatedAt"),
        TIME_OR_NULL(struct company, erasing_at),
};
const struct row_type company_table =
        ROW_TYPE("companies", struct company, columns, "Company not found");

int companies_list(struct db *db, const char *user_id, struct arena *arena, company_fn fn,
                   void *ctx, struct err *err)
{
        return ROW_EACH(db, &company_table,
                        "SELECT * FROM companies WHERE CAST(?1 AS TEXT) IS NULL OR id IN "
                        "(SELECT company_id FROM company_memberships WHERE principal_type = 'user' "
                        "AND principal_id = ?1 AND status = 'active') ORDER BY created_at, id",
                        DB_ARGS(DB_T(user_id)), arena, fn, ctx, err);
}

int companies_count_agents(struct db *db, const char *id, int64_t *ret, struct err *err)
{
        return db_number(db, "SELECT COUNT(*) FROM agents WHERE company_id = ?1", DB_ARGS(DB_T(id)),
                         ret, err);
}

int companies_count_by_status(struct db *db, const char *table, const char *id, struct arena *arena,
                              int (*fn)(void *ctx, const char *status, int64_t n), void *ctx,
                              struct err *err)
{
        return db_counts(db,
                         streq(table, "agents") ? "SELECT status, COUNT(*) FROM agents "
                                                  "WHERE company_id = ?1 GROUP BY status"
                                                : "SELECT status, COUNT(*) FROM issues "
                                                  "WHERE company_id = ?1 GROUP BY status",
                         DB_ARGS(DB_T(id)), arena, fn, ctx, err);
}

int companies_update(struct db *db, const struct company *row, struct err *err)
{
        return row_exec(db, &company_table, "UPDATE companies SET * WHERE id = ?1", row,
                        DB_ARGS(DB_T(row->id)), err);
}

int companies_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM companies WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

bool companies_prefix_taken(struct db *db, const char *prefix)
{
        int64_t one;

        return db_number(db, "SELECT 1 FROM companies WHERE issue_prefix = ?1",
                         DB_ARGS(DB_T(prefix)), &one, NULL) >= 0;
}

int companies_count_blockers(struct db *db, const char *id, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT (SELECT COUNT(*) FROM company_secrets WHERE company_id = ?1) + "
                         "(SELECT COUNT(*) FROM company_secret_bindings WHERE company_id = ?1) + "
                         "(SELECT COUNT(*) FROM heartbeat_runs WHERE company_id = ?1) + "
                         "(SELECT COUNT(*) FROM agents WHERE company_id = ?1)",
                         DB_ARGS(DB_T(id)), ret, err);
}

int companies_count_places(struct db *db, const char *id, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT COUNT(*) FROM places WHERE state <> 'gone' AND company_id = ?1",
                         DB_ARGS(DB_T(id)), ret, err);
}

int companies_delete_agents(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM agents WHERE company_id = ?1", DB_ARGS(DB_T(id)), err);
}

int companies_erasing(struct db *db, struct arena *arena, company_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &company_table, "SELECT * FROM companies WHERE erasing_at IS NOT NULL",
                        DB_NO_ARGS, arena, fn, ctx, err);
}
