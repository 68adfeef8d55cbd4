/* Comments and documents of issues. */
#include "api/api.h"
#include "api/encode.h"
#include "core/issues/issue.h"

#define COMMENTS_MAX 500

/* -- Comments --------------------------------------------------------------------------------- */

static int answer_comment(struct call *c, int r, const struct issue_comment *comment)
{
        if (r >= 0)
                encode_comment(call_json(c), comment);
        return r;
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
        int r = call_query_int(c, "limit", INT64_MAX, 1, INT64_MAX, &limit, err);

        if (r < 0)
                return r;
        if (limit != INT64_MAX)
                limit = MIN(limit, COMMENTS_MAX);
        if (!after)
                after = call_query(c, "afterCommentId");
        return call_list_end(c, issue_comment_list(c->op, c->rt, c->params[0], after,
                                                   !(order && streq(order, "asc")), limit,
                                                   show_comment, call_list(c), err));
}

static int get_comment(struct call *c, struct err *err)
{
        struct issue_comment comment;
        int r = issue_comment_get(c->op, c->rt, c->params[0], c->params[1], &comment, err);

        return answer_comment(c, r, &comment);
}

static int create_comment(struct call *c, struct err *err)
{
        struct issue_comment comment;
        int r = issue_comment_create(c->op, c->rt, c->params[0], c->body, &comment, err);

        return answer_comment(c, r, &comment);
}

/* -- Documents -------------------------------------------------------------------------------- */

static int answer_document(struct call *c, int r, const struct issue_document *document)
{
        if (r >= 0)
                encode_document(call_json(c), document, true);
        return r;
}

static int show_document(void *ctx, const struct issue_document *row)
{
        encode_document(ctx, row, true);
        return 0;
}

static int list_documents(struct call *c, struct err *err)
{
        return call_list_end(c, issue_document_list(c->op, c->rt, c->params[0], show_document,
                                                    call_list(c), err));
}

static int get_document(struct call *c, struct err *err)
{
        struct issue_document document;
        int r = issue_document_get(c->op, c->rt, c->params[0], c->params[1], &document, err);

        return answer_document(c, r, &document);
}

static int put_document(struct call *c, struct err *err)
{
        struct issue_document document;
        bool created;
        int r = issue_document_put(c->op, c->rt, c->params[0], c->params[1], c->body, &document,
                                   &created, err);

        c->status = created ? 201 : 200;
        return answer_document(c, r, &document);
}

struct revisions {
        struct jw *w;
        struct issue_document document;
};

static int show_revision(void *ctx, const struct issue_document_revision *row)
{
        struct revisions *all = ctx;

        encode_document_revision(all->w, &all->document, row);
        return 0;
}

static int list_revisions(struct call *c, struct err *err)
{
        struct revisions all = { .w = call_list(c) };

        return call_list_end(c, issue_document_revisions(c->op, c->rt, c->params[0], c->params[1],
                                                         &all.document, show_revision, &all, err));
}

const struct route routes_issue_records[] = {
        { "GET", "/api/issues/:id/comments", .fn = list_comments },
        { "POST", "/api/issues/:id/comments", .fn = create_comment, .status = 201 },
        { "GET", "/api/issues/:id/comments/:comment", .fn = get_comment },
        { "GET", "/api/issues/:id/documents", .fn = list_documents },
        { "GET", "/api/issues/:id/documents/:key", .fn = get_document },
        { "PUT", "/api/issues/:id/documents/:key", .fn = put_document },
        { "GET", "/api/issues/:id/documents/:key/revisions", .fn = list_revisions },
        { 0 },
};
