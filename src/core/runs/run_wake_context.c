/* Builds a run's contextSnapshot, which says why it runs. `paperclipWake` is the part that the
 * agent reads (PAPERCLIP_WAKE_PAYLOAD_JSON); it keeps the comments of all wake-ups that one run
 * answers. */
#include "base/clock.h"
#include "core/runs/run_internal.h"
#include "core/runs/run_wake_internal.h"
#include "store/issue_comments.h"

#define COMMENT_TEXT_MAX   8192
#define DESCRIPTION_MAX    32768
#define LATEST_COMMENTS    8
#define LATEST_COMMENT_MAX 4096

static void set(json_t *object, const char *key, const char *text)
{
        if (text)
                json_object_set_new(object, key, json_string(text));
}

/* The beginning of a text, cut at a whole character. */
static json_t *beginning(const char *text, size_t max, bool *ret_cut)
{
        size_t n = strlen(text);

        *ret_cut = n > max;
        if (*ret_cut)
                for (n = max; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80; n--)
                        ;
        return json_stringn(text, n);
}

static json_t *describe_comment(const struct issue_comment *c, size_t max)
{
        char at[ISO_TIME_LEN + 1];
        bool cut;
        json_t *body = beginning(c->body, max, &cut);

        clock_iso(c->created_at, at);
        return json_pack("{s:s, s:s, s:s?, s:s?, s:s, s:o, s:b}", "id", c->id, "authorType",
                         c->author_type, "authorAgentId", c->author_agent_id, "authorUserId",
                         c->author_user_id, "createdAt", at, "body", body, "truncated", cut);
}

/* A member that is a list, made when it is missing; borrowed. */
static json_t *list_of(json_t *object, const char *key)
{
        json_t *list = json_object_get(object, key);

        if (json_is_array(list))
                return list;
        list = json_array();
        json_object_set_new(object, key, list);
        return list;
}

static void keep_last(json_t *list)
{
        while (json_array_size(list) > WAKE_COMMENTS_MAX)
                json_array_remove(list, 0);
}

static int add_comment(struct wake *w, json_t *told, const char *id, struct err *err)
{
        struct issue_comment comment;
        json_t *ids = list_of(told, "commentIds"), *comments = list_of(told, "comments");
        int r = issue_comments_get(w->db, w->issue.id, id, w->op->arena, &comment, err);

        if (r == ERR_NOT_FOUND) { /* deleted since, or never existed: the id alone is enough */
                err_clear(err);
                r = 0;
        } else if (r >= 0) {
                json_array_append_new(comments, describe_comment(&comment, COMMENT_TEXT_MAX));
        }
        if (r < 0)
                return r;
        json_array_append_new(ids, json_string(id));
        keep_last(ids);
        keep_last(comments);
        set(told, "latestCommentId", id);
        return 0;
}

static int add_comments(struct wake *w, json_t *told, struct err *err)
{
        const char *latest = w->req->wake_comment_id;
        size_t i;
        json_t *one;
        int r = 0;

        json_array_foreach((json_t *)w->earlier, i, one)
        {
                const char *id = json_string_value(one);

                if (r >= 0 && id && !(latest && streq(id, latest)))
                        r = add_comment(w, told, id, err);
        }
        return r < 0 || !latest ? r : add_comment(w, told, latest, err);
}

static int tell(struct wake *w, json_t *context, struct err *err)
{
        const struct issue *i = &w->issue;
        json_t *told = json_get_object(context, "paperclipWake");

        if (!i->id && !w->req->payload)
                return 0;
        if (!told) {
                told = json_object();
                json_object_set_new(context, "paperclipWake", told);
        }
        set(told, "reason", w->req->reason);
        if (w->req->payload)
                json_object_set_new(told, "payload", json_deep_copy(w->req->payload));
        if (!i->id)
                return 0;
        json_object_set_new(told, "issue",
                            json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "id", i->id, "identifier",
                                      i->identifier, "title", i->title, "status", i->status,
                                      "priority", i->priority, "workMode", i->work_mode));
        return add_comments(w, told, err);
}

/* The issue as it is when the run begins */

static int put_first(void *list, const struct issue_comment *c)
{
        return json_array_insert_new(list, 0, describe_comment(c, LATEST_COMMENT_MAX));
}

int run_describe_issue(struct db *db, const struct op *op, const char *id, json_t **ret,
                       struct err *err)
{
        json_t *comments = json_array();
        struct issue_comment newest;
        struct issue i;
        int64_t n = 0;
        bool cut = false;
        int r = issues_get(db, id, op->arena, &i, err);

        if (r >= 0)
                r = issue_comments_count(db, i.id, op->arena, &n, &newest, err);
        if (r >= 0)
                r = issue_comments_list(db, i.id, NULL, true, LATEST_COMMENTS, op->arena, put_first,
                                        comments, err);
        if (r < 0) {
                json_decref(comments);
                return r;
        }
        *ret = json_pack("{s:s, s:s?, s:s, s:o, s:s, s:s?, s:s?, s:s?, s:s?, s:I, s:o}", "id", i.id,
                         "identifier", i.identifier, "title", i.title, "description",
                         i.description ? beginning(i.description, DESCRIPTION_MAX, &cut)
                                       : json_null(),
                         "status", i.status, "priority", i.priority, "workMode", i.work_mode,
                         "projectId", i.project_id, "parentId", i.parent_id, "commentCount",
                         (json_int_t)n, "comments", comments);
        json_object_set_new(*ret, "descriptionTruncated", json_boolean(cut));
        return 0;
}

static const char *triggered_by(const struct wake *w)
{
        return streq(w->actor_type, "user") ? "board" : w->actor_type;
}

int wake_context(struct wake *w, const char *before, const char **ret, struct err *err)
{
        const struct wake_request *q = w->req;
        json_t *context = NULL;
        int r;

        if (before)
                (void)json_parse(before, strlen(before), &context, NULL);
        if (!json_is_object(context)) {
                json_decref(context);
                context = json_object();
        }
        set(context, "wakeSource", q->source);
        set(context, "wakeTriggerDetail", q->trigger_detail);
        set(context, "wakeReason", q->reason);
        set(context, "triggeredBy", triggered_by(w));
        set(context, "actorId", w->actor_id);
        set(context, "issueId", w->issue.id);
        set(context, "taskId", w->issue.id ? w->issue.id : w->task_key);
        set(context, "taskKey", w->task_key);
        set(context, "wakeCommentId", q->wake_comment_id);
        set(context, "commentId", q->wake_comment_id);
        if (q->force_fresh_session)
                json_object_set_new(context, "forceFreshSession", json_true());
        r = tell(w, context, err);
        *ret = json_to_arena(w->op->arena, context);
        json_decref(context);
        return r;
}
