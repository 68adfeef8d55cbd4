/* Issues: tasks with an assignee, comments and documents.
 *
 * An issue in progress belongs to one agent, and to one run of it: the checkout. issue_may_write()
 * (rules/issue_rules.h) decides which callers may write, for everything that belongs to the issue.
 * Every write compares status, assignee and locks with what was read, so when two callers take an
 * issue, one gets a conflict and has changed nothing.
 *
 * A lock whose run has ended, or is not known here, does not count: the agent that has the issue
 * takes it over with its next run.
 *
 * `reference` is an id or an identifier. Operation threads; results in the operation's arena. */
#ifndef BERTH_CORE_ISSUE_H
#define BERTH_CORE_ISSUE_H

#include "codec/json.h"
#include "core/issues/rules/issue_rules.h"
#include "store/activity.h"
#include "store/execution_workspaces.h"
#include "store/issue_comments.h"
#include "store/issue_documents.h"
#include "store/issues.h"
#include "store/projects.h"
#include "store/runs.h"

extern const char *const issue_statuses[]; /* NULL-terminated */

struct issue_detail {
        struct issue issue;
        struct execution_workspace workspace; /* id NULL: none */
        struct issue_rows ancestors, blocked_by, blocks;
        struct project project; /* id NULL: none */
        struct issue_document *documents;
        size_t n_documents;
        int64_t n_comments;
        struct issue_comment newest, wake; /* id NULL: none */
};

/* A task in an agent's inbox: an issue with the issues that it waits for. */
struct issue_task {
        const struct issue *issue;
        struct run active; /* id NULL: no run works on it */
        struct issue_rows unresolved;
};

/* In the company, or beneath `parent` (a reference) when that is given. */
int issue_create(struct op *op, struct runtime *rt, const char *company_id, const char *parent,
                 json_t *body, struct issue *ret, struct err *err);
/* The function checks access to the company that the filter names. */
int issue_list(struct op *op, struct runtime *rt, const struct issue_filter *filter, issue_fn fn,
               void *ctx, struct err *err);
/* With `wake_comment_id`, ret->wake is that comment. */
int issue_get(struct op *op, struct runtime *rt, const char *reference, const char *wake_comment_id,
              struct issue_detail *ret, struct err *err);
/* *ret_comment: the comment posted with the change; its id is NULL without one. */
int issue_update(struct op *op, struct runtime *rt, const char *reference, json_t *body,
                 struct issue *ret, struct issue_comment *ret_comment, struct err *err);
int issue_activity(struct op *op, struct runtime *rt, const char *reference, activity_fn fn,
                   void *ctx, struct err *err);

/* {agentId, expectedStatuses}. 409 `Issue checkout conflict`. */
int issue_checkout(struct op *op, struct runtime *rt, const char *reference, json_t *body,
                   struct issue *ret, struct err *err);
/* Set the issue back to todo, without assignee. A done or cancelled issue keeps its status. */
int issue_release(struct op *op, struct runtime *rt, const char *reference, struct issue *ret,
                  struct err *err);
/* Board callers: remove the locks, whichever run holds them. */
int issue_force_release(struct op *op, struct runtime *rt, const char *reference,
                        bool clear_assignee, struct issue *ret, struct issue *ret_previous,
                        struct err *err);

/* The acting agent's issues with one of the statuses given (comma separated). */
int issue_inbox(struct op *op, struct runtime *rt, const char *statuses,
                int (*fn)(void *ctx, const struct issue_task *task), void *ctx, struct err *err);

int issue_comment_create(struct op *op, struct runtime *rt, const char *reference, json_t *body,
                         struct issue_comment *ret, struct err *err);
int issue_comment_get(struct op *op, struct runtime *rt, const char *reference, const char *id,
                      struct issue_comment *ret, struct err *err);
/* after: the id of the comment that comes before the first, or NULL. */
int issue_comment_list(struct op *op, struct runtime *rt, const char *reference, const char *after,
                       bool newest_first, int64_t limit, issue_comment_fn fn, void *ctx,
                       struct err *err);

/* *ret_created: whether the document is new. */
int issue_document_put(struct op *op, struct runtime *rt, const char *reference, const char *key,
                       json_t *body, struct issue_document *ret, bool *ret_created,
                       struct err *err);
int issue_document_get(struct op *op, struct runtime *rt, const char *reference, const char *key,
                       struct issue_document *ret, struct err *err);
int issue_document_list(struct op *op, struct runtime *rt, const char *reference,
                        issue_document_fn fn, void *ctx, struct err *err);
/* Newest first. *ret is the document, known before the first row comes. */
int issue_document_revisions(struct op *op, struct runtime *rt, const char *reference,
                             const char *key, struct issue_document *ret,
                             issue_document_revision_fn fn, void *ctx, struct err *err);

#endif
