/* SQL for `project_workspaces`. */
#include "store/project_workspaces.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct project_workspace, id, "id", FIXED),
        TEXT(struct project_workspace, company_id, "companyId", FIXED),
        TEXT(struct project_workspace, project_id, "projectId", FIXED),
        TEXT(struct project_workspace, name, "name"),
        TEXT(struct project_workspace, source_type, "sourceType"),
        TEXT(struct project_workspace, cwd, "cwd"),
        TEXT(struct project_workspace, repo_url, "repoUrl"),
        TEXT(struct project_workspace, repo_ref, "repoRef"),
        TEXT(struct project_workspace, default_ref, "defaultRef"),
        TEXT(struct project_workspace, visibility, "visibility"),
        TEXT(struct project_workspace, setup_command, "setupCommand"),
        TEXT(struct project_workspace, cleanup_command, "cleanupCommand"),
        TEXT(struct project_workspace, remote_provider, "remoteProvider"),
        TEXT(struct project_workspace, remote_workspace_ref, "remoteWorkspaceRef"),
        TEXT(struct project_workspace, shared_workspace_key, "sharedWorkspaceKey"),
        DOCUMENT(struct project_workspace, metadata, "metadata"),
        DOCUMENT(struct project_workspace, runtime_config, "runtimeConfig"),
        FLAG(struct project_workspace, is_primary, "isPrimary"),
        TIME(struct project_workspace, created_at, "createdAt", FIXED),
        TIME(struct project_workspace, updated_at, "updatedAt"),
        TEXT(struct project_workspace, cwd_from),
};
const struct row_type project_workspace_table = ROW_TYPE(
        "project_workspaces", struct project_workspace, columns, "Project workspace not found");

int project_workspaces_of(struct db *db, const char *project_id, struct arena *arena,
                          struct project_workspace **ret, struct err *err)
{
        return row_all(db, &project_workspace_table,
                       "SELECT * FROM project_workspaces WHERE project_id = ?1 "
                       "ORDER BY is_primary DESC, created_at, id",
                       DB_ARGS(DB_T(project_id)), arena, ret, err);
}

int project_workspaces_update(struct db *db, const struct project_workspace *row, struct err *err)
{
        return row_exec(db, &project_workspace_table,
                        "UPDATE project_workspaces SET * WHERE id = ?1", row,
                        DB_ARGS(DB_T(row->id)), err);
}

int project_workspaces_make_primary(struct db *db, const struct project_workspace *row,
                                    struct err *err)
{
        return db_exec(db,
                       "UPDATE project_workspaces SET is_primary = CASE id WHEN ?2 THEN 1 ELSE 0 "
                       "END WHERE project_id = ?1",
                       DB_ARGS(DB_T(row->project_id), DB_T(row->id)), err);
}

int project_workspaces_delete(struct db *db, const char *id, struct err *err)
{
        int r = db_exec(db,
                        "UPDATE execution_workspaces SET project_workspace_id = NULL "
                        "WHERE project_workspace_id = ?1",
                        DB_ARGS(DB_T(id)), err);

        return r < 0 ? r
                     : db_exec(db, "DELETE FROM project_workspaces WHERE id = ?1",
                               DB_ARGS(DB_T(id)), err);
}
