/* What the agent is told about why it was woken: `paperclipWake` of the run's context, from which
 * adapters make a section of the prompt and PAPERCLIP_WAKE_PAYLOAD_JSON. */
#include "core/run_internal.h"
#include "store/issue_comments.h"

#define COMMENT_MAX ((size_t)8 << 10) /* what is longer is fetched by the agent */

struct comment_search {
        struct run_task *t;
        const char *id;
        struct issue_comment found;
};

static int get_comment(struct db *db, void *arg, struct err *err)
{
        struct comment_search *q = arg;

        return issue_comments_get(db, q->t->choice.issue.id, q->id, q->t->op->arena, &q->found,
                                  err);
}

static json_t *describe_comment(const struct issue_comment *c)
{
        return json_pack("{s:s, s:s, s:s?, s:s?, s:s}", "id", c->id, "authorType", c->author_type,
                         "authorAgentId", c->author_agent_id, "authorUserId", c->author_user_id,
                         "body", c->body);
}

static json_t *describe_issue(const struct issue *issue)
{
        return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "id", issue->id, "identifier",
                         issue->identifier, "title", issue->title, "status", issue->status,
                         "priority", issue->priority, "workMode", issue->work_mode);
}

/* The comment may be gone, or too long: then the agent is told to look for itself. */
int run_tell_wake(struct run_task *t, struct err *err)
{
        const struct issue *issue = &t->choice.issue;
        struct comment_search q = { .t = t, .id = json_get_string(t->context, "wakeCommentId") };
        json_t *comments = json_array();
        bool fetch = false;
        json_t *wake;

        if (!issue->id) {
                json_decref(comments);
                return 0;
        }
        if (q.id) {
                CLEAN(err_done) struct err why = { 0 };
                int r = store_read(t->op, t->rt->store, get_comment, &q, &why);

                if (r < 0 && r != ERR_NOT_FOUND) {
                        json_decref(comments);
                        return err_set(err, r, "%s", why.msg);
                }
                fetch = r < 0 || strlen(q.found.body) > COMMENT_MAX;
                if (!fetch)
                        json_array_append_new(comments, describe_comment(&q.found));
        }
        wake = json_pack("{s:s?, s:o, s:o, s:b, s:b}", "reason",
                         json_get_string(t->context, "wakeReason"), "issue", describe_issue(issue),
                         "comments", comments, "checkedOutByHarness",
                         issue->checkout_run_id && streq(issue->checkout_run_id, t->run.id),
                         "fallbackFetchNeeded", fetch);
        return json_object_set_new(t->context, "paperclipWake", wake) < 0
                       ? err_set(err, ERR_INTERNAL, "the wake-up cannot be described")
                       : 0;
}
