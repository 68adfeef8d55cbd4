/* Comments and documents of issues. */
#include "api/api.h"
#include "api/encode.h"
#include "core/issues/issue.h"

#define COMMENTS_MAX 500

/* -- Comments --------------------------------------------------------------------------------- */

static int encode_one_comment(struct call *c, const struct issue_comment *comment)
{
        struct jw w;

        jw_init(&w, &c->out);
        encode_comment(&w, comment);
        return 0;
}

static int show_comment(void *ctx, const struct issue_comment *row)
{
        encode_comment(ctx, row);
        return 0;
}

static int list_comments(struct call *c, struct err *err)
{
        const char *after = call_query(c, "after"), *order = call_query(c, "order");
        int64_t limit;
        struct jw w;
        int r = call_query_int(c, "limit", INT64_MAX, 1, INT64_MAX, &limit, err);

        if (r < 0)
                return r;
        if (limit != INT64_MAX)
                limit = MIN(limit, COMMENTS_MAX);
        if (!after)
                after = call_query(c, "afterCommentId");
        call_list(c, &w);
        return call_list_end(&w, issue_comment_list(c->op, c->rt, c->params[0], after,
                                                    !(order && streq(order, "asc")), limit,
                                                    show_comment, &w, err));
}

static int get_comment(struct call *c, struct err *err)
{
        struct issue_comment comment;
        int r = issue_comment_get(c->op, c->rt, c->params[0], c->params[1], &comment, err);

        return r < 0 ? r : encode_one_comment(c, &comment);
}

static int create_comment(struct call *c, struct err *err)
{
        struct issue_comment comment;
        int r = issue_comment_create(c->op, c->rt, c->params[0], c->body, &comment, err);

        c->status = 201;
        return r < 0 ? r : encode_one_comment(c, &comment);
}

/* -- Documents -------------------------------------------------------------------------------- */

static int encode_one_document(struct call *c, const struct issue_document *document)
{
        struct jw w;

        jw_init(&w, &c->out);
        encode_document(&w, document, true);
        return 0;
}

static int show_document(void *ctx, const struct issue_document *row)
{
        encode_document(ctx, row, true);
        return 0;
}

static int list_documents(struct call *c, struct err *err)
{
        struct jw w;

        call_list(c, &w);
        return call_list_end(
                &w, issue_document_list(c->op, c->rt, c->params[0], show_document, &w, err));
}

static int get_document(struct call *c, struct err *err)
{
        struct issue_document document;
        int r = issue_document_get(c->op, c->rt, c->params[0], c->params[1], &document, err);

        return r < 0 ? r : encode_one_document(c, &document);
}

static int put_document(struct call *c, struct err *err)
{
        struct issue_document document;
        bool created;
        int r = issue_document_put(c->op, c->rt, c->params[0], c->params[1], c->body, &document,
                                   &created, err);

        c->status = created ? 201 : 200;
        return r < 0 ? r : encode_one_document(c, &document);
}

struct revisions {
        struct jw w;
        struct issue_document document;
};

static int show_revision(void *ctx, const struct issue_document_revision *row)
{
        struct revisions *all = ctx;

        encode_document_revision(&all->w, &all->document, row);
        return 0;
}

static int list_revisions(struct call *c, struct err *err)
{
        struct revisions all;

        call_list(c, &all.w);
        return call_list_end(&all.w,
                             issue_document_revisions(c->op, c->rt, c->params[0], c->params[1],
                                                      &all.document, show_revision, &all, err));
}

const struct route routes_issue_records[] = {
        { "GET", "/api/issues/:id/comments", list_comments, 0 },
        { "POST", "/api/issues/:id/comments", create_comment, 0 },
        { "GET", "/api/issues/:id/comments/:comment", get_comment, 0 },
        { "GET", "/api/issues/:id/documents", list_documents, 0 },
        { "GET", "/api/issues/:id/documents/:key", get_document, 0 },
        { "PUT", "/api/issues/:id/documents/:key", put_document, 0 },
        { "GET", "/api/issues/:id/documents/:key/revisions", list_revisions, 0 },
        { NULL, NULL, NULL, 0 },
};
