/* Comments and documents of an issue: who may write them. Each write of a document is a revision;
 * older ones are kept. */
#include <ctype.h>

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/issues/issue_internal.h"

#define KEY_MAX 64

struct request {
        struct op *op;
        struct runtime *rt;
        bool kick; /* there is something to run */
        const char *reference, *key;
        const struct issue_posting *posting;
        struct issue_comment *comment;
        const struct issue_writing *writing;
        struct issue_document *document;
        bool created;
};

/* -- Comments --------------------------------------------------------------------------------- */

int issue_add_comment(const struct issue_change_context *x, const struct issue *i,
                      struct issue_comment *c, struct err *err)
{
        const struct op *op = x->op;
        const struct actor *a = op->actor;

        c->id = arena_strdup(op->arena, uuid_new().s);
        c->company_id = i->company_id;
        c->issue_id = i->id;
        c->author_type = a->type == ACTOR_AGENT   ? "agent"
                         : a->type == ACTOR_BOARD ? "user"
                                                  : "system";
        c->author_agent_id = a->agent_id;
        c->author_user_id = a->user_id;
        c->created_by_run_id = op->run_id;
        c->created_at = c->updated_at = clock_now_us();
        int r = issue_comments_insert(x->db, c, err);
        if (r >= 0)
                r = audit(x->db, op, i->company_id, "issue.comment_added", "issue", i->id,
                          json_pack("{s:s, s:s}", "identifier", i->identifier, "commentId", c->id),
                          err);
        return r < 0 ? r : issue_wake_commented(x, i, c, err);
}

static int issue_reopen(struct db *db, struct request *q, struct issue *i, struct err *err)
{
        struct issue before = *i;

        if (!(q->posting->reopen || q->posting->resume) || !issue_is_closed(i))
                return 0;
        i->updated_at = clock_now_us();
        issue_set_status(i, "todo", i->updated_at);
        int r = issues_update(db, i, &before, err);
        if (r == 0)
                return issue_conflict(&before, "Issue was changed by someone else", err);
        return r < 0 ? r
                     : audit(db, q->op, i->company_id, "issue.updated", "issue", i->id,
                             json_pack("{s:s, s:b, s:s, s:s}", "identifier", i->identifier,
                                       "reopened", 1, "previousStatus", before.status, "status",
                                       i->status),
                             err);
}

static int issue_post(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        const struct issue_posting *p = q->posting;
        struct issue_change_context x = { db, q->op, q->rt, &q->kick };
        bool is_agent = q->op->actor->type == ACTOR_AGENT;
        struct issue i;
        int r = issue_load(db, q->op, q->reference, true, &i, err);

        if (r >= 0)
                r = body_check(&p->body, err);
        if (r >= 0 && is_agent && (p->comment.presentation || p->comment.metadata))
                r = err_set(err, ERR_FORBIDDEN,
                            "Only board users may set structured comment presentation or "
                            "metadata");
        if (r >= 0 && is_agent && p->interrupt)
                r = err_set(err, ERR_FORBIDDEN,
                            "Only board users can interrupt active runs from issue comments");
        if (r >= 0)
                r = issue_may_write(db, q->op, &i, err);
        if (r >= 0)
                r = issue_reopen(db, q, &i, err);
        if (r >= 0 && p->interrupt)
                r = issue_interrupt(&x, &i, err);
        *q->comment = p->comment;
        return r < 0 ? r : issue_add_comment(&x, &i, q->comment, err);
}

int issue_comment_create(struct op *op, struct runtime *rt, const char *reference,
                         const struct issue_posting *posting, struct issue_comment *ret,
                         struct err *err)
{
        struct request q = {
                .op = op, .rt = rt, .reference = reference, .posting = posting, .comment = ret
        };

        FAULT("issue.comment.before");
        int r = store_write(op, rt->store, issue_post, &q, err);
        FAULT("issue.comment.after");
        if (r >= 0 && q.kick)
                run_host_kick(rt->runs);
        return r;
}

/* -- Documents -------------------------------------------------------------------------------- */

int issue_check_document_key(const char *key, struct err *err)
{
        size_t n = strlen(key);
        bool valid = n > 0 && n <= KEY_MAX && key[0] != '-' && key[0] != '_';

        for (; *key; key++)
                valid = valid && (islower((unsigned char)*key) || isdigit((unsigned char)*key) ||
                                  *key == '-' || *key == '_');
        return valid ? 0 : err_set(err, ERR_INVALID, "Invalid document key");
}

static int document_conflict(const char *text, const char *current, struct err *err)
{
        int r = err_set(err, ERR_CONFLICT, "%s", text);

        if (err && current)
                err_details(err, xasprintf("{\"currentRevisionId\":\"%s\"}", current));
        return r;
}

/* The document as it is, for a writer that knew its newest revision; or an empty one. */
static int document_load(struct db *db, struct request *q, const struct issue *i, struct err *err)
{
        struct issue_document *d = q->document;
        int r = issue_documents_get(db, i->id, q->key, q->op->arena, d, err);

        if (r >= 0 && q->writing->base && !streq(q->writing->base, d->latest_revision_id))
                return document_conflict("Document was updated by someone else",
                                         d->latest_revision_id, err);
        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        if (q->writing->base)
                return document_conflict("Document does not exist yet", NULL, err);
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

static int document_write(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        const struct actor *a = q->op->actor;
        struct issue_document_revision v = q->writing->revision;
        struct issue_document *d = q->document;
        struct issue i;
        int r = issue_load(db, q->op, q->reference, true, &i, err);

        q->created = false;
        if (r >= 0)
                r = issue_check_document_key(q->key, err);
        if (r >= 0)
                r = body_check(&q->writing->body, err);
        if (r >= 0)
                r = issue_may_write(db, q->op, &i, err);
        if (r >= 0)
                r = document_load(db, q, &i, err);
        if (r < 0)
                return r;
        const char *seen = d->latest_revision_id;
        if (!q->writing->has_title && !q->created)
                v.title = d->title;
        v.id = arena_strdup(q->op->arena, uuid_new().s);
        v.document_id = d->id;
        v.number = d->latest_revision_number + 1;
        v.created_by_agent_id = a->agent_id;
        v.created_by_user_id = a->user_id;
        v.created_by_run_id = q->op->run_id;
        v.created_at = clock_now_us();
        /* The newest revision becomes the document. */
        d->title = v.title;
        d->format = v.format;
        d->body = v.body;
        d->latest_revision_id = v.id;
        d->latest_revision_number = v.number;
        d->updated_by_agent_id = v.created_by_agent_id;
        d->updated_by_user_id = v.created_by_user_id;
        d->updated_at = v.created_at;
        r = q->created ? issue_documents_insert(db, d, err)
                       : issue_documents_update(db, d, seen, err);
        if (r == 0 && !q->created)
                return document_conflict("Document was updated by someone else", NULL, err);
        if (r >= 0)
                r = issue_document_revisions_insert(db, &v, err);
        return r < 0 ? r
                     : audit(db, q->op, i.company_id,
                             q->created ? "issue.document_created" : "issue.document_updated",
                             "issue", i.id,
                             json_pack("{s:s, s:s, s:s, s:I}", "identifier", i.identifier,
                                       "documentId", d->id, "documentKey", q->key, "revisionNumber",
                                       (json_int_t)v.number),
                             err);
}

int issue_document_put(struct op *op, struct runtime *rt, const char *reference, const char *key,
                       const struct issue_writing *writing, struct issue_document *ret,
                       bool *ret_created, struct err *err)
{
        struct request q = {
                .op = op, .reference = reference, .key = key, .writing = writing, .document = ret
        };

        FAULT("issue.document.before");
        int r = store_write(op, rt->store, document_write, &q, err);
        FAULT("issue.document.after");
        *ret_created = q.created;
        return r;
}
