/* Shared by the files of issue.h. Inside store functions. */
#ifndef BERTH_CORE_ISSUE_INTERNAL_H
#define BERTH_CORE_ISSUE_INTERNAL_H

#include "codec/check.h"
#include "core/issues/issue.h"
#include "core/issues/rules/issue_rules.h"

struct issue_change_context; /* issue_wake.h */

/* The members of a body that are not the row's own. Borrowed from the body. */
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
/* Check that project, parent, blockers, environment and workspace may be chosen; `before` is NULL
 * for a new issue. */
int issue_check_relations(struct db *db, struct runtime *rt, const struct op *op,
                          const struct issue *before, const struct issue *issue,
                          const struct issue_change *change, struct err *err);
int issue_write_blockers(struct db *db, const struct issue *issue,
                         const struct issue_change *change, struct err *err);

/* Check that the workspace is one of the company's, and that the actor may choose it. */
int issue_check_workspace(struct db *db, const struct op *op, const struct issue *issue,
                          struct err *err);
/* Whether the workspace that the issue names keeps its work in an isolated place. A workspace that
 * names no environment does not answer this. */
int issue_workspace_is_isolated(struct db *db, const struct runtime *rt, const struct op *op,
                                const struct issue *issue, bool *ret, struct err *err);
/* Pass the settings on to the workspace that the issue reuses; does nothing without one. */
int issue_tell_workspace(struct db *db, const struct op *op, const struct issue *issue,
                         const json_t *settings, struct err *err);

/* Insert a comment by the actor, with the audit entry and the wake-ups that follow from it.
 * *comment has body, presentation and metadata. */
int issue_add_comment(const struct issue_change_context *x, const struct issue *issue,
                      struct issue_comment *comment, struct err *err);

#endif
