/* SQL for `projects`. */
#include "store/projects.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct project, id, "id", FIXED),
        TEXT(struct project, company_id, "companyId", FIXED),
        TEXT(struct project, url_key, "urlKey"),
        TEXT(struct project, name, "name"),
        TEXT(struct project, description, "description"),
        TEXT(struct project, status, "status"),
        TEXT(struct project, lead_agent_id, "leadAgentId"),
        TEXT(struct project, target_date, "targetDate"),
        TEXT(struct project, color, "color"),
        TEXT(struct project, icon, "icon"),
        DOCUMENT(struct project, env, "env"),
        TEXT(struct project, pause_reason, "pauseReason"),
        TIME_OR_NULL(struct project, paused_at, "pausedAt"),
        DOCUMENT(struct project, execution_workspace_policy, "executionWorkspacePolicy"),
        TIME_OR_NULL(struct project, archived_at, "archivedAt"),
        TIME(struct project, created_at, "createdAt", FIXED),
        TIME(struct project, updated_at, "updatedAt"),
};
const struct row_type project_table =
        ROW_TYPE("projects", struct project, columns, "Project not found");

int projects_find(struct db *db, const char *company_id, const char *url_key, struct arena *arena,
                  struct project *ret, struct err *err)
{
        return row_only(db, &project_table,
                        "SELECT * FROM projects WHERE company_id = ?1 AND url_key = ?2",
                        DB_ARGS(DB_T(company_id), DB_T(url_key)),
                        "Project shortname is ambiguous in this company. Use the project ID.",
                        arena, ret, err);
}

int projects_list(struct db *db, const char *company_id, struct arena *arena, project_fn fn,
                  void *ctx, struct err *err)
{
        return ROW_EACH(db, &project_table,
                        "SELECT * FROM projects WHERE company_id = ?1 "
                        "ORDER BY created_at, id",
                        DB_ARGS(DB_T(company_id)), arena, fn, ctx, err);
}

int projects_update(struct db *db, const struct project *p, struct err *err)
{
        return row_exec(db, &project_table, "UPDATE projects SET * WHERE id = ?1", p,
                        DB_ARGS(DB_T(p->id)), err);
}

int projects_delete(struct db *db, const char *id, struct err *err)
{
        int r = db_exec(db,
                        "UPDATE issues SET execution_workspace_id = NULL WHERE "
                        "execution_workspace_id IN "
                        "(SELECT id FROM execution_workspaces WHERE project_id = ?1)",
                        DB_ARGS(DB_T(id)), err);

        return r < 0 ? r
                     : db_exec(db, "DELETE FROM projects WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

int projects_count_used(struct db *db, const char *id, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT COUNT(*) FROM execution_workspaces w WHERE project_id = ?1 AND "
                         "(EXISTS (SELECT 1 FROM environment_leases l WHERE "
                         "l.execution_workspace_id = w.id AND l.status IN ('active', 'retained')) "
                         "OR (worktree_path IS NOT NULL))",
                         DB_ARGS(DB_T(id)), ret, err);
}
