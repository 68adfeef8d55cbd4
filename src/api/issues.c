/* Routes of issues: creating, listing, changing and checking them out, and an agent's inbox. */
#include "core/issues/issue.h"

#include "api/api.h"
#include "api/encode.h"

#define LIMIT_DEFAULT 500
#define LIMIT_MAX     1000

static int answer_issue(struct call *c, int r, const struct issue *issue)
{
        if (r >= 0)
                encode_issue(call_json(c), issue);
        return r;
}

static int show(void *ctx, const struct issue *issue)
{
        encode_issue(ctx, issue);
        return 0;
}

/* -- Lists ------------------------------------------------------------------------------------ */

/* "me" is the caller. */
static const char *query_actor(struct call *c, const char *name, const char *me)
{
        const char *text = call_query(c, name);

        return text && me && streq(text, "me") ? me : text;
}

static int read_filter(struct call *c, struct issue_filter *f, struct err *err)
{
        f->statuses = call_query(c, "status");
        f->assignee_agent_id = query_actor(c, "assigneeAgentId", c->actor.agent_id);
        f->assignee_user_id = query_actor(c, "assigneeUserId", c->actor.user_id);
        f->participant_agent_id = query_actor(c, "participantAgentId", c->actor.agent_id);
        f->project_id = call_query(c, "projectId");
        f->parent_id = call_query(c, "parentId");
        f->descendant_of = call_query(c, "descendantOf");
        f->execution_workspace_id = call_query(c, "executionWorkspaceId");
        f->origin_kind = call_query(c, "originKind");
        f->origin_id = call_query(c, "originId");
        f->text = call_query(c, "q");
        if (call_query_int(c, "limit", LIMIT_DEFAULT, 1, LIMIT_MAX, &f->limit, err) < 0)
                return err_set(err, ERR_INVALID, "limit must be a positive integer up to 1000");
        if (call_query_int(c, "offset", 0, 0, INT64_MAX, &f->offset, err) < 0)
                return err_set(err, ERR_INVALID, "offset must be a non-negative integer");
        if (call_query(c, "labelId")) /* there are no labels */
                f->limit = 0;
        return 0;
}

static int list_issues(struct call *c, struct err *err)
{
        struct issue_filter filter = { .company_id = c->params[0] };
        int r = read_filter(c, &filter, err);

        return r < 0 ? r
                     : call_list_end(c, issue_list(c->op, c->rt, &filter, show, call_list(c), err));
}

static int list_nowhere(struct call *c, struct err *err)
{
        return err_set(err, ERR_INVALID,
                       "Missing companyId in path. Use /api/companies/{companyId}/issues.");
}

static int show_task(void *ctx, const struct issue_task *task)
{
        encode_issue_task(ctx, task);
        return 0;
}

static int inbox_lite(struct call *c, struct err *err)
{
        return call_list_end(c, issue_inbox(c->op, c->rt, "todo,in_progress,blocked", show_task,
                                            call_list(c), err));
}

/* Whatever the agent has to do with and is not over. */
static int inbox_mine(struct call *c, struct err *err)
{
        const char *statuses = call_query(c, "status");
        struct issue_filter filter = {
                .company_id = c->actor.company_id,
                .participant_agent_id = c->actor.agent_id,
                .statuses = statuses ? statuses : "backlog,todo,in_progress,in_review,blocked",
                .limit = INT64_MAX,
        };

        if (c->actor.type != ACTOR_AGENT)
                return err_set(err, ERR_UNAUTHORIZED, "Agent authentication required");
        return call_list_end(c, issue_list(c->op, c->rt, &filter, show, call_list(c), err));
}

/* -- One -------------------------------------------------------------------------------------- */

static int create(struct call *c, struct err *err)
{
        struct issue issue;
        int r = issue_create(c->op, c->rt, c->params[0], NULL, c->body, &issue, err);

        return answer_issue(c, r, &issue);
}

static int create_child(struct call *c, struct err *err)
{
        struct issue issue;
        int r = issue_create(c->op, c->rt, NULL, c->params[0], c->body, &issue, err);

        return answer_issue(c, r, &issue);
}

static int get(struct call *c, struct err *err)
{
        struct issue_detail detail;
        int r = issue_get(c->op, c->rt, c->params[0], NULL, &detail, err);

        if (r >= 0)
                encode_issue_detail(call_json(c), &detail);
        return r;
}

static int heartbeat_context(struct call *c, struct err *err)
{
        struct issue_detail detail;
        int r = issue_get(c->op, c->rt, c->params[0], call_query(c, "wakeCommentId"), &detail, err);

        if (r >= 0)
                encode_issue_context(call_json(c), &detail);
        return r;
}

static int patch(struct call *c, struct err *err)
{
        struct issue_comment comment;
        struct issue issue;
        int r = issue_update(c->op, c->rt, c->params[0], c->body, &issue, &comment, err);

        if (r >= 0)
                encode_issue_change(call_json(c), &issue, &comment);
        return r;
}

static int checkout(struct call *c, struct err *err)
{
        struct issue issue;

        return answer_issue(c, issue_checkout(c->op, c->rt, c->params[0], c->body, &issue, err),
                            &issue);
}

static int release(struct call *c, struct err *err)
{
        struct issue issue;

        return answer_issue(c, issue_release(c->op, c->rt, c->params[0], &issue, err), &issue);
}

static int force_release(struct call *c, struct err *err)
{
        struct issue issue, previous;
        struct jw *w = call_json(c);
        int r = issue_force_release(c->op, c->rt, c->params[0], call_query_flag(c, "clearAssignee"),
                                    &issue, &previous, err);

        if (r < 0)
                return r;
        jw_object(w);
        jw_key(w, "issue");
        encode_issue(w, &issue);
        jw_key(w, "previous");
        jw_object(w);
        jw_kstring(w, "assigneeAgentId", previous.assignee_agent_id);
        jw_kstring(w, "checkoutRunId", previous.checkout_run_id);
        jw_kstring(w, "executionRunId", previous.execution_run_id);
        jw_object_end(w);
        jw_object_end(w);
        return 0;
}

static int show_activity(void *ctx, const struct activity *row)
{
        encode_activity(ctx, row);
        return 0;
}

static int activity(struct call *c, struct err *err)
{
        return call_list_end(
                c, issue_activity(c->op, c->rt, c->params[0], show_activity, call_list(c), err));
}

const struct route routes_issues[] = {
        { "GET", "/api/issues", .fn = list_nowhere },
        { "GET", "/api/companies/:companyId/issues", .fn = list_issues },
        { "POST", "/api/companies/:companyId/issues", .fn = create, .status = 201 },
        { "GET", "/api/agents/me/inbox-lite", .fn = inbox_lite },
        { "GET", "/api/agents/me/inbox/mine", .fn = inbox_mine },
        { "GET", "/api/issues/:id", .fn = get },
        { "PATCH", "/api/issues/:id", .fn = patch },
        { "GET", "/api/issues/:id/heartbeat-context", .fn = heartbeat_context },
        { "POST", "/api/issues/:id/children", .fn = create_child, .status = 201 },
        { "POST", "/api/issues/:id/checkout", .fn = checkout },
        { "POST", "/api/issues/:id/release", .fn = release,
          .flags = ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "POST", "/api/issues/:id/admin/force-release", .fn = force_release,
          .flags = ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "GET", "/api/issues/:id/activity", .fn = activity },
        { 0 },
};
