/* Rows of `execution_workspaces`: where the work of a project is done, over many runs. */
#pragma once

#include "store/db.h"

struct execution_workspace {
        const char *id, *company_id, *project_id, *project_workspace_id, *source_issue_id;
        const char *mode, *strategy_type, *name, *status;
        const char *cwd, *repo_url, *base_ref, *branch_name;
        const char *provider_type, *provider_ref;
        const char *derived_from_id;
        int64_t last_used_at, opened_at;
        int64_t closed_at, cleanup_eligible_at; /* 0: none */
        const char *cleanup_reason;
        const char *metadata; /* JSON object or NULL */
        int64_t created_at, updated_at;
        /* The source of cwd: an agent's id (its configuration named it), one of these, or NULL. */
        const char *cwd_from;
        /* The directory that Berth made for it, and the one with the repository that it is of
         * (core/workspaces/worktree.h). NULL: none, or it is removed. Nobody sets them by the API,
         * unlike provider_ref: what Berth removes has to be what it made. */
        const char *worktree_path, *worktree_of;
};

extern const struct row_type execution_workspace_table;

/* A user who may decide what runs on this machine; and since then the first to work there did so
 * outside of an isolated place. */
#define WORKSPACE_CWD_HOST    "host"
#define WORKSPACE_CWD_OUTSIDE "outside"

/* NULL members: any. */
struct execution_workspace_filter {
        const char *project_id, *project_workspace_id, *issue_id, *status;
        bool reuse_eligible; /* only active, idle and in_review ones */
};

typedef int (*execution_workspace_fn)(void *ctx, const struct execution_workspace *row);

int execution_workspaces_insert(struct db *db, const struct execution_workspace *row,
                                struct err *err);
/* ERR_NOT_FOUND "Execution workspace not found". */
int execution_workspaces_get(struct db *db, const char *id, struct arena *arena,
                             struct execution_workspace *ret, struct err *err);
/* Last used first. */
int execution_workspaces_list(struct db *db, const char *company_id,
                              const struct execution_workspace_filter *filter, struct arena *arena,
                              execution_workspace_fn fn, void *ctx, struct err *err);
/* Write what can be changed over the row that still has `from_updated_at`: 1, or 0 when another
 * writer was first. */
int execution_workspaces_replace(struct db *db, const struct execution_workspace *row,
                                 int64_t from_updated_at, struct err *err);

/* Archived ones whose worktree is still to be removed; an array in the arena. Returns how many. */
int execution_workspaces_to_remove(struct db *db, struct arena *arena,
                                   struct execution_workspace **ret, struct err *err);
/* Its worktree is removed. */
int execution_workspaces_worktree_gone(struct db *db, const char *id, struct err *err);

/* Living leases in it, and issues that refer to it and are not done. */
int execution_workspaces_count_users(struct db *db, const char *id, int64_t *ret_leases,
                                     int64_t *ret_issues, struct err *err);
