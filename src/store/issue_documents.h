/* Rows of `issue_documents` and of their revisions. */
#pragma once

#include "store/db.h"

struct issue_document {
        const char *id, *company_id, *issue_id, *key, *title, *format, *body;
        const char *latest_revision_id;
        int64_t latest_revision_number;
        const char *created_by_agent_id, *created_by_user_id;
        const char *updated_by_agent_id, *updated_by_user_id;
        int64_t created_at, updated_at;
};

extern const struct row_type issue_document_table;

struct issue_document_revision {
        const char *id, *document_id;
        int64_t number;
        const char *title, *format, *body, *change_summary;
        const char *created_by_agent_id, *created_by_user_id, *created_by_run_id;
        int64_t created_at;
};

extern const struct row_type issue_document_revision_table;

typedef int (*issue_document_fn)(void *ctx, const struct issue_document *row);
typedef int (*issue_document_revision_fn)(void *ctx, const struct issue_document_revision *row);

/* ERR_CONFLICT when the issue has one of that key. */
int issue_documents_insert(struct db *db, const struct issue_document *document, struct err *err);
/* Writes the row if its newest revision is still `seen_revision_id`; 0 when it is not. */
int issue_documents_update(struct db *db, const struct issue_document *document,
                           const char *seen_revision_id, struct err *err);
/* ERR_NOT_FOUND "Document not found". */
int issue_documents_get(struct db *db, const char *issue_id, const char *key, struct arena *arena,
                        struct issue_document *ret, struct err *err);
int issue_documents_list(struct db *db, const char *issue_id, struct arena *arena,
                         issue_document_fn fn, void *ctx, struct err *err);

int issue_document_revisions_insert(struct db *db, const struct issue_document_revision *v,
                                    struct err *err);
/* Newest first. */
int issue_document_revisions_list(struct db *db, const char *document_id, struct arena *arena,
                                  issue_document_revision_fn fn, void *ctx, struct err *err);
