/* Rows of `issues`, and which issue waits for which. Documents are JSON texts; times 0 for
 * never. */
#pragma once

#include "store/db.h"

struct issue {
        const char *id, *company_id, *project_id, *project_workspace_id, *parent_id, *identifier;
        const char *title, *description, *status, *work_mode, *priority;
        const char *assignee_agent_id, *assignee_user_id;
        const char *checkout_run_id, *execution_run_id;
        const char *created_by_agent_id, *created_by_user_id;
        const char *origin_kind, *origin_id, *origin_run_id, *billing_code;
        const char *execution_policy; /* object or NULL */
        const char *execution_workspace_id, *execution_workspace_preference;
        const char *execution_workspace_settings; /* object or NULL */
        int64_t number, request_depth;
        int64_t execution_locked_at, started_at, completed_at, cancelled_at, hidden_at;
        int64_t created_at, updated_at;
};

extern const struct row_type issue_table;

/* Exact filters, NULL for none; `statuses` is comma separated, `text` is searched for in
 * identifier, title and description. */
struct issue_filter {
        const char *company_id, *statuses, *assignee_agent_id, *assignee_user_id;
        const char *participant_agent_id; /* made it, has it, or commented on it */
        const char *project_id, *parent_id, *descendant_of, *execution_workspace_id;
        const char *origin_kind, *origin_id, *text;
        int64_t limit, offset;
};

typedef int (*issue_fn)(void *ctx, const struct issue *row);

/* The next number of the company, and the identifier made of it; inside the transaction that uses
 * them, so that no number is given twice or lost. */
int issues_next_number(struct db *db, const char *company_id, struct arena *arena, int64_t *ret,
                       const char **ret_identifier, struct err *err);
int issues_insert(struct db *db, const struct issue *issue, struct err *err);
/* What people call it; ERR_NOT_FOUND. */
int issues_name(struct db *db, const char *id, struct arena *arena, const char **ret_identifier,
                const char **ret_title, struct err *err);
/* By id or identifier; ERR_NOT_FOUND "Issue not found". */
int issues_get(struct db *db, const char *reference, struct arena *arena, struct issue *ret,
               struct err *err);
/* Writes the row if status, assignee and both locks are still those of `seen`; 0 when they are not.
 */
int issues_update(struct db *db, const struct issue *issue, const struct issue *seen,
                  struct err *err);
/* Not those that are hidden; by priority, then newest change first. */
int issues_list(struct db *db, const struct issue_filter *filter, struct arena *arena, issue_fn fn,
                void *ctx, struct err *err);
/* The parent, its parent and so on; at most 64. */
int issues_ancestors(struct db *db, const char *id, struct arena *arena, issue_fn fn, void *ctx,
                     struct err *err);

/* Those that a run took or changed, by what the activity says, and `issue_id` (may be NULL); oldest
 * first. */
int issues_of_run(struct db *db, const char *run_id, const char *issue_id, struct arena *arena,
                  issue_fn fn, void *ctx, struct err *err);

/* The issues that it waits for, or with `reverse` those that wait for it. */
int issue_blockers_list(struct db *db, const char *id, bool reverse, struct arena *arena,
                        issue_fn fn, void *ctx, struct err *err);
/* How many of what it waits for are not done. */
int issue_blockers_open(struct db *db, const char *id, int64_t *ret, struct err *err);
int issue_blockers_put(struct db *db, const char *id, const char *blocker_id, int64_t now_us,
                       struct err *err);
int issue_blockers_clear(struct db *db, const char *id, struct err *err);
/* Whether `from` waits for `to`, over any number of others. */
int issue_blockers_reach(struct db *db, const char *from, const char *to, bool *ret,
                         struct err *err);

/* Whether work under this run may still go on: it is known, and has not ended or its command may
 * still be there (RUN_HOLDS, store/runs.h). *ret_agent_id: whose run it is, NULL when the run is
 * not known. */
int issue_run_lives(struct db *db, const char *run_id, struct arena *arena, bool *ret,
                    const char **ret_agent_id, struct err *err);
