/* Shared by the files of issue.h. Inside store functions. */
#ifndef BERTH_CORE_ISSUE_INTERNAL_H
#define BERTH_CORE_ISSUE_INTERNAL_H

#include "codec/check.h"
#include "core/issues/issue.h"

struct issue_change_context; /* issue_wake.h */

/* The row, for an actor that may see it, or with `write` change things in its company. */
int issue_load(struct db *db, const struct op *op, const char *reference, bool write,
               struct issue *ret, struct err *err);
/* Whether the actor may change the issue and what belongs to it; with the statuses and texts of the
 * API. An agent's own issue in progress is taken over from a run that ended: *issue follows. */
int issue_may_write(struct db *db, const struct op *op, struct issue *issue, struct err *err);
/* Whether somebody else may still be working on the issue: by one of its locks, or by a run that
 * was ended and lost them, and whose command is not gone yet. */
int issue_is_held(struct db *db, const struct op *op, const struct issue *issue, bool *ret,
                  struct err *err);
/* The run that works on the issue, or will next; one that was cancelled and whose command is not
 * gone yet, too. NULL: none. */
int issue_active_run(struct db *db, const struct op *op, const struct issue *issue,
                     const char **ret, struct err *err);
/* 403 when an agent names the run of another one. */
int issue_check_run(struct db *db, const struct op *op, struct err *err);
/* 403 Missing permission: tasks:assign. */
int issue_may_assign(struct db *db, const struct op *op, const char *company_id, struct err *err);

/* That the assignee may have it, and that there is only one. */
int issue_check_assignee(struct db *db, const struct op *op, const struct issue *issue,
                         struct err *err);
/* 422 while something that the issue waits for is not done. */
int issue_check_blockers(struct db *db, const struct op *op, const struct issue *issue,
                         struct err *err);
/* What follows from a status: times, locks. */
void issue_set_status(struct issue *issue, const char *status, int64_t now_us);
void issue_drop_locks(struct issue *issue);
bool issue_is_closed(const struct issue *issue);

/* Collect rows; ctx is a struct issue_rows with its arena set. */
int issue_collect(void *ctx, const struct issue *row);
/* {"issueId", "status", "assigneeAgentId", "checkoutRunId", "executionRunId"} as details. */
int issue_conflict(const struct issue *issue, const char *text, struct err *err);

/* What a body may say besides the row's own members. Borrowed from the body. */
struct issue_change {
        json_t *blocked_by; /* ids; NULL: not given */
        const char *status, *comment;
        json_t *given; /* names of the members that were given, sorted; the arena's */
        bool has_assignee, has_status, reopen;
        json_t *settings;
        bool has_settings, has_workspace;
};

/* Check a body and put it over *issue. */
int issue_read_body(struct op *op, json_t *body, bool creating, struct issue *issue,
                    struct issue_change *ret, struct err *err);
/* That project, parent, blockers, environment and workspace may be chosen; `before` is NULL for a
 * new one. */
int issue_check_relations(struct db *db, struct runtime *rt, const struct op *op,
                          const struct issue *before, const struct issue *issue,
                          const struct issue_change *change, struct err *err);
int issue_write_blockers(struct db *db, const struct issue *issue,
                         const struct issue_change *change, struct err *err);

/* That the workspace is one of the company's, and the actor may choose it. */
int issue_check_workspace(struct db *db, const struct op *op, const struct issue *issue,
                          struct err *err);
/* Whether the workspace that the issue names keeps its work in an isolated place. One that names no
 * environment does not say. */
int issue_workspace_is_isolated(struct db *db, const struct runtime *rt, const struct op *op,
                                const struct issue *issue, bool *ret, struct err *err);
/* Tell the workspace that the issue works in again what was set; nothing without one. */
int issue_tell_workspace(struct db *db, const struct op *op, const struct issue *issue,
                         const json_t *settings, struct err *err);

/* Insert a comment by the actor, with the audit entry and the wake-ups that follow from it.
 * *comment has body, presentation and metadata. */
int issue_add_comment(const struct issue_change_context *x, const struct issue *issue,
                      struct issue_comment *comment, struct err *err);

#endif
