/* SQL for `issue_comments`. */
#include "store/issue_comments.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct issue_comment, id, "id"),
        TEXT(struct issue_comment, company_id, "companyId"),
        TEXT(struct issue_comment, issue_id, "issueId"),
        TEXT(struct issue_comment, author_type, "authorType"),
        TEXT(struct issue_comment, author_agent_id, "authorAgentId"),
        TEXT(struct issue_comment, author_user_id, "authorUserId"),
        TEXT(struct issue_comment, created_by_run_id, "createdByRunId"),
        TEXT(struct issue_comment, body, "body"),
        DOCUMENT(struct issue_comment, presentation, "presentation"),
        DOCUMENT(struct issue_comment, metadata, "metadata"),
        TIME(struct issue_comment, created_at, "createdAt"),
        TIME(struct issue_comment, updated_at, "updatedAt"),
};
const struct row_type issue_comment_table =
        ROW_TYPE("issue_comments", struct issue_comment, columns, "Comment not found");

int issue_comments_insert(struct db *db, const struct issue_comment *c, struct err *err)
{
        return row_insert(db, &issue_comment_table, c, err);
}

int issue_comments_get(struct db *db, const char *issue_id, const char *id, struct arena *arena,
                       struct issue_comment *ret, struct err *err)
{
        return row_get(db, &issue_comment_table,
                       "SELECT * FROM issue_comments WHERE issue_id = ?1 AND id = ?2",
                       DB_ARGS(DB_T(issue_id), DB_T(id)), arena, ret, err);
}

int issue_comments_list(struct db *db, const char *issue_id, const struct issue_comment *after,
                        bool newest_first, int64_t limit, struct arena *arena, issue_comment_fn fn,
                        void *ctx, struct err *err)
{
        static const char oldest[] = "SELECT * FROM issue_comments WHERE issue_id = ?1 AND "
                                     "(created_at, id) > (?3, ?2) "
                                     "ORDER BY created_at, id LIMIT ?4";
        static const char newest[] = "SELECT * FROM issue_comments WHERE issue_id = ?1 AND "
                                     "(created_at, id) < (?3, ?2) "
                                     "ORDER BY created_at DESC, id DESC LIMIT ?4";
        int64_t from_us = after ? after->created_at : newest_first ? INT64_MAX : 0;

        return ROW_EACH(
                db, &issue_comment_table, newest_first ? newest : oldest,
                DB_ARGS(DB_T(issue_id), DB_T(after ? after->id : ""), DB_I(from_us), DB_I(limit)),
                arena, fn, ctx, err);
}

int issue_comments_count(struct db *db, const char *issue_id, struct arena *arena, int64_t *ret_n,
                         struct issue_comment *ret, struct err *err)
{
        int r = db_number(db, "SELECT COUNT(*) FROM issue_comments WHERE issue_id = ?1",
                          DB_ARGS(DB_T(issue_id)), ret_n, err);

        *ret = (struct issue_comment){ 0 };
        if (r >= 0)
                r = row_find(db, &issue_comment_table,
                             "SELECT * FROM issue_comments WHERE issue_id = ?1 "
                             "ORDER BY created_at DESC, id DESC LIMIT 1",
                             DB_ARGS(DB_T(issue_id)), arena, ret, err);
        return MIN(r, 0);
}
