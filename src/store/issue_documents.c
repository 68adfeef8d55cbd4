#include "store/issue_documents.h"

#define COLUMNS                                                                                    \
        "id, company_id, issue_id, key, title, format, body, latest_revision_id, "                 \
        "latest_revision_number, created_by_agent_id, created_by_user_id, updated_by_agent_id, "   \
        "updated_by_user_id, created_at, updated_at"
#define REVISION_COLUMNS                                                                           \
        "id, document_id, revision_number, title, format, body, change_summary, "                  \
        "created_by_agent_id, created_by_user_id, created_by_run_id, created_at"

static void load(struct stmt *s, struct arena *a, struct issue_document *d)
{
        *d = (struct issue_document){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .issue_id = stmt_text(s, 2, a),
                .key = stmt_text(s, 3, a),
                .title = stmt_text(s, 4, a),
                .format = stmt_text(s, 5, a),
                .body = stmt_text(s, 6, a),
                .latest_revision_id = stmt_text(s, 7, a),
                .latest_revision_number = stmt_number(s, 8),
                .created_by_agent_id = stmt_text(s, 9, a),
                .created_by_user_id = stmt_text(s, 10, a),
                .updated_by_agent_id = stmt_text(s, 11, a),
                .updated_by_user_id = stmt_text(s, 12, a),
                .created_at = stmt_number(s, 13),
                .updated_at = stmt_number(s, 14),
        };
}

int issue_documents_insert(struct db *db, const struct issue_document *d, struct err *err)
{
        return db_exec(
                db,
                "INSERT INTO issue_documents (" COLUMNS
                ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
                DB_ARGS(DB_T(d->id), DB_T(d->company_id), DB_T(d->issue_id), DB_T(d->key),
                        DB_T(d->title), DB_T(d->format), DB_T(d->body), DB_T(d->latest_revision_id),
                        DB_I(d->latest_revision_number), DB_T(d->created_by_agent_id),
                        DB_T(d->created_by_user_id), DB_T(d->updated_by_agent_id),
                        DB_T(d->updated_by_user_id), DB_I(d->created_at), DB_I(d->updated_at)),
                err);
}

int issue_documents_update(struct db *db, const struct issue_document *d,
                           const char *seen_revision_id, struct err *err)
{
        return db_exec(db,
                       "UPDATE issue_documents SET title = ?2, format = ?3, body = ?4, "
                       "latest_revision_id = ?5, latest_revision_number = ?6, "
                       "updated_by_agent_id = ?7, updated_by_user_id = ?8, updated_at = ?9 "
                       "WHERE id = ?1 AND latest_revision_id = ?10",
                       DB_ARGS(DB_T(d->id), DB_T(d->title), DB_T(d->format), DB_T(d->body),
                               DB_T(d->latest_revision_id), DB_I(d->latest_revision_number),
                               DB_T(d->updated_by_agent_id), DB_T(d->updated_by_user_id),
                               DB_I(d->updated_at), DB_T(seen_revision_id)),
                       err);
}

int issue_documents_get(struct db *db, const char *issue_id, const char *key, struct arena *arena,
                        struct issue_document *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM issue_documents WHERE issue_id = ?1 AND key = ?2",
                         DB_ARGS(DB_T(issue_id), DB_T(key)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Document not found");
        load(s, arena, ret);
        return 0;
}

int issue_documents_list(struct db *db, const char *issue_id, struct arena *arena,
                         issue_document_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM issue_documents WHERE issue_id = ?1 ORDER BY key",
                         DB_ARGS(DB_T(issue_id)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct issue_document row;

                load(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

int issue_document_revisions_insert(struct db *db, const struct issue_document_revision *v,
                                    struct err *err)
{
        return db_exec(db,
                       "INSERT INTO issue_document_revisions (" REVISION_COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                       DB_ARGS(DB_T(v->id), DB_T(v->document_id), DB_I(v->number), DB_T(v->title),
                               DB_T(v->format), DB_T(v->body), DB_T(v->change_summary),
                               DB_T(v->created_by_agent_id), DB_T(v->created_by_user_id),
                               DB_T(v->created_by_run_id), DB_I(v->created_at)),
                       err);
}

int issue_document_revisions_list(struct db *db, const char *document_id, struct arena *a,
                                  issue_document_revision_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " REVISION_COLUMNS " FROM issue_document_revisions "
                         "WHERE document_id = ?1 ORDER BY revision_number DESC",
                         DB_ARGS(DB_T(document_id)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct issue_document_revision row = {
                        .id = stmt_text(s, 0, a),
                        .document_id = stmt_text(s, 1, a),
                        .number = stmt_number(s, 2),
                        .title = stmt_text(s, 3, a),
                        .format = stmt_text(s, 4, a),
                        .body = stmt_text(s, 5, a),
                        .change_summary = stmt_text(s, 6, a),
                        .created_by_agent_id = stmt_text(s, 7, a),
                        .created_by_user_id = stmt_text(s, 8, a),
                        .created_by_run_id = stmt_text(s, 9, a),
                        .created_at = stmt_number(s, 10),
                };

                r = fn(ctx, &row);
        }
        return r;
}
