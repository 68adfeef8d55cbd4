/* Shared by the files of issue.h. Inside store functions. */
#pragma once

#include "core/issues/issue.h"
#include "core/issues/issue_wake.h"

/* Whether both are the same text, or neither is there. */
static inline bool issue_same(const char *a, const char *b)
{
        return (!a && !b) || (a && b && streq(a, b));
}

/* Check that project, parent, blockers, environment and workspace may be chosen; `before` is NULL
 * for a new issue. */
int issue_check_relations(struct db *db, struct runtime *rt, const struct op *op,
                          const struct issue *before, const struct issue *issue,
                          const struct issue_patch *patch, struct err *err);
int issue_write_blockers(struct db *db, const struct issue *issue, const struct issue_patch *patch,
                         struct err *err);

/* Pass the settings on to the workspace that the issue reuses; does nothing without one. */
int issue_tell_workspace(struct db *db, const struct op *op, const struct issue *issue,
                         const json_t *settings, struct err *err);

/* Insert a comment by the actor, with the audit entry and the wake-ups that follow from it.
 * *comment has body, presentation and metadata. */
int issue_add_comment(const struct issue_change_context *x, const struct issue *issue,
                      struct issue_comment *comment, struct err *err);
