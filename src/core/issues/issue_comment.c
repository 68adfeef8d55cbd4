/* Comments on an issue: who may write them, and reading them. */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/issues/issue_internal.h"
#include "core/issues/issue_wake.h"

struct request {
        struct op *op;
        struct runtime *rt;
        bool kick; /* there is something to run */
        const char *reference, *id, *after;
        json_t *body;
        bool reopen, interrupt, newest_first;
        int64_t limit;
        struct issue_comment *comment;
        issue_comment_fn fn;
        void *ctx;
};

int issue_add_comment(const struct issue_change_context *x, const struct issue *i,
                      struct issue_comment *c, struct err *err)
{
        const struct op *op = x->op;
        const struct actor *a = op->actor;
        int r;

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
        r = issue_comments_insert(x->db, c, err);
        if (r >= 0)
                r = audit(x->db, op, i->company_id, "issue.comment_added", "issue", i->id,
                          json_pack("{s:s, s:s}", "identifier", i->identifier, "commentId", c->id),
                          err);
        return r < 0 ? r : issue_wake_commented(x, i, c, err);
}

static int check_body(struct request *q, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct arena *a = q->op->arena;
        json_t *presentation, *metadata;
        int r;

        check_init(&c, q->body);
        q->comment->body = arena_strdup(a, check_string(&c, "body", CHECK_REQUIRED, 1, 0));
        q->reopen = check_bool(&c, "reopen", CHECK_OPTIONAL, false);
        if (check_bool(&c, "resume", CHECK_OPTIONAL, false))
                q->reopen = true;
        q->interrupt = check_bool(&c, "interrupt", CHECK_OPTIONAL, false);
        presentation = check_record(&c, "presentation", CHECK_NULLABLE);
        metadata = check_record(&c, "metadata", CHECK_NULLABLE);
        if (presentation)
                q->comment->presentation = json_to_arena(a, presentation);
        if (metadata)
                q->comment->metadata = json_to_arena(a, metadata);
        r = check_end(&c, err);
        if (r < 0 || q->op->actor->type != ACTOR_AGENT)
                return r;
        if (q->comment->presentation || q->comment->metadata)
                return err_set(err, ERR_FORBIDDEN,
                               "Only board users may set structured comment presentation or "
                               "metadata");
        if (q->interrupt)
                return err_set(err, ERR_FORBIDDEN,
                               "Only board users can interrupt active runs from issue comments");
        return 0;
}

static int reopen(struct db *db, struct request *q, struct issue *i, struct err *err)
{
        struct issue before = *i;
        int r;

        if (!q->reopen || !issue_is_closed(i))
                return 0;
        i->updated_at = clock_now_us();
        issue_set_status(i, "todo", i->updated_at);
        r = issues_update(db, i, &before, err);
        if (r == 0)
                return issue_conflict(&before, "Issue was changed by someone else", err);
        return r < 0 ? r
                     : audit(db, q->op, i->company_id, "issue.updated", "issue", i->id,
                             json_pack("{s:s, s:b, s:s, s:s}", "identifier", i->identifier,
                                       "reopened", 1, "previousStatus", before.status, "status",
                                       i->status),
                             err);
}

static int create(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct issue_change_context x = { db, q->op, q->rt, &q->kick };
        struct issue i;
        int r = issue_load(db, q->op, q->reference, true, &i, err);

        if (r >= 0)
                r = check_body(q, err);
        if (r >= 0)
                r = issue_may_write(db, q->op, &i, err);
        if (r >= 0)
                r = reopen(db, q, &i, err);
        if (r >= 0 && q->interrupt)
                r = issue_interrupt(&x, &i, err);
        return r < 0 ? r : issue_add_comment(&x, &i, q->comment, err);
}

int issue_comment_create(struct op *op, struct runtime *rt, const char *reference, json_t *body,
                         struct issue_comment *ret, struct err *err)
{
        struct request q = {
                .op = op, .rt = rt, .reference = reference, .body = body, .comment = ret
        };
        int r;

        *ret = (struct issue_comment){ 0 };
        FAULT("issue.comment.before");
        r = store_write(op, rt->store, create, &q, err);
        FAULT("issue.comment.after");
        if (r >= 0 && q.kick)
                run_host_kick(rt->runs);
        return r;
}

static int get(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct issue i;
        int r = issue_load(db, q->op, q->reference, false, &i, err);

        return r < 0 ? r : issue_comments_get(db, i.id, q->id, q->op->arena, q->comment, err);
}

int issue_comment_get(struct op *op, struct runtime *rt, const char *reference, const char *id,
                      struct issue_comment *ret, struct err *err)
{
        struct request q = { .op = op, .reference = reference, .id = id, .comment = ret };

        return store_read(op, rt->store, get, &q, err);
}

static int list(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct issue_comment anchor;
        struct issue i;
        int r = issue_load(db, q->op, q->reference, false, &i, err);

        if (r >= 0 && q->after) {
                r = issue_comments_get(db, i.id, q->after, q->op->arena, &anchor, err);
                if (r == ERR_NOT_FOUND) /* no comments come after one that does not exist */
                        return 0;
        }
        return r < 0 ? r
                     : issue_comments_list(db, i.id, q->after ? &anchor : NULL, q->newest_first,
                                           q->limit, q->op->arena, q->fn, q->ctx, err);
}

int issue_comment_list(struct op *op, struct runtime *rt, const char *reference, const char *after,
                       bool newest_first, int64_t limit, issue_comment_fn fn, void *ctx,
                       struct err *err)
{
        struct request q = { .op = op,
                             .reference = reference,
                             .after = after,
                             .newest_first = newest_first,
                             .limit = limit,
                             .fn = fn,
                             .ctx = ctx };

        return store_read(op, rt->store, list, &q, err);
}
