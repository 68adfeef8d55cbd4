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
        DOCUMENT(struct project, env, "env"),
        DOCUMENT(struct project, execution_workspace_policy, "executionWorkspacePolicy"),
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
