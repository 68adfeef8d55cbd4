/* Rows of `project_workspaces`: where the work of a project is. At most one of a project is the
 * primary one. */
#pragma once

#include "store/db.h"

struct project_workspace {
        const char *id, *company_id, *project_id;
        const char *name, *source_type, *visibility;
        const char *cwd, *repo_url, *repo_ref, *default_ref;
        const char *setup_command, *cleanup_command;
        const char *remote_provider, *remote_workspace_ref, *shared_workspace_key;
        const char *metadata, *runtime_config; /* JSON objects or NULL */
        bool is_primary;
        int64_t created_at, updated_at;
        const char *cwd_from; /* as in execution_workspaces.h; never an agent's id */
};

extern const struct row_type project_workspace_table;

ROW_BASICS(project_workspaces, struct project_workspace, project_workspace_table)
/* The primary one first, then by age; *ret is an array in the arena. Returns how many. */
int project_workspaces_of(struct db *db, const char *project_id, struct arena *arena,
                          struct project_workspace **ret, struct err *err);
int project_workspaces_update(struct db *db, const struct project_workspace *row, struct err *err);
/* No other one of its project is primary any more. */
int project_workspaces_make_primary(struct db *db, const struct project_workspace *row,
                                    struct err *err);
/* Execution workspaces that were made from it stay as they are. */
int project_workspaces_delete(struct db *db, const char *id, struct err *err);
