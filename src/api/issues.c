#include "core/issues/issue.h"

#include "api/api.h"
#include "api/encode.h"

#define MISSING_COMPANY "Company not found"
#define LIMIT_DEFAULT   500
#define LIMIT_MAX       1000

static int encode_one(struct call *c, const struct issue *issue)
{
        struct jw w;

        jw_init(&w, &c->out);
        encode_issue(&w, issue);
        return 0;
}

static int show(void *ctx, const struct issue *issue)
{
        encode_issue(ctx, issue);
        return 0;
}

/* -- Lists ------------------------------------------------------------------------------------ */

/* "me" is who asks. */
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
        struct issue_filter filter = { 0 };
        struct jw w;
        int r = call_uuid(c, 0, MISSING_COMPANY, &filter.company_id, err);

        if (r >= 0)
                r = read_filter(c, &filter, err);
        if (r < 0)
                return r;
        call_list(c, &w);
        return call_list_end(&w, issue_list(c->op, c->rt, &filter, show, &w, err));
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
        struct jw w;

        call_list(c, &w);
        return call_list_end(
                &w, issue_inbox(c->op, c->rt, "todo,in_progress,blocked", show_task, &w, err));
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
        struct jw w;

        if (c->actor.type != ACTOR_AGENT)
                return err_set(err, ERR_UNAUTHORIZED, "Agent authentication required");
        call_list(c, &w);
        return call_list_end(&w, issue_list(c->op, c->rt, &filter, show, &w, err));
}

/* -- One -------------------------------------------------------------------------------------- */

static int create(struct call *c, struct err *err)
{
        struct issue issue;
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = issue_create(c->op, c->rt, company, NULL, c->body, &issue, err);
        c->status = 201;
        return r < 0 ? r : encode_one(c, &issue);
}

static int create_child(struct call *c, struct err *err)
{
        struct issue issue;
        int r = issue_create(c->op, c->rt, NULL, c->params[0], c->body, &issue, err);

        c->status = 201;
        return r < 0 ? r : encode_one(c, &issue);
}

static int get(struct call *c, struct err *err)
{
        struct issue_detail detail;
        struct jw w;
        int r = issue_get(c->op, c->rt, c->params[0], NULL, &detail, err);

        jw_init(&w, &c->out);
        if (r >= 0)
                encode_issue_detail(&w, &detail);
        return r;
}

static int heartbeat_context(struct call *c, struct err *err)
{
        struct issue_detail detail;
        struct jw w;
        int r = issue_get(c->op, c->rt, c->params[0], call_query(c, "wakeCommentId"), &detail, err);

        jw_init(&w, &c->out);
        if (r >= 0)
                encode_issue_context(&w, &detail);
        return r;
}

static int patch(struct call *c, struct err *err)
{
        struct issue_comment comment;
        struct issue issue;
        struct jw w;
        int r = issue_update(c->op, c->rt, c->params[0], c->body, &issue, &comment, err);

        jw_init(&w, &c->out);
        if (r >= 0)
                encode_issue_change(&w, &issue, &comment);
        return r;
}

static int checkout(struct call *c, struct err *err)
{
        struct issue issue;
        int r = issue_checkout(c->op, c->rt, c->params[0], c->body, &issue, err);

        return r < 0 ? r : encode_one(c, &issue);
}

static int release(struct call *c, struct err *err)
{
        struct issue issue;
        int r = issue_release(c->op, c->rt, c->params[0], &issue, err);

        return r < 0 ? r : encode_one(c, &issue);
}

static int force_release(struct call *c, struct err *err)
{
        struct issue issue, previous;
        struct jw w;
        int r = issue_force_release(c->op, c->rt, c->params[0], call_query_flag(c, "clearAssignee"),
                                    &issue, &previous, err);

        if (r < 0)
                return r;
        jw_init(&w, &c->out);
        jw_object(&w);
        jw_key(&w, "issue");
        encode_issue(&w, &issue);
        jw_key(&w, "previous");
        jw_object(&w);
        jw_kstring(&w, "assigneeAgentId", previous.assignee_agent_id);
        jw_kstring(&w, "checkoutRunId", previous.checkout_run_id);
        jw_kstring(&w, "executionRunId", previous.execution_run_id);
        jw_object_end(&w);
        jw_object_end(&w);
        return 0;
}

static int show_activity(void *ctx, const struct activity *row)
{
        encode_activity(ctx, row);
        return 0;
}

static int activity(struct call *c, struct err *err)
{
        struct jw w;

        call_list(c, &w);
        return call_list_end(&w,
                             issue_activity(c->op, c->rt, c->params[0], show_activity, &w, err));
}

const struct route routes_issues[] = {
        { "GET", "/api/issues", list_nowhere, 0 },
        { "GET", "/api/companies/:companyId/issues", list_issues, 0 },
        { "POST", "/api/companies/:companyId/issues", create, 0 },
        { "GET", "/api/agents/me/inbox-lite", inbox_lite, 0 },
        { "GET", "/api/agents/me/inbox/mine", inbox_mine, 0 },
        { "GET", "/api/issues/:id", get, 0 },
        { "PATCH", "/api/issues/:id", patch, 0 },
        { "GET", "/api/issues/:id/heartbeat-context", heartbeat_context, 0 },
        { "POST", "/api/issues/:id/children", create_child, 0 },
        { "POST", "/api/issues/:id/checkout", checkout, 0 },
        { "POST", "/api/issues/:id/release", release, ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "POST", "/api/issues/:id/admin/force-release", force_release,
          ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "GET", "/api/issues/:id/activity", activity, 0 },
        { NULL, NULL, NULL, 0 },
};
