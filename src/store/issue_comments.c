#include "store/issue_comments.h"

#define COLUMNS                                                                                    \
        "id, company_id, issue_id, author_type, author_agent_id, author_user_id, "                 \
        "created_by_run_id, body, presentation, metadata, created_at, updated_at"

static void load(struct stmt *s, struct arena *a, struct issue_comment *c)
{
        *c = (struct issue_comment){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .issue_id = stmt_text(s, 2, a),
                .author_type = stmt_text(s, 3, a),
                .author_agent_id = stmt_text(s, 4, a),
                .author_user_id = stmt_text(s, 5, a),
                .created_by_run_id = stmt_text(s, 6, a),
                .body = stmt_text(s, 7, a),
                .presentation = stmt_text(s, 8, a),
                .metadata = stmt_text(s, 9, a),
                .created_at = stmt_number(s, 10),
                .updated_at = stmt_number(s, 11),
        };
}

int issue_comments_insert(struct db *db, const struct issue_comment *c, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO issue_comments (" COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                       DB_ARGS(DB_T(c->id), DB_T(c->company_id), DB_T(c->issue_id),
                               DB_T(c->author_type), DB_T(c->author_agent_id),
                               DB_T(c->author_user_id), DB_T(c->created_by_run_id), DB_T(c->body),
                               DB_T(c->presentation), DB_T(c->metadata), DB_I(c->created_at),
                               DB_I(c->updated_at)),
                       err);
}

int issue_comments_get(struct db *db, const char *issue_id, const char *id, struct arena *arena,
                       struct issue_comment *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM issue_comments WHERE issue_id = ?1 AND id = ?2",
                         DB_ARGS(DB_T(issue_id), DB_T(id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Comment not found");
        load(s, arena, ret);
        return 0;
}

int issue_comments_list(struct db *db, const char *issue_id, const struct issue_comment *after,
                        bool newest_first, int64_t limit, struct arena *arena, issue_comment_fn fn,
                        void *ctx, struct err *err)
{
        static const char oldest[] =
                "SELECT " COLUMNS " FROM issue_comments WHERE issue_id = ?1 AND "
                "(created_at, id) > (?3, ?2) "
                "ORDER BY created_at, id LIMIT ?4";
        static const char newest[] =
                "SELECT " COLUMNS " FROM issue_comments WHERE issue_id = ?1 AND "
                "(created_at, id) < (?3, ?2) "
                "ORDER BY created_at DESC, id DESC LIMIT ?4";
        int64_t from_us = after ? after->created_at : newest_first ? INT64_MAX : 0;
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(
                db, newest_first ? newest : oldest,
                DB_ARGS(DB_T(issue_id), DB_T(after ? after->id : ""), DB_I(from_us), DB_I(limit)),
                &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct issue_comment row;

                load(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

static int note(void *ctx, const struct issue_comment *row)
{
        *(struct issue_comment *)ctx = *row;
        return 0;
}

int issue_comments_count(struct db *db, const char *issue_id, struct arena *arena, int64_t *ret_n,
                         struct issue_comment *ret, struct err *err)
{
        int r = db_number(db, "SELECT COUNT(*) FROM issue_comments WHERE issue_id = ?1",
                          DB_ARGS(DB_T(issue_id)), ret_n, err);

        *ret = (struct issue_comment){ 0 };
        return r < 0 ? r : issue_comments_list(db, issue_id, NULL, true, 1, arena, note, ret, err);
}
