/* Decides which bodies make or change an issue, and which relations it may have. */
#include "base/clock.h"
#include "core/access/agent_fields.h"
#include "core/access/audit.h"
#include "core/environments/env_select.h"
#include "core/environments/host_use.h"
#include "core/issues/issue_internal.h"
#include "core/patch.h"

#define BLOCKERS_MAX 256

const char *const issue_statuses[] = { "backlog", "todo",    "in_progress", "in_review",
                                       "done",    "blocked", "cancelled",   NULL };
static const char *const issue_priorities[] = { "critical", "high", "medium", "low", NULL };
static const char *const work_modes[] = { "standard", "planning", NULL };
static const char *const members[] = {
        "assigneeAgentId",
        "assigneeUserId",
        "billingCode",
        "blockedByIssueIds",
        "comment",
        "description",
        "executionPolicy",
        "executionWorkspaceId",
        "executionWorkspacePreference",
        "executionWorkspaceSettings",
        "hiddenAt",
        "parentId",
        "priority",
        "projectId",
        "requestDepth",
        "status",
        "title",
        "workMode",
        NULL,
};

/* -- Reading ---------------------------------------------------------------------------------- */

static void read_settings(struct check *c, struct arena *a, struct issue *i,
                          struct issue_change *ret)
{
        static const char *const known[] = { "mode", "environmentId", "workspaceStrategy",
                                             "workspaceRuntime", NULL };
        json_t *settings = check_record(c, "executionWorkspaceSettings", CHECK_NULLABLE);
        struct check n;

        check_nested(&n, c, "executionWorkspaceSettings", settings);
        if (settings) {
                (void)check_string(&n, "mode", CHECK_NULLABLE, 1, 0);
                (void)check_uuid(&n, "environmentId", CHECK_NULLABLE);
                (void)check_record(&n, "workspaceStrategy", CHECK_NULLABLE);
                (void)check_record(&n, "workspaceRuntime", CHECK_NULLABLE);
                check_unknown(&n, known);
        }
        ret->has_settings = check_has(c, "executionWorkspaceSettings");
        ret->settings = settings;
        if (ret->has_settings)
                i->execution_workspace_settings = settings ? json_to_arena(a, settings) : NULL;
        ret->has_workspace = patch_uuid(c, a, "executionWorkspaceId", &i->execution_workspace_id);
        (void)patch_text(c, a, "executionWorkspacePreference", &i->execution_workspace_preference);
}

static void read_blockers(struct check *c, struct issue_change *ret)
{
        json_t *list = check_strings(c, "blockedByIssueIds", CHECK_OPTIONAL, 1), *item;
        size_t at;

        check_array_size(c, "blockedByIssueIds", list, 0, BLOCKERS_MAX);
        json_array_foreach(list, at, item)
        {
                if (!uuid_is_valid(json_string_value(item)))
                        check_invalid_string(c, "blockedByIssueIds", "uuid", "Invalid uuid");
        }
        ret->blocked_by = list;
}

/* Berth has no goals and no labels; naming one is naming something that does not exist. */
static void read_absent(struct check *c)
{
        json_t *labels = check_strings(c, "labelIds", CHECK_OPTIONAL, 1);

        if (check_uuid(c, "goalId", CHECK_NULLABLE))
                check_custom(c, "goalId", "Goal not found");
        if (json_array_size(labels) > 0)
                check_custom(c, "labelIds", "Label not found");
}

static void read_change(struct check *c, struct arena *a, struct issue *i, struct issue_change *ret)
{
        const char *hidden = check_string(c, "hiddenAt", CHECK_NULLABLE, 0, 0);

        i->hidden_at = check_has(c, "hiddenAt") ? 0 : i->hidden_at;
        if (hidden && !clock_parse_iso(hidden, &i->hidden_at))
                check_invalid_string(c, "hiddenAt", "datetime", "Invalid datetime");
        ret->comment = arena_strdup(a, check_string(c, "comment", CHECK_OPTIONAL, 1, 0));
        ret->reopen = check_bool(c, "reopen", CHECK_OPTIONAL, false);
}

int issue_read_body(struct op *op, json_t *body, bool creating, struct issue *i,
                    struct issue_change *ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct arena *a = op->arena;
        const char *title;
        json_t *policy;
        int64_t depth;
        bool has;

        *ret = (struct issue_change){ .given = patch_names(a, body, members) };
        check_init(&c, body);
        title = check_string(&c, "title", creating ? CHECK_REQUIRED : CHECK_OPTIONAL, 1, 0);
        if (title)
                i->title = arena_strdup(a, title);
        (void)patch_text(&c, a, "description", &i->description);
        ret->has_status = patch_word(&c, a, "status", issue_statuses, &ret->status);
        (void)patch_word(&c, a, "priority", issue_priorities, &i->priority);
        (void)patch_word(&c, a, "workMode", work_modes, &i->work_mode);
        ret->has_assignee = patch_uuid(&c, a, "assigneeAgentId", &i->assignee_agent_id);
        if (patch_text(&c, a, "assigneeUserId", &i->assignee_user_id))
                ret->has_assignee = true;
        (void)patch_uuid(&c, a, "projectId", &i->project_id);
        (void)patch_uuid(&c, a, "parentId", &i->parent_id);
        (void)patch_text(&c, a, "billingCode", &i->billing_code);
        depth = check_int(&c, "requestDepth", CHECK_OPTIONAL, 0, INT32_MAX, &has);
        if (has)
                i->request_depth = depth;
        policy = check_record(&c, "executionPolicy", CHECK_NULLABLE);
        if (check_has(&c, "executionPolicy"))
                i->execution_policy = policy ? json_to_arena(a, policy) : NULL;
        read_blockers(&c, ret);
        read_settings(&c, a, i, ret);
        read_absent(&c);
        if (!creating)
                read_change(&c, a, i, ret);
        return check_end(&c, err);
}

/* -- What it may refer to --------------------------------------------------------------------- */

static bool same(const char *a, const char *b)
{
        return (!a && !b) || (a && b && streq(a, b));
}

static int check_project(struct db *db, const struct op *op, const struct issue *i, struct err *err)
{
        struct project p;
        int r = i->project_id ? projects_get(db, i->project_id, op->arena, &p, err) : 0;

        if (r == ERR_NOT_FOUND || (r >= 0 && i->project_id && !streq(p.company_id, i->company_id)))
                return err_set(err, ERR_UNPROCESSABLE, "Project must belong to same company");
        return r;
}

static int check_parent(struct db *db, const struct op *op, const struct issue *i, struct err *err)
{
        struct issue_rows above = { .arena = op->arena };
        struct issue parent;
        int r = i->parent_id ? issues_get(db, i->parent_id, op->arena, &parent, err) : 0;

        if (r == ERR_NOT_FOUND ||
            (r >= 0 && i->parent_id && !streq(parent.company_id, i->company_id)))
                return err_set(err, ERR_UNPROCESSABLE, "Parent issue must belong to same company");
        if (r < 0 || !i->parent_id || !i->id)
                return r;
        r = issues_ancestors(db, parent.id, op->arena, issue_collect, &above, err);
        if (r < 0)
                return r;
        for (size_t n = 0; n < above.n; n++)
                if (streq(above.at[n].id, i->id))
                        r = ERR_UNPROCESSABLE;
        if (streq(parent.id, i->id))
                r = ERR_UNPROCESSABLE;
        return r < 0 ? err_set(err, r, "Issue cannot be beneath itself") : 0;
}

static int check_blocker(struct db *db, const struct op *op, const struct issue *i,
                         const char *blocker_id, struct err *err)
{
        struct issue blocker;
        bool circle = false;
        int r = issues_get(db, blocker_id, op->arena, &blocker, err);

        if (r == ERR_NOT_FOUND || (r >= 0 && !streq(blocker.company_id, i->company_id)))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Blocked-by issues must belong to the same company");
        if (r < 0 || !i->id)
                return r;
        if (streq(blocker.id, i->id))
                return err_set(err, ERR_UNPROCESSABLE, "Issue cannot be blocked by itself");
        r = issue_blockers_reach(db, blocker.id, i->id, &circle, err);
        if (r >= 0 && circle)
                r = err_set(err, ERR_UNPROCESSABLE, "Blocking relations cannot contain cycles");
        return r;
}

static int check_settings(struct db *db, struct runtime *rt, const struct op *op,
                          const struct issue *before, const struct issue *i,
                          const struct issue_change *change, struct err *err)
{
        const char *had = before ? before->execution_workspace_settings : NULL;
        const char *id = json_get_string(change->settings, "environmentId");
        CLEAN(json_decrefp) json_t *old = NULL;
        struct field_change fields = { .of = FIELD_OF_ISSUE_SETTINGS,
                                       .company_id = i->company_id,
                                       .path = "executionWorkspaceSettings",
                                       .after = change->settings };
        int r = had ? json_parse(had, strlen(had), &old, err) : 0;

        fields.before = old;
        if (r >= 0 && id) /* without one the work is done wherever its agent works */
                r = agent_environment_is_isolated(db, rt, op->arena, i->company_id, id,
                                                  &fields.is_isolated, err);
        if (r >= 0)
                r = agent_fields_check(db, op, &fields, NULL, err);
        return r < 0 ? r : env_select_in(db, rt, op, i->company_id, change->settings, had, err);
}

/* The workspace that an issue works in determines the environment: an agent may not freely choose
 * either that environment or whether it counts. */
static int check_place(struct db *db, struct runtime *rt, const struct op *op,
                       const struct issue *before, const struct issue *i, struct err *err)
{
        const char *had = before ? before->execution_workspace_id : NULL;
        const char *has = i->execution_workspace_id;
        CLEAN(json_decrefp)
        json_t *was = json_pack("{s:s?, s:s?}", "executionWorkspaceId", had,
                                "executionWorkspacePreference",
                                had ? before->execution_workspace_preference : NULL);
        CLEAN(json_decrefp)
        json_t *is = json_pack("{s:s?, s:s?}", "executionWorkspaceId", has,
                               "executionWorkspacePreference",
                               had || has ? i->execution_workspace_preference : NULL);
        struct field_change fields = { .of = FIELD_OF_ISSUE, .before = was, .after = is };
        int r;

        if (op->actor->type != ACTOR_AGENT || json_equal(was, is))
                return 0;
        r = access_manage_environments(db, op->actor, i->company_id, err);
        if (r >= 0)
                r = issue_workspace_is_isolated(db, rt, op, i, &fields.is_isolated, err);
        return r < 0 ? r : agent_fields_check(db, op, &fields, NULL, err);
}

/* A project's policy says where an issue is worked on; without one the issue's agent does. An
 * agent's key may use neither to lead the work out of an isolated place. */
static int check_moved(struct db *db, struct runtime *rt, const struct op *op,
                       const struct issue *before, const struct issue *i, struct err *err)
{
        CLEAN(json_decrefp) json_t *was = json_pack("{s:s?}", "projectId", before->project_id);
        CLEAN(json_decrefp) json_t *is = json_pack("{s:s?}", "projectId", i->project_id);
        struct field_change fields = { .of = FIELD_OF_ISSUE, .before = was, .after = is };
        CLEAN(json_decrefp) json_t *policy = NULL;
        struct project project = { 0 };
        struct agent agent;
        const char *id;
        int r = 0;

        if (op->actor->type != ACTOR_AGENT || same(before->project_id, i->project_id))
                return 0;
        if (i->project_id)
                r = projects_get(db, i->project_id, op->arena, &project, err);
        if (r >= 0 && project.execution_workspace_policy)
                r = json_parse(project.execution_workspace_policy,
                               strlen(project.execution_workspace_policy), &policy, err);
        if (r >= 0 && i->assignee_agent_id) {
                r = agents_get(db, i->assignee_agent_id, op->arena, &agent, err);
                if (r >= 0)
                        r = agent_place_is_isolated(db, rt, op->arena, &agent, &fields.is_isolated,
                                                    err);
        }
        id = json_get_string(policy, "environmentId");
        if (r >= 0 && id && fields.is_isolated)
                r = agent_environment_is_isolated(db, rt, op->arena, i->company_id, id,
                                                  &fields.is_isolated, err);
        return r < 0 ? r : agent_fields_check(db, op, &fields, NULL, err);
}

int issue_check_relations(struct db *db, struct runtime *rt, const struct op *op,
                          const struct issue *before, const struct issue *i,
                          const struct issue_change *change, struct err *err)
{
        json_t *item;
        size_t at;
        int r = 0;

        if (!before || !same(before->project_id, i->project_id))
                r = check_project(db, op, i, err);
        if (r >= 0 && before)
                r = check_moved(db, rt, op, before, i, err);
        if (r >= 0 && (!before || !same(before->parent_id, i->parent_id)))
                r = check_parent(db, op, i, err);
        json_array_foreach(change->blocked_by, at, item)
        {
                if (r >= 0)
                        r = check_blocker(db, op, i, json_string_value(item), err);
        }
        if (r >= 0 && change->has_settings)
                r = check_settings(db, rt, op, before, i, change, err);
        if (r >= 0)
                r = check_place(db, rt, op, before, i, err);
        if (r >= 0 && change->has_workspace && i->execution_workspace_id &&
            !(before && same(before->execution_workspace_id, i->execution_workspace_id)))
                r = issue_check_workspace(db, op, i, err);
        return r;
}

int issue_write_blockers(struct db *db, const struct issue *i, const struct issue_change *change,
                         struct err *err)
{
        json_t *item;
        size_t at;
        int r;

        if (!change->blocked_by)
                return 0;
        r = issue_blockers_clear(db, i->id, err);
        json_array_foreach(change->blocked_by, at, item)
        {
                struct uuid id;

                if (r >= 0 && uuid_parse(json_string_value(item), &id))
                        r = issue_blockers_put(db, i->id, id.s, i->updated_at, err);
        }
        return r;
}
