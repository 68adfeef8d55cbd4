/* Rows of `issue_comments`. presentation and metadata are JSON texts or NULL. */
#pragma once

#include "store/db.h"

struct issue_comment {
        const char *id, *company_id, *issue_id, *author_type, *author_agent_id, *author_user_id;
        const char *created_by_run_id, *body, *presentation, *metadata;
        int64_t created_at, updated_at;
};

extern const struct row_type issue_comment_table;

typedef int (*issue_comment_fn)(void *ctx, const struct issue_comment *row);

int issue_comments_insert(struct db *db, const struct issue_comment *comment, struct err *err);
/* ERR_NOT_FOUND "Comment not found", also for one of another issue. */
int issue_comments_get(struct db *db, const char *issue_id, const char *id, struct arena *arena,
                       struct issue_comment *ret, struct err *err);
/* In the order of time or against it. `after`: those that follow this one in that order; NULL: all.
 */
int issue_comments_list(struct db *db, const char *issue_id, const struct issue_comment *after,
                        bool newest_first, int64_t limit, struct arena *arena, issue_comment_fn fn,
                        void *ctx, struct err *err);
/* How many there are, and the newest; ret->id is NULL without any. */
int issue_comments_count(struct db *db, const char *issue_id, struct arena *arena, int64_t *ret_n,
                         struct issue_comment *ret, struct err *err);
