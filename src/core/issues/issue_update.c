/* Decides which changes of an issue are allowed, and makes them. */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/issues/issue_internal.h"
#include "core/issues/issue_wake.h"

struct update {
        struct op *op;
        struct runtime *rt;
        bool kick; /* there is something to run */
        const char *reference;
        json_t *body;
        struct issue *issue;
        struct issue_comment *comment;
        struct issue_change change;
};

static bool differs(const char *a, const char *b)
{
        return (a || b) && !(a && b && streq(a, b));
}

/* An agent that hands its work in for review has to name the reviewer. */
static int check_review(const struct op *op, const struct issue *i, struct err *err)
{
        json_t *policy = NULL;
        bool has_path;
        int r;

        if (op->actor->type != ACTOR_AGENT)
                return 0;
        if (i->execution_policy)
                (void)json_parse(i->execution_policy, strlen(i->execution_policy), &policy, NULL);
        has_path = i->assignee_user_id || json_array_size(json_object_get(policy, "stages")) > 0;
        json_decref(policy);
        if (has_path)
                return 0;
        r = err_set(err, ERR_UNPROCESSABLE,
                    "invalid_issue_disposition: in_review needs somebody who reviews: a user as "
                    "assignee, or an execution policy with stages");
        if (err)
                err_details(err, xstrdup("{\"code\":\"invalid_issue_disposition\","
                                         "\"missing\":\"review_path\"}"));
        return r;
}

static int apply_status(struct db *db, struct update *u, const struct issue *before,
                        struct issue *i, struct err *err)
{
        const char *to = u->change.status;
        int r = 0;

        if (!to && u->change.reopen && u->change.comment && issue_is_closed(before))
                to = "todo";
        if (!to || streq(to, before->status))
                return 0;
        if (streq(to, "in_progress"))
                r = issue_check_blockers(db, u->op, i, err);
        else if (streq(to, "in_review"))
                r = check_review(u->op, i, err);
        if (r >= 0)
                issue_set_status(i, to, i->updated_at);
        return r;
}

static int apply(struct db *db, struct update *u, const struct issue *before, struct issue *i,
                 struct err *err)
{
        bool moved = differs(before->assignee_agent_id, i->assignee_agent_id) ||
                     differs(before->assignee_user_id, i->assignee_user_id);
        int r = moved ? issue_may_assign(db, u->op, i->company_id, err) : 0;

        if (r >= 0)
                r = issue_check_relations(db, u->rt, u->op, before, i, &u->change, err);
        if (r >= 0)
                r = apply_status(db, u, before, i, err);
        if (r >= 0 && (moved || !streq(i->status, before->status)))
                r = issue_check_assignee(db, u->op, i, err);
        if (r >= 0 && moved)
                issue_drop_locks(i);
        return r;
}

static json_t *describe(const struct update *u, const struct issue *before, const struct issue *i)
{
        json_t *details = json_pack("{s:s, s:O}", "identifier", i->identifier, "changedFields",
                                    u->change.given);

        if (!streq(before->status, i->status)) {
                json_object_set_new(details, "status", json_string(i->status));
                json_object_set_new(details, "previousStatus", json_string(before->status));
        }
        if (differs(before->assignee_agent_id, i->assignee_agent_id))
                json_object_set_new(details, "assigneeAgentId",
                                    json_string_or_null(i->assignee_agent_id));
        return details;
}

static int write_all(struct db *db, struct update *u, const struct issue *before, struct err *err)
{
        struct issue_change_context x = { db, u->op, u->rt, &u->kick };
        struct issue *i = u->issue;
        int r = issues_update(db, i, before, err);

        if (r == 0)
                return issue_conflict(before, "Issue was changed by someone else", err);
        if (r >= 0)
                r = issue_write_blockers(db, i, &u->change, err);
        if (r >= 0 && u->change.has_settings)
                r = issue_tell_workspace(db, u->op, i, u->change.settings, err);
        if (r >= 0)
                r = audit(db, u->op, i->company_id, "issue.updated", "issue", i->id,
                          describe(u, before, i), err);
        if (r >= 0)
                r = issue_wake_changed(&x, before, i, err);
        if (r >= 0 && u->change.comment) {
                u->comment->body = u->change.comment;
                r = issue_add_comment(&x, i, u->comment, err);
        }
        return r;
}

static int update(struct db *db, void *arg, struct err *err)
{
        struct update *u = arg;
        struct issue before;
        int r = issue_load(db, u->op, u->reference, true, u->issue, err);

        if (r >= 0)
                r = issue_may_write(db, u->op, u->issue, err);
        if (r < 0)
                return r;
        before = *u->issue;
        r = issue_read_body(u->op, u->body, false, u->issue, &u->change, err);
        u->issue->updated_at = clock_now_us();
        if (r >= 0)
                r = apply(db, u, &before, u->issue, err);
        return r < 0 ? r : write_all(db, u, &before, err);
}

int issue_update(struct op *op, struct runtime *rt, const char *reference, json_t *body,
                 struct issue *ret, struct issue_comment *ret_comment, struct err *err)
{
        struct update u = { .op = op,
                            .rt = rt,
                            .reference = reference,
                            .body = body,
                            .issue = ret,
                            .comment = ret_comment };
        int r;

        *ret_comment = (struct issue_comment){ 0 };
        FAULT("issue.update.before");
        r = store_write(op, rt->store, update, &u, err);
        FAULT("issue.update.after");
        if (r >= 0 && u.kick)
                run_host_kick(rt->runs);
        return r;
}
