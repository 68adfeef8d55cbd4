/* SQL for `issue_documents` and their revisions. */
#include "store/issue_documents.h"

#include "store/row.h"

static const struct column issue_document_columns[] = {
        TEXT(struct issue_document, id, "id", FIXED),
        TEXT(struct issue_document, company_id, "companyId", FIXED),
        TEXT(struct issue_document, issue_id, "issueId", FIXED),
        TEXT(struct issue_document, key, "key", FIXED),
        TEXT(struct issue_document, title, "title"),
        TEXT(struct issue_document, format, "format"),
        TEXT(struct issue_document, body, NULL),
        TEXT(struct issue_document, latest_revision_id, "latestRevisionId"),
        NUMBER(struct issue_document, latest_revision_number, "latestRevisionNumber"),
        TEXT(struct issue_document, created_by_agent_id, "createdByAgentId", FIXED),
        TEXT(struct issue_document, created_by_user_id, "createdByUserId", FIXED),
        TEXT(struct issue_document, updated_by_agent_id, "updatedByAgentId"),
        TEXT(struct issue_document, updated_by_user_id, "updatedByUserId"),
        TIME(struct issue_document, created_at, "createdAt", FIXED),
        TIME(struct issue_document, updated_at, "updatedAt"),
};
const struct row_type issue_document_table = ROW_TYPE("issue_documents", struct issue_document,
                                                      issue_document_columns, "Document not found");

static const struct column issue_document_revision_columns[] = {
        TEXT(struct issue_document_revision, id, "id"),
        TEXT(struct issue_document_revision, document_id, "documentId"),
        NUMBER(struct issue_document_revision, number, "revisionNumber", .sql = "revision_number"),
        TEXT(struct issue_document_revision, title, "title"),
        TEXT(struct issue_document_revision, format, "format"),
        TEXT(struct issue_document_revision, body, "body"),
        TEXT(struct issue_document_revision, change_summary, "changeSummary"),
        TEXT(struct issue_document_revision, created_by_agent_id, "createdByAgentId"),
        TEXT(struct issue_document_revision, created_by_user_id, "createdByUserId"),
        TEXT(struct issue_document_revision, created_by_run_id, "createdByRunId"),
        TIME(struct issue_document_revision, created_at, "createdAt"),
};
const struct row_type issue_document_revision_table =
        ROW_TYPE("issue_document_revisions", struct issue_document_revision,
                 issue_document_revision_columns, NULL);

int issue_documents_insert(struct db *db, const struct issue_document *d, struct err *err)
{
        return row_insert(db, &issue_document_table, d, err);
}

int issue_documents_update(struct db *db, const struct issue_document *d,
                           const char *seen_revision_id, struct err *err)
{
        return row_exec(db, &issue_document_table,
                        "UPDATE issue_documents SET * WHERE id = ?1 AND latest_revision_id = ?2", d,
                        DB_ARGS(DB_T(d->id), DB_T(seen_revision_id)), err);
}

int issue_documents_get(struct db *db, const char *issue_id, const char *key, struct arena *arena,
                        struct issue_document *ret, struct err *err)
{
        return row_get(db, &issue_document_table,
                       "SELECT * FROM issue_documents WHERE issue_id = ?1 AND key = ?2",
                       DB_ARGS(DB_T(issue_id), DB_T(key)), arena, ret, err);
}

int issue_documents_list(struct db *db, const char *issue_id, struct arena *arena,
                         issue_document_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &issue_document_table,
                        "SELECT * FROM issue_documents WHERE issue_id = ?1 ORDER BY key",
                        DB_ARGS(DB_T(issue_id)), arena, fn, ctx, err);
}

int issue_document_revisions_insert(struct db *db, const struct issue_document_revision *v,
                                    struct err *err)
{
        return row_insert(db, &issue_document_revision_table, v, err);
}

int issue_document_revisions_list(struct db *db, const char *document_id, struct arena *a,
                                  issue_document_revision_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &issue_document_revision_table,
                        "SELECT * FROM issue_document_revisions "
                        "WHERE document_id = ?1 ORDER BY revision_number DESC",
                        DB_ARGS(DB_T(document_id)), a, fn, ctx, err);
}
