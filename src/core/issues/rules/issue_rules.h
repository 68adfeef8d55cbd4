/* The rules of issues that runs have to keep too: which callers may change an issue, which run
 * holds it, what follows from its status. The operations on issues are in core/issues/issue.h.
 * Inside store functions. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"
#include "store/issues.h"

#define PERM_TASKS_ASSIGN    "tasks:assign"
#define PERM_TASKS_CHECKOUTS "tasks:manage_active_checkouts"

/* Why an agent is woken for an issue (issue_wake.h). */
#define WAKE_ASSIGNED  "issue_assigned"
#define WAKE_COMMENTED "issue_commented"
#define WAKE_MENTIONED "issue_comment_mentioned"
#define WAKE_TAKEN     "issue_checked_out"
#define WAKE_UNBLOCKED "issue_blockers_resolved"

struct issue_rows {
        struct issue *at;
        size_t n, room;
        struct arena *arena;
};

/* The row, for an actor that may see it, or with `write` may change things in its company. */
int issue_load(struct db *db, const struct op *op, const char *reference, bool write,
               struct issue *ret, struct err *err);
/* Whether the actor may change the issue and everything that belongs to it; with the statuses and
 * texts of the API. An agent's own issue in progress is taken over from a run that ended: *issue is
 * updated. */
int issue_may_write(struct db *db, const struct op *op, struct issue *issue, struct err *err);
/* Whether another run may still be working on the issue: one that holds a lock, or one that was
 * ended, lost its locks, and has a command that is still alive. */
int issue_is_held(struct db *db, const struct op *op, const struct issue *issue, bool *ret,
                  struct err *err);
/* The run that works on the issue, or will next; also a cancelled run with a command that is still
 * alive. NULL: none. */
int issue_active_run(struct db *db, const struct op *op, const struct issue *issue,
                     const char **ret, struct err *err);
/* 403 when an agent names another agent's run. */
int issue_check_run(struct db *db, const struct op *op, struct err *err);
/* 403 Missing permission: tasks:assign. */
int issue_may_assign(struct db *db, const struct op *op, const char *company_id, struct err *err);

/* Check that the assignee may have the issue, and that there is only one. */
int issue_check_assignee(struct db *db, const struct op *op, const struct issue *issue,
                         struct err *err);
/* 422 while an issue that this one waits for is not done. */
int issue_check_blockers(struct db *db, const struct op *op, const struct issue *issue,
                         struct err *err);
/* Set a status and what follows from it: times, locks. */
void issue_set_status(struct issue *issue, const char *status, int64_t now_us);
void issue_drop_locks(struct issue *issue);
bool issue_is_closed(const struct issue *issue);

/* Collect rows; ctx is a struct issue_rows with its arena set. */
int issue_collect(void *ctx, const struct issue *row);
/* {"issueId", "status", "assigneeAgentId", "checkoutRunId", "executionRunId"} as details. */
int issue_conflict(const struct issue *issue, const char *text, struct err *err);
