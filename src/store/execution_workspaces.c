/* SQL for `execution_workspaces`. */
#include "store/execution_workspaces.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct execution_workspace, id, "id", FIXED),
        TEXT(struct execution_workspace, company_id, "companyId", FIXED),
        TEXT(struct execution_workspace, project_id, "projectId", FIXED),
        TEXT(struct execution_workspace, project_workspace_id, "projectWorkspaceId", FIXED),
        TEXT(struct execution_workspace, source_issue_id, "sourceIssueId", FIXED),
        TEXT(struct execution_workspace, mode, "mode", FIXED),
        TEXT(struct execution_workspace, strategy_type, "strategyType", FIXED),
        TEXT(struct execution_workspace, name, "name"),
        TEXT(struct execution_workspace, status, "status"),
        TEXT(struct execution_workspace, cwd, "cwd"),
        TEXT(struct execution_workspace, repo_url, "repoUrl"),
        TEXT(struct execution_workspace, base_ref, "baseRef"),
        TEXT(struct execution_workspace, branch_name, "branchName"),
        TEXT(struct execution_workspace, provider_type, "providerType", FIXED),
        TEXT(struct execution_workspace, provider_ref, "providerRef"),
        TEXT(struct execution_workspace, derived_from_id, "derivedFromExecutionWorkspaceId", FIXED,
             .sql = "derived_from_execution_workspace_id"),
        TIME(struct execution_workspace, last_used_at, "lastUsedAt"),
        TIME(struct execution_workspace, opened_at, "openedAt", FIXED),
        TIME_OR_NULL(struct execution_workspace, closed_at, "closedAt"),
        TIME_OR_NULL(struct execution_workspace, cleanup_eligible_at, "cleanupEligibleAt"),
        TEXT(struct execution_workspace, cleanup_reason, "cleanupReason"),
        DOCUMENT(struct execution_workspace, metadata, "metadata"),
        TIME(struct execution_workspace, created_at, "createdAt", FIXED),
        TIME(struct execution_workspace, updated_at, "updatedAt"),
        TEXT(struct execution_workspace, cwd_from),
        TEXT(struct execution_workspace, worktree_path, .group = FIXED),
        TEXT(struct execution_workspace, worktree_of, .group = FIXED),
};
const struct row_type execution_workspace_table =
        ROW_TYPE("execution_workspaces", struct execution_workspace, columns,
                 "Execution workspace not found");

int execution_workspaces_insert(struct db *db, const struct execution_workspace *row,
                                struct err *err)
{
        return row_insert(db, &execution_workspace_table, row, err);
}

int execution_workspaces_get(struct db *db, const char *id, struct arena *arena,
                             struct execution_workspace *ret, struct err *err)
{
        return row_get(db, &execution_workspace_table,
                       "SELECT * FROM execution_workspaces WHERE id = ?1", DB_ARGS(DB_T(id)), arena,
                       ret, err);
}

int execution_workspaces_list(struct db *db, const char *company_id,
                              const struct execution_workspace_filter *filter, struct arena *arena,
                              execution_workspace_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &execution_workspace_table,
                        "SELECT * FROM execution_workspaces WHERE company_id = ?1 "
                        "AND (CAST(?2 AS TEXT) IS NULL OR project_id = ?2) "
                        "AND (CAST(?3 AS TEXT) IS NULL OR project_workspace_id = ?3) "
                        "AND (CAST(?4 AS TEXT) IS NULL OR source_issue_id = ?4) "
                        "AND (CAST(?5 AS TEXT) IS NULL OR status = ?5) "
                        "AND (?6 = 0 OR status IN ('active', 'idle', 'in_review')) "
                        "ORDER BY last_used_at DESC, created_at DESC, id",
                        DB_ARGS(DB_T(company_id), DB_T(filter->project_id),
                                DB_T(filter->project_workspace_id), DB_T(filter->issue_id),
                                DB_T(filter->status), DB_I(filter->reuse_eligible)),
                        arena, fn, ctx, err);
}

int execution_workspaces_replace(struct db *db, const struct execution_workspace *row,
                                 int64_t from_updated_at, struct err *err)
{
        return row_exec(db, &execution_workspace_table,
                        "UPDATE execution_workspaces SET * WHERE id = ?1 AND updated_at = ?2", row,
                        DB_ARGS(DB_T(row->id), DB_I(from_updated_at)), err);
}

int execution_workspaces_to_remove(struct db *db, struct arena *arena,
                                   struct execution_workspace **ret, struct err *err)
{
        return row_all(db, &execution_workspace_table,
                       "SELECT * FROM execution_workspaces WHERE status = 'archived' "
                       "AND worktree_path IS NOT NULL",
                       DB_NO_ARGS, arena, ret, err);
}

int execution_workspaces_worktree_gone(struct db *db, const char *id, struct err *err)
{
        return db_exec(db,
                       "UPDATE execution_workspaces SET worktree_path = NULL, cwd = NULL "
                       "WHERE id = ?1",
                       DB_ARGS(DB_T(id)), err);
}

int execution_workspaces_count_users(struct db *db, const char *id, int64_t *ret_leases,
                                     int64_t *ret_issues, struct err *err)
{
        int r = db_number(db,
                          "SELECT COUNT(*) FROM environment_leases WHERE execution_workspace_id = "
                          "?1 AND status IN ('active', 'retained')",
                          DB_ARGS(DB_T(id)), ret_leases, err);

        return r < 0 ? r
                     : db_number(db,
                                 "SELECT COUNT(*) FROM issues WHERE execution_workspace_id = ?1 "
                                 "AND status NOT IN ('done', 'cancelled')",
                                 DB_ARGS(DB_T(id)), ret_issues, err);
}
