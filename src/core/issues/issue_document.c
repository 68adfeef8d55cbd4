/* Documents of an issue. Each write is a revision; older ones are kept. */
#include <ctype.h>

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/issues/issue_internal.h"

#define KEY_MAX  64
#define BODY_MAX 524288

struct request {
        struct op *op;
        const char *reference, *key;
        json_t *body;
        struct issue_document *document;
        struct issue_document_revision revision;
        const char *base;
        bool created, has_title;
        issue_document_fn fn;
        issue_document_revision_fn revision_fn;
        void *ctx;
};

static bool key_is_valid(const char *key)
{
        size_t n = strlen(key);

        if (n == 0 || n > KEY_MAX || key[0] == '-' || key[0] == '_')
                return false;
        for (; *key; key++)
                if (!islower((unsigned char)*key) && !isdigit((unsigned char)*key) && *key != '-' &&
                    *key != '_')
                        return false;
        return true;
}

static int load(struct db *db, const struct request *q, bool write, struct issue *ret,
                struct err *err)
{
        int r = issue_load(db, q->op, q->reference, write, ret, err);

        if (r >= 0 && q->key && !key_is_valid(q->key))
                r = err_set(err, ERR_INVALID, "Invalid document key");
        return r;
}

/* -- Writing ---------------------------------------------------------------------------------- */

static int check_body(struct request *q, struct err *err)
{
        static const char *const formats[] = { "markdown", NULL };
        CLEAN(check_done) struct check c = { 0 };
        struct issue_document_revision *v = &q->revision;
        struct arena *a = q->op->arena;

        check_init(&c, q->body);
        q->has_title = check_has(&c, "title");
        v->title = arena_strdup(a, check_string(&c, "title", CHECK_NULLABLE, 0, 200));
        v->format = check_enum(&c, "format", CHECK_REQUIRED, formats) ? "markdown" : NULL;
        v->body = arena_strdup(a, check_string(&c, "body", CHECK_REQUIRED, 0, BODY_MAX));
        v->change_summary =
                arena_strdup(a, check_string(&c, "changeSummary", CHECK_NULLABLE, 0, 500));
        q->base = arena_strdup(a, check_uuid(&c, "baseRevisionId", CHECK_NULLABLE));
        return check_end(&c, err);
}

static int conflict(const char *text, const char *current, struct err *err)
{
        int r = err_set(err, ERR_CONFLICT, "%s", text);

        if (err && current)
                err_details(err, xasprintf("{\"currentRevisionId\":\"%s\"}", current));
        return r;
}

/* The newest revision becomes the document. */
static int write_document(struct db *db, struct request *q, const char *seen, struct err *err)
{
        struct issue_document *d = q->document;
        const struct issue_document_revision *v = &q->revision;
        int r;

        if (q->has_title || q->created)
                d->title = v->title;
        q->revision.title = d->title;
        d->format = v->format;
        d->body = v->body;
        d->latest_revision_id = v->id;
        d->latest_revision_number = v->number;
        d->updated_by_agent_id = v->created_by_agent_id;
        d->updated_by_user_id = v->created_by_user_id;
        d->updated_at = v->created_at;
        if (q->created)
                return issue_documents_insert(db, d, err);
        r = issue_documents_update(db, d, seen, err);
        return r == 0 ? conflict("Document was updated by someone else", NULL, err) : r;
}

static int find(struct db *db, struct request *q, const struct issue *i, struct err *err)
{
        struct issue_document *d = q->document;
        int r = issue_documents_get(db, i->id, q->key, q->op->arena, d, err);

        if (r >= 0 && q->base && !streq(q->base, d->latest_revision_id))
                return conflict("Document was updated by someone else", d->latest_revision_id, err);
        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        if (q->base)
                return conflict("Document does not exist yet", NULL, err);
        q->created = true;
        *d = (struct issue_document){
                .id = arena_strdup(q->op->arena, uuid_new().s),
                .company_id = i->company_id,
                .issue_id = i->id,
                .key = q->key,
                .created_by_agent_id = q->op->actor->agent_id,
                .created_by_user_id = q->op->actor->user_id,
                .created_at = clock_now_us(),
        };
        return 0;
}

static int put(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct issue_document_revision *v = &q->revision;
        const char *seen;
        struct issue i;
        int r = load(db, q, true, &i, err);

        if (r >= 0)
                r = check_body(q, err);
        if (r >= 0)
                r = issue_may_write(db, q->op, &i, err);
        if (r >= 0)
                r = find(db, q, &i, err);
        if (r < 0)
                return r;
        seen = q->document->latest_revision_id;
        v->id = arena_strdup(q->op->arena, uuid_new().s);
        v->document_id = q->document->id;
        v->number = q->document->latest_revision_number + 1;
        v->created_by_agent_id = q->op->actor->agent_id;
        v->created_by_user_id = q->op->actor->user_id;
        v->created_by_run_id = q->op->run_id;
        v->created_at = clock_now_us();
        r = write_document(db, q, seen, err);
        if (r >= 0)
                r = issue_document_revisions_insert(db, v, err);
        return r < 0 ? r
                     : audit(db, q->op, i.company_id,
                             q->created ? "issue.document_created" : "issue.document_updated",
                             "issue", i.id,
                             json_pack("{s:s, s:s, s:s, s:I}", "identifier", i.identifier,
                                       "documentId", q->document->id, "documentKey", q->key,
                                       "revisionNumber", (json_int_t)v->number),
                             err);
}

int issue_document_put(struct op *op, struct runtime *rt, const char *reference, const char *key,
                       json_t *body, struct issue_document *ret, bool *ret_created, struct err *err)
{
        struct request q = {
                .op = op, .reference = reference, .key = key, .body = body, .document = ret
        };
        int r;

        FAULT("issue.document.before");
        r = store_write(op, rt->store, put, &q, err);
        FAULT("issue.document.after");
        *ret_created = q.created;
        return r;
}

/* -- Reading ---------------------------------------------------------------------------------- */

static int get(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct issue i;
        int r = load(db, q, false, &i, err);

        if (r >= 0)
                r = issue_documents_get(db, i.id, q->key, q->op->arena, q->document, err);
        if (r >= 0 && q->revision_fn)
                r = issue_document_revisions_list(db, q->document->id, q->op->arena, q->revision_fn,
                                                  q->ctx, err);
        return r;
}

int issue_document_get(struct op *op, struct runtime *rt, const char *reference, const char *key,
                       struct issue_document *ret, struct err *err)
{
        struct request q = { .op = op, .reference = reference, .key = key, .document = ret };

        return store_read(op, rt->store, get, &q, err);
}

int issue_document_revisions(struct op *op, struct runtime *rt, const char *reference,
                             const char *key, struct issue_document *ret,
                             issue_document_revision_fn fn, void *ctx, struct err *err)
{
        struct request q = { .op = op,
                             .reference = reference,
                             .key = key,
                             .document = ret,
                             .revision_fn = fn,
                             .ctx = ctx };

        return store_read(op, rt->store, get, &q, err);
}

static int list(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct issue i;
        int r = load(db, q, false, &i, err);

        return r < 0 ? r : issue_documents_list(db, i.id, q->op->arena, q->fn, q->ctx, err);
}

int issue_document_list(struct op *op, struct runtime *rt, const char *reference,
                        issue_document_fn fn, void *ctx, struct err *err)
{
        struct request q = { .op = op, .reference = reference, .fn = fn, .ctx = ctx };

        return store_read(op, rt->store, list, &q, err);
}
