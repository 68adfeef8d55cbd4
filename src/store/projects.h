/* Rows of `projects`. env and execution_workspace_policy are JSON objects or NULL. */
#pragma once

#include "store/db.h"

struct project {
        const char *id, *company_id, *name, *url_key, *description, *status;
        const char *lead_agent_id, *target_date, *color, *icon, *pause_reason;
        const char *env, *execution_workspace_policy;
        int64_t paused_at, archived_at; /* 0: it is not */
        int64_t created_at, updated_at;
};

extern const struct row_type project_table;

typedef int (*project_fn)(void *ctx, const struct project *row);

ROW_BASICS(projects, struct project, project_table) /* projects_insert(), projects_get() */
/* By its slug; ERR_CONFLICT when there are several. */
int projects_find(struct db *db, const char *company_id, const char *url_key, struct arena *arena,
                  struct project *ret, struct err *err);
int projects_list(struct db *db, const char *company_id, struct arena *arena, project_fn fn,
                  void *ctx, struct err *err);
int projects_update(struct db *db, const struct project *project, struct err *err);
/* Issues stay, without a project; its workspaces and execution workspaces go. */
int projects_delete(struct db *db, const char *id, struct err *err);
/* Execution workspaces of it that are leased, or have a worktree. */
int projects_count_used(struct db *db, const char *id, int64_t *ret, struct err *err);
