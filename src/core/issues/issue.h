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
#pragma once

#include "codec/body.h"
#include "core/issues/rules/issue_rules.h"
#include "store/execution_workspaces.h"
#include "store/issue_comments.h"
#include "store/issue_documents.h"
#include "store/issues.h"
#include "store/project_workspaces.h"
#include "store/projects.h"
#include "store/runs.h"

extern const char *const issue_statuses[]; /* NULL-terminated */

struct issue_detail {
        struct issue issue;
        struct execution_workspace workspace; /* id NULL: none */
        struct issue_rows ancestors, blocked_by, blocks;
        struct project project; /* id NULL: none */
        struct project_workspace *project_workspaces;
        size_t n_project_workspaces;
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

/* What is wanted of an issue. */
struct issue_patch {
        struct issue row; /* the members that are simply put into the row */
        struct body body;
        json_t *blocked_by; /* ids; NULL: not given */
        json_t *settings;   /* NULL: not given, or none are wanted */
        const char *status, *comment;
        bool reopen;
        /* Berth has no goals and no labels: a body that names one is refused. */
        const char *goal_id;
        json_t *labels;
};
extern const struct body_type issue_body;

/* In the company, or beneath `parent` (a reference) when that is given. */
int issue_create(struct op *op, struct runtime *rt, const char *company_id, const char *parent,
                 const struct issue_patch *patch, struct issue *ret, struct err *err);
/* With `wake_comment_id`, ret->wake is that comment. */
int issue_get(struct op *op, struct runtime *rt, const char *reference, const char *wake_comment_id,
              struct issue_detail *ret, struct err *err);
/* *ret_comment: the comment posted with the change; its id is NULL without one. */
int issue_update(struct op *op, struct runtime *rt, const char *reference,
                 const struct issue_patch *patch, struct issue *ret,
                 struct issue_comment *ret_comment, struct err *err);

struct issue_taking {
        struct body body;
        const char *agent_id;
        json_t *expected; /* statuses, one of which the issue has to have */
};
/* 409 `Issue checkout conflict`. */
int issue_checkout(struct op *op, struct runtime *rt, const char *reference,
                   const struct issue_taking *taking, struct issue *ret, struct err *err);
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

struct issue_posting {
        struct issue_comment comment; /* body, presentation and metadata */
        struct body body;
        bool reopen, resume; /* either opens a closed issue again */
        bool interrupt;      /* end the runs for the issue */
};
int issue_comment_create(struct op *op, struct runtime *rt, const char *reference,
                         const struct issue_posting *posting, struct issue_comment *ret,
                         struct err *err);

/* What a document becomes. */
struct issue_writing {
        struct issue_document_revision revision; /* title, format, body and change_summary */
        struct body body;
        bool has_title;   /* else the title stays */
        const char *base; /* the revision that the writer knew; NULL: any */
};
/* *ret_created: whether the document is new. */
int issue_document_put(struct op *op, struct runtime *rt, const char *reference, const char *key,
                       const struct issue_writing *writing, struct issue_document *ret,
                       bool *ret_created, struct err *err);
/* ERR_INVALID for a text that cannot be a document's key. */
int issue_check_document_key(const char *key, struct err *err);
