/* Decides who may make, change and read issues, and which issues are in an agent's inbox. */
#include "core/issues/issue.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/issues/issue_internal.h"

#define BLOCKERS_MAX  256
#define DOCUMENTS_MAX 256

struct request {
        struct op *op;
        struct runtime *rt;
        bool kick; /* there is something to run */
        const char *company_id, *reference;
        const struct issue_patch *patch;
        struct issue *issue;
        struct issue_comment *comment;
};

/* -- What is wanted --------------------------------------------------------------------------- */

const char *const issue_statuses[] = { "backlog", "todo",    "in_progress", "in_review",
                                       "done",    "blocked", "cancelled",   NULL };
static const char *const issue_priorities[] = { "critical", "high", "medium", "low", NULL };
static const char *const work_modes[] = { "standard", "planning", NULL };

static void check_blocker_ids(struct check *c, const struct body_member *m, void *into,
                              struct arena *arena UNUSED)
{
        json_t *list = ((struct issue_patch *)into)->blocked_by, *item;
        size_t at;

        check_array_size(c, m->name, list, 0, BLOCKERS_MAX);
        json_array_foreach(list, at, item)
        {
                if (!uuid_is_valid(json_string_value(item)))
                        check_invalid_string(c, m->name, "uuid", "Invalid uuid");
        }
}

static void check_settings(struct check *c, const struct body_member *m, void *into,
                           struct arena *arena UNUSED)
{
        static const char *const known[] = { "mode",
                                             "sharedWorkspaceConcurrency",
                                             "environmentId",
                                             "workspaceStrategy",
                                             "workspaceRuntime",
                                             NULL };
        static const char *const modes[] = { "inherit",
                                             "shared_workspace",
                                             "isolated_workspace",
                                             "operator_branch",
                                             "reuse_existing",
                                             "agent_default",
                                             NULL };
        static const char *const side_by_side[] = { "auto", "serialize", "allow", NULL };
        struct check n;

        check_nested(&n, c, m->name, ((struct issue_patch *)into)->settings);
        (void)check_enum(&n, "mode", CHECK_NULLABLE, modes);
        (void)check_enum(&n, "sharedWorkspaceConcurrency", CHECK_OPTIONAL, side_by_side);
        (void)check_uuid(&n, "environmentId", CHECK_NULLABLE);
        (void)check_record(&n, "workspaceStrategy", CHECK_NULLABLE);
        (void)check_record(&n, "workspaceRuntime", CHECK_NULLABLE);
        check_unknown(&n, known);
}

static void refuse_labels(struct check *c, const struct body_member *m, void *into,
                          struct arena *arena UNUSED)
{
        if (json_array_size(((struct issue_patch *)into)->labels) > 0)
                check_custom(c, m->name, "Label not found");
}

static void refuse_goal(struct check *c, const struct body_member *m, void *into UNUSED,
                        struct arena *arena UNUSED)
{
        check_custom(c, m->name, "Goal not found");
}

#define P struct issue_patch
static const struct body_member members[] = {
        BODY_TEXT(P, row.title, "title", .flags = CHECK_REQUIRED, .min = 1),
        BODY_TEXT(P, row.description, "description", .flags = CHECK_NULLABLE),
        BODY_WORD(P, status, "status", issue_statuses),
        BODY_WORD(P, row.priority, "priority", issue_priorities),
        BODY_WORD(P, row.work_mode, "workMode", work_modes),
        BODY_UUID(P, row.assignee_agent_id, "assigneeAgentId", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.assignee_user_id, "assigneeUserId", .flags = CHECK_NULLABLE),
        BODY_UUID(P, row.project_id, "projectId", .flags = CHECK_NULLABLE),
        BODY_UUID(P, row.project_workspace_id, "projectWorkspaceId", .flags = CHECK_NULLABLE),
        BODY_UUID(P, row.parent_id, "parentId", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.billing_code, "billingCode", .flags = CHECK_NULLABLE),
        BODY_NUMBER(P, row.request_depth, "requestDepth", .max = INT32_MAX),
        BODY_DOCUMENT(P, row.execution_policy, "executionPolicy", .flags = CHECK_NULLABLE),
        BODY_STRINGS(P, blocked_by, "blockedByIssueIds", .min = 1, .more = check_blocker_ids),
        BODY_OBJECT(P, settings, "executionWorkspaceSettings", .flags = CHECK_NULLABLE,
                    .more = check_settings),
        BODY_UUID(P, row.execution_workspace_id, "executionWorkspaceId", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.execution_workspace_preference, "executionWorkspacePreference",
                  .flags = CHECK_NULLABLE),
        BODY_STRINGS(P, labels, "labelIds", .min = 1, .unnamed = true, .more = refuse_labels),
        BODY_UUID(P, goal_id, "goalId", .flags = CHECK_NULLABLE, .unnamed = true,
                  .more = refuse_goal),
        BODY_TIME(P, row.hidden_at, "hiddenAt", .flags = CHECK_NULLABLE, .when = BODY_CHANGING),
        BODY_TEXT(P, comment, "comment", .min = 1, .when = BODY_CHANGING),
        BODY_FLAG(P, reopen, "reopen", .when = BODY_CHANGING, .unnamed = true),
};
#undef P
const struct body_type issue_body = BODY_TYPE(members);

static int issue_put_patch(const struct op *op, const struct issue_patch *p, struct issue *i,
                           struct err *err)
{
        int r = body_check(&p->body, err);

        if (r < 0)
                return r;
        if (body_has(&issue_body, &p->body, "projectId") &&
            !issue_same(p->row.project_id, i->project_id))
                i->project_workspace_id = NULL; /* it was one of the other project */
        body_apply(&issue_body, &p->body, p, i, sizeof(*i));
        if (body_has(&issue_body, &p->body, "executionWorkspaceSettings"))
                i->execution_workspace_settings =
                        p->settings ? json_to_arena(op->arena, p->settings) : NULL;
        return 0;
}

/* -- Making ----------------------------------------------------------------------------------- */

static int issue_insert(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        const struct actor *a = q->op->actor;
        const struct issue_patch *p = q->patch;
        struct issue_change_context x = { db, q->op, q->rt, &q->kick };
        struct issue parent = { .company_id = q->company_id };
        struct issue *i = q->issue;
        /* The company of the new issue: the given one, or the parent issue's. */
        int r = q->reference ? issue_load(db, q->op, q->reference, true, &parent, err)
                             : access_company(db, a, q->company_id, true, err);

        *i = (struct issue){
                .company_id = parent.company_id,
                .project_id = parent.project_id,
                .work_mode = "standard",
                .priority = "medium",
                .origin_kind = "manual",
                .created_by_agent_id = a->agent_id,
                .created_by_user_id = a->user_id,
                .created_at = clock_now_us(),
        };
        i->updated_at = i->created_at;
        if (r >= 0)
                r = issue_put_patch(q->op, p, i, err);
        if (parent.id)
                i->parent_id = parent.id;
        if (r >= 0 && (i->assignee_agent_id || i->assignee_user_id))
                r = issue_may_assign(db, q->op, i->company_id, err);
        if (r < 0)
                return r;
        issue_set_status(i,
                         p->status                                     ? p->status
                         : i->assignee_agent_id || i->assignee_user_id ? "todo"
                                                                       : "backlog",
                         i->created_at);
        r = issue_check_assignee(db, q->op, i, err);
        if (r >= 0)
                r = issue_check_relations(db, q->rt, q->op, NULL, i, p, err);
        if (r >= 0)
                r = issues_next_number(db, i->company_id, q->op->arena, &i->number, &i->identifier,
                                       err);
        i->id = arena_strdup(q->op->arena, uuid_new().s);
        if (r >= 0)
                r = issues_insert(db, i, err);
        if (r >= 0)
                r = issue_write_blockers(db, i, p, err);
        if (r >= 0 && streq(i->status, "in_progress"))
                r = issue_check_blockers(db, q->op, i, err);
        if (r >= 0)
                r = audit(db, q->op, i->company_id, "issue.created", "issue", i->id,
                          json_pack("{s:s, s:s}", "title", i->title, "identifier", i->identifier),
                          err);
        return r < 0 ? r : issue_wake_created(&x, i, err);
}

int issue_create(struct op *op, struct runtime *rt, const char *company_id, const char *parent,
                 const struct issue_patch *patch, struct issue *ret, struct err *err)
{
        struct request q = { .op = op,
                             .rt = rt,
                             .company_id = company_id,
                             .reference = parent,
                             .patch = patch,
                             .issue = ret };

        FAULT("issue.create.before");
        int r = store_write(op, rt->store, issue_insert, &q, err);
        FAULT("issue.create.after");
        if (r >= 0 && q.kick)
                run_host_kick(rt->runs);
        return r;
}

/* -- Changing --------------------------------------------------------------------------------- */

/* An agent that hands its work in for review has to name the reviewer. */
static int check_review(const struct op *op, const struct issue *i, struct err *err)
{
        json_t *policy = NULL;

        if (op->actor->type != ACTOR_AGENT)
                return 0;
        if (i->execution_policy)
                (void)json_parse(i->execution_policy, strlen(i->execution_policy), &policy, NULL);
        bool has_path =
                i->assignee_user_id || json_array_size(json_object_get(policy, "stages")) > 0;
        json_decref(policy);
        if (has_path)
                return 0;
        int r = err_set(
                err, ERR_UNPROCESSABLE,
                "invalid_issue_disposition: in_review needs somebody who reviews: a user as "
                "assignee, or an execution policy with stages");
        if (err)
                err_details(err, xstrdup("{\"code\":\"invalid_issue_disposition\","
                                         "\"missing\":\"review_path\"}"));
        return r;
}

static json_t *describe_change(const struct request *q, const struct issue *before,
                               const struct issue *i)
{
        json_t *details = json_pack("{s:s, s:O}", "identifier", i->identifier, "changedFields",
                                    body_names(&issue_body, &q->patch->body, q->op->arena));

        if (!streq(before->status, i->status)) {
                json_object_set_new(details, "status", json_string(i->status));
                json_object_set_new(details, "previousStatus", json_string(before->status));
        }
        if (!issue_same(before->assignee_agent_id, i->assignee_agent_id))
                json_object_set_new(details, "assigneeAgentId",
                                    json_string_or_null(i->assignee_agent_id));
        return details;
}

static int issue_change(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        const struct issue_patch *p = q->patch;
        struct op *op = q->op;
        struct issue_change_context x = { db, op, q->rt, &q->kick };
        struct issue *i = q->issue, before;
        const char *to = p->status;
        int r = issue_load(db, op, q->reference, true, i, err);

        if (r >= 0)
                r = issue_may_write(db, op, i, err);
        if (r < 0)
                return r;
        before = *i;
        r = issue_put_patch(op, p, i, err);
        i->updated_at = clock_now_us();
        bool moved = !issue_same(before.assignee_agent_id, i->assignee_agent_id) ||
                     !issue_same(before.assignee_user_id, i->assignee_user_id);
        if (r >= 0 && moved)
                r = issue_may_assign(db, op, i->company_id, err);
        if (r >= 0)
                r = issue_check_relations(db, q->rt, op, &before, i, p, err);
        if (!to && p->reopen && p->comment && issue_is_closed(&before))
                to = "todo";
        if (r >= 0 && to && !streq(to, before.status)) {
                if (streq(to, "in_progress"))
                        r = issue_check_blockers(db, op, i, err);
                else if (streq(to, "in_review"))
                        r = check_review(op, i, err);
                if (r >= 0)
                        issue_set_status(i, to, i->updated_at);
        }
        if (r >= 0 && (moved || !streq(i->status, before.status)))
                r = issue_check_assignee(db, op, i, err);
        if (r < 0)
                return r;
        if (moved)
                issue_drop_locks(i);
        r = issues_update(db, i, &before, err);
        if (r == 0)
                return issue_conflict(&before, "Issue was changed by someone else", err);
        if (r >= 0)
                r = issue_write_blockers(db, i, p, err);
        if (r >= 0 && body_has(&issue_body, &p->body, "executionWorkspaceSettings"))
                r = issue_tell_workspace(db, op, i, p->settings, err);
        if (r >= 0)
                r = audit(db, op, i->company_id, "issue.updated", "issue", i->id,
                          describe_change(q, &before, i), err);
        if (r >= 0)
                r = issue_wake_changed(&x, &before, i, err);
        if (r < 0 || !p->comment)
                return r;
        *q->comment = (struct issue_comment){ .body = p->comment };
        return issue_add_comment(&x, i, q->comment, err);
}

int issue_update(struct op *op, struct runtime *rt, const char *reference,
                 const struct issue_patch *patch, struct issue *ret,
                 struct issue_comment *ret_comment, struct err *err)
{
        struct request q = { .op = op,
                             .rt = rt,
                             .reference = reference,
                             .patch = patch,
                             .issue = ret,
                             .comment = ret_comment };

        *ret_comment = (struct issue_comment){ 0 };
        FAULT("issue.update.before");
        int r = store_write(op, rt->store, issue_change, &q, err);
        FAULT("issue.update.after");
        if (r >= 0 && q.kick)
                run_host_kick(rt->runs);
        return r;
}

/* -- Reading ---------------------------------------------------------------------------------- */

static int note_document(void *ctx, const struct issue_document *row)
{
        struct issue_detail *d = ctx;

        if (d->n_documents < DOCUMENTS_MAX)
                d->documents[d->n_documents++] = *row;
        return 0;
}

int issue_get(struct op *op, struct runtime *rt, const char *reference, const char *wake_comment_id,
              struct issue_detail *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct issue_detail *d = ret;
        struct arena *a = op->arena;
        const struct issue *i = &d->issue;
        int r = store_read_begin(op, rt->store, &db, err);

        *d = (struct issue_detail){ .ancestors.arena = a,
                                    .blocked_by.arena = a,
                                    .blocks.arena = a };
        d->documents = arena_alloc(a, DOCUMENTS_MAX * sizeof(*d->documents));
        if (r >= 0)
                r = issue_load(db, op, reference, false, &d->issue, err);
        if (r >= 0)
                r = issues_ancestors(db, i->id, a, issue_collect, &d->ancestors, err);
        if (r >= 0)
                r = issue_blockers_list(db, i->id, false, a, issue_collect, &d->blocked_by, err);
        if (r >= 0)
                r = issue_blockers_list(db, i->id, true, a, issue_collect, &d->blocks, err);
        if (r >= 0 && i->project_id)
                r = projects_get(db, i->project_id, a, &d->project, err);
        if (r >= 0 && i->project_id) {
                r = project_workspaces_of(db, i->project_id, a, &d->project_workspaces, err);
                d->n_project_workspaces = (size_t)MAX(r, 0);
        }
        if (r >= 0 && i->execution_workspace_id) {
                r = execution_workspaces_get(db, i->execution_workspace_id, a, &d->workspace, err);
                if (r == ERR_NOT_FOUND) {
                        err_clear(err);
                        r = 0;
                }
        }
        if (r >= 0)
                r = issue_documents_list(db, i->id, a, note_document, d, err);
        if (r >= 0)
                r = issue_comments_count(db, i->id, a, &d->n_comments, &d->newest, err);
        if (r < 0 || !wake_comment_id)
                return r;
        r = issue_comments_get(db, i->id, wake_comment_id, a, &d->wake, err);
        if (r == ERR_NOT_FOUND)
                d->wake = (struct issue_comment){ 0 };
        return r == ERR_NOT_FOUND ? 0 : r;
}

int issue_inbox(struct op *op, struct runtime *rt, const char *statuses,
                int (*fn)(void *ctx, const struct issue_task *task), void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct issue_filter filter = {
                .company_id = op->actor->company_id,
                .statuses = statuses,
                .assignee_agent_id = op->actor->agent_id,
                .limit = INT64_MAX,
        };
        struct issue_rows own = { .arena = op->arena };

        if (op->actor->type != ACTOR_AGENT)
                return err_set(err, ERR_UNAUTHORIZED, "Agent authentication required");
        int r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = issues_list(db, &filter, op->arena, issue_collect, &own, err);
        for (size_t n = 0; r >= 0 && n < own.n; n++) {
                struct issue_task task = { .issue = &own.at[n], .unresolved.arena = op->arena };
                struct issue_rows all = { .arena = op->arena };
                const char *active = NULL;

                r = issue_blockers_list(db, own.at[n].id, false, op->arena, issue_collect, &all,
                                        err);
                if (r >= 0)
                        r = issue_active_run(db, op, &own.at[n], &active, err);
                if (r >= 0 && active)
                        r = runs_get(db, active, op->arena, &task.active, err);
                if (r >= 0 && active && run_is_terminal(&task.active))
                        task.active = (struct run){ 0 }; /* over; only its command still runs */
                for (size_t k = 0; r >= 0 && k < all.n; k++)
                        if (!streq(all.at[k].status, "done"))
                                (void)issue_collect(&task.unresolved, &all.at[k]);
                if (r >= 0)
                        r = fn(ctx, &task);
        }
        return r;
}
