/* Decides who may create and read issues, and which issues are in an agent's inbox. */
#include "core/issues/issue.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/issues/issue_internal.h"
#include "core/issues/issue_wake.h"

#define ACTIVITY_MAX 500

struct request {
        struct op *op;
        struct runtime *rt;
        bool kick; /* there is something to run */
        const char *company_id, *reference, *wake_comment_id;
        json_t *body;
        struct issue *issue;
        struct issue_detail *detail;
        activity_fn activity;
        void *ctx;
};

/* -- Making ----------------------------------------------------------------------------------- */

/* The company of the new issue: the given one, or the parent issue's. */
static int find_place(struct db *db, struct request *q, struct issue *ret_parent, struct err *err)
{
        int r;

        *ret_parent = (struct issue){ .company_id = q->company_id };
        if (!q->reference)
                return access_company(db, q->op->actor, q->company_id, true, err);
        r = issue_load(db, q->op, q->reference, true, ret_parent, err);
        if (r >= 0)
                q->company_id = ret_parent->company_id;
        return r;
}

static int insert(struct db *db, struct request *q, struct issue *i,
                  const struct issue_change *change, struct err *err)
{
        int r = issues_next_number(db, i->company_id, q->op->arena, &i->number, &i->identifier,
                                   err);

        i->id = arena_strdup(q->op->arena, uuid_new().s);
        if (r >= 0)
                r = issues_insert(db, i, err);
        if (r >= 0)
                r = issue_write_blockers(db, i, change, err);
        if (r >= 0 && streq(i->status, "in_progress"))
                r = issue_check_blockers(db, q->op, i, err);
        if (r >= 0)
                r = audit(db, q->op, i->company_id, "issue.created", "issue", i->id,
                          json_pack("{s:s, s:s}", "title", i->title, "identifier", i->identifier),
                          err);
        if (r >= 0)
                r = issue_wake_created(&(struct issue_change_context){ db, q->op, q->rt, &q->kick },
                                       i, err);
        return r;
}

static int create(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        const struct actor *a = q->op->actor;
        struct issue parent;
        struct issue i = {
                .work_mode = "standard",
                .priority = "medium",
                .origin_kind = "manual",
                .created_by_agent_id = a->agent_id,
                .created_by_user_id = a->user_id,
                .created_at = clock_now_us(),
        };
        struct issue_change change;
        const char *status;
        int r = find_place(db, q, &parent, err);

        i.company_id = parent.company_id;
        i.project_id = parent.project_id;
        if (r >= 0)
                r = issue_read_body(q->op, q->body, true, &i, &change, err);
        if (parent.id)
                i.parent_id = parent.id;
        if (r >= 0 && (i.assignee_agent_id || i.assignee_user_id))
                r = issue_may_assign(db, q->op, i.company_id, err);
        if (r < 0)
                return r;
        status = i.assignee_agent_id || i.assignee_user_id ? "todo" : "backlog";
        issue_set_status(&i, change.has_status ? change.status : status, i.created_at);
        i.updated_at = i.created_at;
        r = issue_check_assignee(db, q->op, &i, err);
        if (r >= 0)
                r = issue_check_relations(db, q->rt, q->op, NULL, &i, &change, err);
        if (r >= 0)
                r = insert(db, q, &i, &change, err);
        if (r >= 0)
                *q->issue = i;
        return r;
}

int issue_create(struct op *op, struct runtime *rt, const char *company_id, const char *parent,
                 json_t *body, struct issue *ret, struct err *err)
{
        struct request q = { .op = op,
                             .rt = rt,
                             .company_id = company_id,
                             .reference = parent,
                             .body = body,
                             .issue = ret };
        int r;

        FAULT("issue.create.before");
        r = store_write(op, rt->store, create, &q, err);
        FAULT("issue.create.after");
        if (r >= 0 && q.kick)
                run_host_kick(rt->runs);
        return r;
}

/* -- Reading ---------------------------------------------------------------------------------- */

struct listing {
        struct op *op;
        const struct issue_filter *filter;
        issue_fn fn;
        void *ctx;
};

static int list(struct db *db, void *arg, struct err *err)
{
        struct listing *q = arg;
        int r = access_company(db, q->op->actor, q->filter->company_id, false, err);

        return r < 0 ? r : issues_list(db, q->filter, q->op->arena, q->fn, q->ctx, err);
}

int issue_list(struct op *op, struct runtime *rt, const struct issue_filter *filter, issue_fn fn,
               void *ctx, struct err *err)
{
        struct listing q = { op, filter, fn, ctx };

        return store_read(op, rt->store, list, &q, err);
}

#define DOCUMENTS_MAX 256

static int note_document(void *ctx, const struct issue_document *row)
{
        struct issue_detail *d = ctx;

        if (d->n_documents < DOCUMENTS_MAX)
                d->documents[d->n_documents++] = *row;
        return 0;
}

static int read_comments(struct db *db, struct request *q, struct err *err)
{
        struct issue_detail *d = q->detail;
        int r = issue_comments_count(db, d->issue.id, q->op->arena, &d->n_comments, &d->newest,
                                     err);

        if (r < 0 || !q->wake_comment_id)
                return r;
        r = issue_comments_get(db, d->issue.id, q->wake_comment_id, q->op->arena, &d->wake, err);
        if (r == ERR_NOT_FOUND)
                d->wake = (struct issue_comment){ 0 };
        return r == ERR_NOT_FOUND ? 0 : r;
}

static int read_workspace(struct db *db, struct request *q, struct err *err)
{
        struct issue_detail *d = q->detail;
        int r = execution_workspaces_get(db, d->issue.execution_workspace_id, q->op->arena,
                                         &d->workspace, err);

        if (r == ERR_NOT_FOUND)
                err_clear(err);
        return r == ERR_NOT_FOUND ? 0 : r;
}

static int get(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct issue_detail *d = q->detail;
        struct arena *a = q->op->arena;
        const struct issue *i = &d->issue;
        int r = issue_load(db, q->op, q->reference, false, &d->issue, err);

        if (r >= 0)
                r = issues_ancestors(db, i->id, a, issue_collect, &d->ancestors, err);
        if (r >= 0)
                r = issue_blockers_list(db, i->id, false, a, issue_collect, &d->blocked_by, err);
        if (r >= 0)
                r = issue_blockers_list(db, i->id, true, a, issue_collect, &d->blocks, err);
        if (r >= 0 && i->project_id)
                r = projects_get(db, i->project_id, a, &d->project, err);
        if (r >= 0 && i->execution_workspace_id)
                r = read_workspace(db, q, err);
        if (r >= 0)
                r = issue_documents_list(db, i->id, a, note_document, d, err);
        return r < 0 ? r : read_comments(db, q, err);
}

int issue_get(struct op *op, struct runtime *rt, const char *reference, const char *wake_comment_id,
              struct issue_detail *ret, struct err *err)
{
        struct request q = {
                .op = op, .reference = reference, .wake_comment_id = wake_comment_id, .detail = ret
        };

        *ret = (struct issue_detail){ .ancestors.arena = op->arena,
                                      .blocked_by.arena = op->arena,
                                      .blocks.arena = op->arena };
        ret->documents = arena_alloc(op->arena, DOCUMENTS_MAX * sizeof(*ret->documents));
        return store_read(op, rt->store, get, &q, err);
}

static int list_activity(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct issue i;
        int r = issue_load(db, q->op, q->reference, false, &i, err);

        return r < 0 ? r
                     : activity_list(db, i.company_id, NULL, "issue", i.id, NULL, ACTIVITY_MAX,
                                     q->op->arena, q->activity, q->ctx, err);
}

int issue_activity(struct op *op, struct runtime *rt, const char *reference, activity_fn fn,
                   void *ctx, struct err *err)
{
        struct request q = { .op = op, .reference = reference, .activity = fn, .ctx = ctx };

        return store_read(op, rt->store, list_activity, &q, err);
}

/* -- What an agent has to do ------------------------------------------------------------------ */

struct inbox {
        struct op *op;
        const char *statuses;
        int (*fn)(void *ctx, const struct issue_task *task);
        void *ctx;
};

static int show_task(struct db *db, struct inbox *q, const struct issue *i, struct err *err)
{
        struct issue_rows all = { .arena = q->op->arena };
        struct issue_task task = { .issue = i, .unresolved.arena = q->op->arena };
        const char *active = NULL;
        int r = issue_blockers_list(db, i->id, false, q->op->arena, issue_collect, &all, err);

        if (r >= 0)
                r = issue_active_run(db, q->op, i, &active, err);
        if (r >= 0 && active)
                r = runs_get(db, active, q->op->arena, &task.active, err);
        if (r >= 0 && active && run_is_terminal(&task.active))
                task.active = (struct run){ 0 }; /* over; only its command still runs */
        if (r < 0)
                return r;
        for (size_t n = 0; n < all.n; n++)
                if (!streq(all.at[n].status, "done"))
                        (void)issue_collect(&task.unresolved, &all.at[n]);
        return q->fn(q->ctx, &task);
}

static int read_inbox(struct db *db, void *arg, struct err *err)
{
        struct inbox *q = arg;
        const struct actor *a = q->op->actor;
        struct issue_filter filter = {
                .company_id = a->company_id,
                .statuses = q->statuses,
                .assignee_agent_id = a->agent_id,
                .limit = INT64_MAX,
        };
        struct issue_rows all = { .arena = q->op->arena };
        int r = issues_list(db, &filter, q->op->arena, issue_collect, &all, err);

        for (size_t n = 0; r >= 0 && n < all.n; n++)
                r = show_task(db, q, &all.at[n], err);
        return r;
}

int issue_inbox(struct op *op, struct runtime *rt, const char *statuses,
                int (*fn)(void *ctx, const struct issue_task *task), void *ctx, struct err *err)
{
        struct inbox q = { op, statuses, fn, ctx };

        if (op->actor->type != ACTOR_AGENT)
                return err_set(err, ERR_UNAUTHORIZED, "Agent authentication required");
        return store_read(op, rt->store, read_inbox, &q, err);
}
