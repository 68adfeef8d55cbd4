/* Routes of issues: creating, listing, changing and checking them out, their comments and
 * documents, and an agent's inbox. */
#include "core/issues/issue.h"

#include "api/api.h"
#include "api/encode.h"

#define LIMIT_DEFAULT 500
#define LIMIT_MAX     1000
#define COMMENTS_MAX  500
#define ACTIVITY_MAX  500
#define DOCUMENT_MAX  524288

static int answer_issue(struct call *c, int r, const struct issue *issue)
{
        if (r >= 0)
                encode_issue(call_json(c), issue);
        return r;
}

static int show_issue(void *ctx, const struct issue *issue)
{
        encode_issue(ctx, issue);
        return 0;
}

/* Begin to read what belongs to the issue that the route names. */
static int read_issue(struct call *c, struct db **ret, struct issue *ret_issue, struct err *err)
{
        int r = store_read_begin(c->op, c->rt->store, ret, err);

        return r < 0 ? r : issue_load(*ret, c->op, c->params[0], false, ret_issue, err);
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

static int answer_issues(struct call *c, const struct issue_filter *filter, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = call_read(c, filter->company_id, &db, err);

        return r < 0 ? r
                     : call_list_end(c, issues_list(db, filter, c->op->arena, show_issue,
                                                    call_list(c), err));
}

static int list_issues(struct call *c, struct err *err)
{
        struct issue_filter filter = { .company_id = c->params[0] };
        int r = read_filter(c, &filter, err);

        return r < 0 ? r : answer_issues(c, &filter, err);
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
        return answer_issues(c, &filter, err);
}

/* -- One -------------------------------------------------------------------------------------- */

static int create_issue(struct call *c, struct err *err)
{
        struct issue_patch patch = { 0 };
        struct issue issue;

        patch.body = body_decode(&issue_body, c->body, true, c->op->arena, &patch);
        int r = issue_create(c->op, c->rt, c->params[0], NULL, &patch, &issue, err);
        return answer_issue(c, r, &issue);
}

static int create_child(struct call *c, struct err *err)
{
        struct issue_patch patch = { 0 };
        struct issue issue;

        patch.body = body_decode(&issue_body, c->body, true, c->op->arena, &patch);
        int r = issue_create(c->op, c->rt, NULL, c->params[0], &patch, &issue, err);
        return answer_issue(c, r, &issue);
}

static int get_issue(struct call *c, struct err *err)
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

static int patch_issue(struct call *c, struct err *err)
{
        struct issue_patch patch = { 0 };
        struct issue_comment comment;
        struct issue issue;

        patch.body = body_decode(&issue_body, c->body, false, c->op->arena, &patch);
        int r = issue_update(c->op, c->rt, c->params[0], &patch, &issue, &comment, err);
        if (r >= 0)
                encode_issue_change(call_json(c), &issue, &comment);
        return r;
}

static void check_statuses(struct check *c, const struct body_member *m, void *into,
                           struct arena *arena UNUSED)
{
        json_t *list = ((struct issue_taking *)into)->expected, *item;
        size_t at;

        check_array_size(c, m->name, list, 1, 0);
        json_array_foreach(list, at, item)
        {
                bool known = false;

                for (const char *const *s = issue_statuses; *s; s++)
                        known = known || streq(*s, json_string_value(item));
                if (!known)
                        check_custom(c, m->name, "Invalid status");
        }
}

static int checkout_issue(struct call *c, struct err *err)
{
        static const struct body_member members[] = {
                BODY_UUID(struct issue_taking, agent_id, "agentId", .flags = CHECK_REQUIRED),
                BODY_STRINGS(struct issue_taking, expected, "expectedStatuses",
                             .flags = CHECK_REQUIRED, .more = check_statuses),
        };
        static const struct body_type type = BODY_TYPE(members);
        struct issue_taking taking = { 0 };
        struct issue issue;

        taking.body = body_decode(&type, c->body, true, c->op->arena, &taking);
        return answer_issue(c, issue_checkout(c->op, c->rt, c->params[0], &taking, &issue, err),
                            &issue);
}

static int release_issue(struct call *c, struct err *err)
{
        struct issue issue;

        return answer_issue(c, issue_release(c->op, c->rt, c->params[0], &issue, err), &issue);
}

static int force_release_issue(struct call *c, struct err *err)
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

static int list_issue_activity(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct issue i;
        int r = read_issue(c, &db, &i, err);

        return r < 0 ? r
                     : call_list_end(c, activity_list(db, i.company_id, NULL, "issue", i.id, NULL,
                                                      ACTIVITY_MAX, c->op->arena, show_activity,
                                                      call_list(c), err));
}

/* -- Comments --------------------------------------------------------------------------------- */

static int show_comment(void *ctx, const struct issue_comment *row)
{
        encode_row(ctx, &issue_comment_table, row);
        return 0;
}

static int list_comments(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const char *after = call_query(c, "after"), *order = call_query(c, "order");
        struct issue_comment anchor;
        struct issue i;
        int64_t limit;
        int r = call_query_int(c, "limit", INT64_MAX, 1, INT64_MAX, &limit, err);

        if (!after)
                after = call_query(c, "afterCommentId");
        if (r >= 0)
                r = read_issue(c, &db, &i, err);
        if (r >= 0 && after) {
                r = issue_comments_get(db, i.id, after, c->op->arena, &anchor, err);
                if (r == ERR_NOT_FOUND) { /* no comments come after one that does not exist */
                        (void)call_list(c);
                        return call_list_end(c, 0);
                }
        }
        if (r < 0)
                return r;
        if (limit != INT64_MAX)
                limit = MIN(limit, COMMENTS_MAX);
        return call_list_end(c, issue_comments_list(db, i.id, after ? &anchor : NULL,
                                                    !(order && streq(order, "asc")), limit,
                                                    c->op->arena, show_comment, call_list(c), err));
}

static int get_comment(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct issue_comment comment;
        struct issue i;
        int r = read_issue(c, &db, &i, err);

        if (r >= 0)
                r = issue_comments_get(db, i.id, c->params[1], c->op->arena, &comment, err);
        return r < 0 ? r : show_comment(call_json(c), &comment);
}

static int create_comment(struct call *c, struct err *err)
{
        static const struct body_member members[] = {
                BODY_TEXT(struct issue_posting, comment.body, "body", .flags = CHECK_REQUIRED,
                          .min = 1),
                BODY_FLAG(struct issue_posting, reopen, "reopen"),
                BODY_FLAG(struct issue_posting, resume, "resume"),
                BODY_FLAG(struct issue_posting, interrupt, "interrupt"),
                BODY_DOCUMENT(struct issue_posting, comment.presentation, "presentation",
                              .flags = CHECK_NULLABLE),
                BODY_DOCUMENT(struct issue_posting, comment.metadata, "metadata",
                              .flags = CHECK_NULLABLE),
        };
        static const struct body_type type = BODY_TYPE(members);
        struct issue_posting posting = { 0 };
        struct issue_comment comment;

        posting.body = body_decode(&type, c->body, true, c->op->arena, &posting);
        int r = issue_comment_create(c->op, c->rt, c->params[0], &posting, &comment, err);
        return r < 0 ? r : show_comment(call_json(c), &comment);
}

/* -- Documents -------------------------------------------------------------------------------- */

static int show_document(void *ctx, const struct issue_document *row)
{
        encode_document(ctx, row, true);
        return 0;
}

static int list_documents(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct issue i;
        int r = read_issue(c, &db, &i, err);

        return r < 0 ? r
                     : call_list_end(c, issue_documents_list(db, i.id, c->op->arena, show_document,
                                                             call_list(c), err));
}

static int read_document(struct call *c, struct db **ret, struct issue_document *ret_document,
                         struct err *err)
{
        struct issue i;
        int r = read_issue(c, ret, &i, err);

        if (r >= 0)
                r = issue_check_document_key(c->params[1], err);
        return r < 0 ? r
                     : issue_documents_get(*ret, i.id, c->params[1], c->op->arena, ret_document,
                                           err);
}

static int get_document(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct issue_document document;
        int r = read_document(c, &db, &document, err);

        return r < 0 ? r : show_document(call_json(c), &document);
}

static int put_document(struct call *c, struct err *err)
{
        static const char *const formats[] = { "markdown", NULL };
        static const struct body_member members[] = {
                BODY_PRESENT(struct issue_writing, has_title, "title"),
                BODY_TEXT(struct issue_writing, revision.title, "title", .flags = CHECK_NULLABLE,
                          .max = 200),
                BODY_WORD(struct issue_writing, revision.format, "format", formats,
                          .flags = CHECK_REQUIRED),
                BODY_TEXT(struct issue_writing, revision.body, "body", .flags = CHECK_REQUIRED,
                          .max = DOCUMENT_MAX),
                BODY_TEXT(struct issue_writing, revision.change_summary, "changeSummary",
                          .flags = CHECK_NULLABLE, .max = 500),
                BODY_UUID(struct issue_writing, base, "baseRevisionId", .flags = CHECK_NULLABLE),
        };
        static const struct body_type type = BODY_TYPE(members);
        struct issue_writing writing = { 0 };
        struct issue_document document;
        bool created;

        writing.body = body_decode(&type, c->body, true, c->op->arena, &writing);
        int r = issue_document_put(c->op, c->rt, c->params[0], c->params[1], &writing, &document,
                                   &created, err);
        c->status = created ? 201 : 200;
        return r < 0 ? r : show_document(call_json(c), &document);
}

struct revisions {
        struct jw *w;
        struct issue_document document;
};

static int show_document_revision(void *ctx, const struct issue_document_revision *row)
{
        struct revisions *all = ctx;

        jw_object(all->w);
        encode_members(all->w, &issue_document_revision_table, row);
        jw_kstring(all->w, "companyId", all->document.company_id);
        jw_kstring(all->w, "issueId", all->document.issue_id);
        jw_kstring(all->w, "key", all->document.key);
        jw_object_end(all->w);
        return 0;
}

static int list_document_revisions(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct revisions all = { 0 };
        int r = read_document(c, &db, &all.document, err);

        if (r < 0)
                return r;
        all.w = call_list(c);
        return call_list_end(c, issue_document_revisions_list(db, all.document.id, c->op->arena,
                                                              show_document_revision, &all, err));
}

const struct route routes_issues[] = {
        { "GET", "/api/issues", .fn = list_nowhere },
        { "GET", "/api/companies/:companyId/issues", .fn = list_issues },
        { "POST", "/api/companies/:companyId/issues", .fn = create_issue, .status = 201 },
        { "GET", "/api/agents/me/inbox-lite", .fn = inbox_lite },
        { "GET", "/api/agents/me/inbox/mine", .fn = inbox_mine },
        { "GET", "/api/issues/:id", .fn = get_issue },
        { "PATCH", "/api/issues/:id", .fn = patch_issue },
        { "GET", "/api/issues/:id/heartbeat-context", .fn = heartbeat_context },
        { "POST", "/api/issues/:id/children", .fn = create_child, .status = 201 },
        { "POST", "/api/issues/:id/checkout", .fn = checkout_issue },
        { "POST", "/api/issues/:id/release", .fn = release_issue,
          .flags = ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "POST", "/api/issues/:id/admin/force-release", .fn = force_release_issue,
          .flags = ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "GET", "/api/issues/:id/activity", .fn = list_issue_activity },
        { "GET", "/api/issues/:id/comments", .fn = list_comments },
        { "POST", "/api/issues/:id/comments", .fn = create_comment, .status = 201 },
        { "GET", "/api/issues/:id/comments/:comment", .fn = get_comment },
        { "GET", "/api/issues/:id/documents", .fn = list_documents },
        { "GET", "/api/issues/:id/documents/:key", .fn = get_document },
        { "PUT", "/api/issues/:id/documents/:key", .fn = put_document },
        { "GET", "/api/issues/:id/documents/:key/revisions", .fn = list_document_revisions },
        { 0 },
};
