/* Decides who may read and write projects, and which policies and variables they may have. */
#include "core/companies/project.h"
#include "core/environments/host_use.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/agent_fields.h"
#include "core/access/audit.h"
#include "core/environments/env_select.h"
#include "core/secrets/agent_env.h"
#include "store/agents.h"
#include "store/secret_bindings.h"

struct request {
        struct op *op;
        struct runtime *rt;
        const char *company_id, *reference;
        const struct project_patch *patch;
        struct project *project;
};

static const char *const statuses[] = { "backlog",   "planned",   "in_progress",
                                        "completed", "cancelled", NULL };

static void check_strategy(struct check *parent, json_t *strategy)
{
        static const char *const types[] = { "project_primary", "git_worktree", "adapter_managed",
                                             "cloud_sandbox", NULL };
        static const char *const known[] = { "type",
                                             "baseRef",
                                             "branchTemplate",
                                             "worktreeParentDir",
                                             "provisionCommand",
                                             "runtimeProvisionCommand",
                                             "teardownCommand",
                                             NULL };
        struct check c;

        check_nested(&c, parent, "workspaceStrategy", strategy);
        (void)check_enum(&c, "type", CHECK_OPTIONAL, types);
        for (size_t i = 1; known[i]; i++)
                (void)check_string(&c, known[i], CHECK_NULLABLE, 0, 0);
        check_unknown(&c, known);
}

static void check_policy(struct check *c, const struct body_member *m, void *into,
                         struct arena *arena UNUSED)
{
        static const char *const records[] = { "workspaceRuntime",  "branchPolicy",
                                               "pullRequestPolicy", "runtimePolicy",
                                               "cleanupPolicy",     "authorizationPolicy" };
        static const char *const modes[] = { "shared_workspace", "isolated_workspace",
                                             "operator_branch", "adapter_default", NULL };
        static const char *const side_by_side[] = { "auto", "serialize", "allow", NULL };
        static const char *const known[] = { "enabled",
                                             "sharedWorkspaceConcurrency",
                                             "defaultMode",
                                             "allowIssueOverride",
                                             "defaultProjectWorkspaceId",
                                             "environmentId",
                                             "workspaceStrategy",
                                             "workspaceRuntime",
                                             "branchPolicy",
                                             "pullRequestPolicy",
                                             "runtimePolicy",
                                             "cleanupPolicy",
                                             "authorizationPolicy",
                                             NULL };
        struct check n;

        check_nested(&n, c, m->name, ((struct project_patch *)into)->policy);
        (void)check_bool(&n, "enabled", CHECK_REQUIRED, false);
        (void)check_enum(&n, "sharedWorkspaceConcurrency", CHECK_OPTIONAL, side_by_side);
        (void)check_enum(&n, "defaultMode", CHECK_OPTIONAL, modes);
        (void)check_bool(&n, "allowIssueOverride", CHECK_OPTIONAL, false);
        (void)check_uuid(&n, "defaultProjectWorkspaceId", CHECK_NULLABLE);
        (void)check_uuid(&n, "environmentId", CHECK_NULLABLE);
        check_strategy(&n, check_record(&n, "workspaceStrategy", CHECK_NULLABLE));
        for (size_t i = 0; i < ARRAY_LEN(records); i++)
                (void)check_record(&n, records[i], CHECK_NULLABLE);
        check_unknown(&n, known);
}

static void refuse_goals(struct check *c, const struct body_member *m, void *into,
                         struct arena *arena UNUSED)
{
        const struct project_patch *p = into;

        if (p->goal_id || json_array_size(p->goal_ids) > 0)
                check_custom(c, m->name, "Goal not found");
}

static void decode_workspace(struct check *c UNUSED, const struct body_member *m UNUSED, void *into,
                             struct arena *arena)
{
        struct project_patch *p = into;

        p->workspace.body =
                body_decode(&project_workspace_body, p->workspace_json, true, arena, &p->workspace);
}

#define P struct project_patch
static const struct body_member members[] = {
        BODY_TEXT(P, row.name, "name", .flags = CHECK_REQUIRED, .min = 1),
        BODY_TEXT(P, row.description, "description", .flags = CHECK_NULLABLE),
        BODY_WORD(P, row.status, "status", statuses),
        BODY_UUID(P, row.lead_agent_id, "leadAgentId", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.target_date, "targetDate", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.color, "color", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.icon, "icon", .flags = CHECK_NULLABLE),
        BODY_TIME(P, row.archived_at, "archivedAt", .flags = CHECK_NULLABLE),
        BODY_TIME(P, row.paused_at, "pausedAt", .flags = CHECK_NULLABLE),
        BODY_OBJECT(P, env, "env", .flags = CHECK_NULLABLE),
        BODY_OBJECT(P, policy, "executionWorkspacePolicy", .flags = CHECK_NULLABLE,
                    .more = check_policy),
        BODY_UUID(P, goal_id, "goalId", .flags = CHECK_NULLABLE, .unnamed = true,
                  .more = refuse_goals),
        BODY_STRINGS(P, goal_ids, "goalIds", .min = 1, .unnamed = true, .more = refuse_goals),
        BODY_OBJECT(P, workspace_json, "workspace", .when = BODY_CREATING,
                    .more = decode_workspace),
};
#undef P
const struct body_type project_body = BODY_TYPE(members);

/* -- Reading ---------------------------------------------------------------------------------- */

int project_load(struct db *db, struct op *op, const char *reference, const char *company_id,
                 bool write, struct project *ret, struct err *err)
{
        const struct actor *a = op->actor;
        const char *company = a->type == ACTOR_AGENT ? a->company_id : company_id;
        int r = access_authenticated(a, err);

        if (r < 0)
                return r;
        if (uuid_is_valid(reference))
                r = projects_get(db, reference, op->arena, ret, err);
        else if (!company)
                r = err_set(err, ERR_NOT_FOUND, "Project not found");
        else if ((r = access_company(db, a, company, false, err)) >= 0)
                r = projects_find(db, company, reference, op->arena, ret, err);
        return r < 0 ? r : access_company(db, a, ret->company_id, write, err);
}

int project_get(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
                struct project *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : project_load(db, op, reference, company_id, false, ret, err);
}

/* -- Writing ---------------------------------------------------------------------------------- */

static json_t *document_of(const char *text)
{
        json_t *value = NULL;

        if (text)
                (void)json_parse(text, strlen(text), &value, NULL);
        return value;
}

static int check_lead(struct db *db, const struct op *op, const struct project *p, struct err *err)
{
        struct agent lead;
        int r = p->lead_agent_id ? agents_get(db, p->lead_agent_id, op->arena, &lead, err) : 0;

        if (r == ERR_NOT_FOUND ||
            (r >= 0 && p->lead_agent_id && !streq(lead.company_id, p->company_id)))
                return err_set(err, ERR_UNPROCESSABLE, "Lead agent must belong to same company");
        return r;
}

/* Put what is wanted over *p, and check that the actor may set the members that differ. */
static int project_put_patch(struct db *db, const struct request *q, struct project *p,
                             struct err *err)
{
        const struct project_patch *want = q->patch;
        struct op *op = q->op;
        struct project before = *p;
        CLEAN(json_decrefp) json_t *was = NULL, *is = NULL, *had = NULL, *config = NULL;
        struct field_change change = { .of = FIELD_OF_PROJECT, .company_id = p->company_id };
        int r = body_check(&want->body, err);

        if (r < 0)
                return r;
        body_apply(&project_body, &want->body, want, p, sizeof(*p));
        if (!before.paused_at != !p->paused_at)
                p->pause_reason = p->paused_at ? "manual" : NULL;
        r = check_lead(db, op, p, err);
        if (r < 0)
                return r;
        if (body_has(&project_body, &want->body, "name"))
                p->url_key = arena_slug(op->arena, p->name);
        if (body_has(&project_body, &want->body, "executionWorkspacePolicy")) {
                r = env_select_in(db, q->rt, op, p->company_id, want->policy,
                                  before.execution_workspace_policy, err);
                if (r < 0)
                        return r;
                p->execution_workspace_policy =
                        want->policy ? json_to_arena(op->arena, want->policy) : NULL;
        }
        /* The variables of a project reach the agents that work in it, so the same rules hold. */
        if (body_has(&project_body, &want->body, "env")) {
                had = json_pack("{s:o?}", "env", document_of(before.env));
                config = json_pack("{s:O?}", "env", want->env);
                r = agent_env_check(db, op, q->rt, p->company_id, had, config, err);
                if (r < 0)
                        return r;
                p->env =
                        want->env ? json_to_arena(op->arena, json_object_get(config, "env")) : NULL;
                r = secret_sync_env_bindings(db, p->company_id, "project", p->id, AGENT_ENV_PREFIX,
                                             json_get_object(config, "env"), op->arena, err);
                if (r < 0)
                        return r;
        }
        was = json_pack("{s:o?, s:o?}", "env", document_of(before.env), "executionWorkspacePolicy",
                        document_of(before.execution_workspace_policy));
        is = json_pack("{s:o?, s:o?}", "env", document_of(p->env), "executionWorkspacePolicy",
                       document_of(p->execution_workspace_policy));
        change.before = was;
        change.after = is;
        /* Without an environment the project's work is done wherever its agents work. */
        const char *id =
                json_get_string(json_get_object(is, "executionWorkspacePolicy"), "environmentId");
        if (id)
                r = agent_environment_is_isolated(db, q->rt, op->arena, p->company_id, id,
                                                  &change.is_isolated, err);
        return r < 0 ? r : agent_fields_check(db, op, &change, NULL, err);
}

static int project_insert(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct project *p = q->project;
        struct project_workspace workspace;
        int r = access_company(db, q->op->actor, q->company_id, true, err);

        *p = (struct project){ .company_id = q->company_id, .status = "backlog" };
        p->id = arena_strdup(q->op->arena, uuid_new().s);
        p->created_at = p->updated_at = clock_now_us();
        if (r >= 0)
                r = project_put_patch(db, q, p, err);
        if (r >= 0)
                r = projects_insert(db, p, err);
        if (r >= 0 && q->patch->workspace_json)
                r = project_workspace_write(db, q->op, q->rt, p, &q->patch->workspace, true,
                                            &workspace, err);
        return r < 0 ? r
                     : audit(db, q->op, p->company_id, "project.created", "project", p->id,
                             json_pack("{s:s}", "name", p->name), err);
}

int project_create(struct op *op, struct runtime *rt, const char *company_id,
                   const struct project_patch *patch, struct project *ret, struct err *err)
{
        struct request q = {
                .op = op, .rt = rt, .company_id = company_id, .patch = patch, .project = ret
        };

        FAULT("project.create.before");
        int r = store_write(op, rt->store, project_insert, &q, err);
        FAULT("project.create.after");
        return r;
}

static int project_change(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct project *p = q->project;
        int r = project_load(db, q->op, q->reference, q->company_id, true, p, err);

        if (r >= 0)
                r = project_put_patch(db, q, p, err);
        if (r < 0)
                return r;
        p->updated_at = clock_now_us();
        r = projects_update(db, p, err);
        return r < 0 ? r
                     : audit(db, q->op, p->company_id, "project.updated", "project", p->id,
                             json_pack("{s:O}", "changedFields",
                                       body_names(&project_body, &q->patch->body, q->op->arena)),
                             err);
}

int project_update(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
                   const struct project_patch *patch, struct project *ret, struct err *err)
{
        struct request q = { op, rt, company_id, reference, patch, ret };

        FAULT("project.update.before");
        int r = store_write(op, rt->store, project_change, &q, err);
        FAULT("project.update.after");
        return r;
}

static int project_remove(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct project *p = q->project;
        int64_t used;
        int r = project_load(db, q->op, q->reference, q->company_id, true, p, err);

        if (r >= 0)
                r = projects_count_used(db, p->id, &used, err);
        if (r < 0)
                return r;
        if (used > 0)
                return err_set(err, ERR_CONFLICT,
                               "%lld execution workspace(s) of the project are in use or keep "
                               "work. Let its runs end and archive them first.",
                               (long long)used);
        r = secret_bindings_delete_target(db, p->company_id, "project", p->id, NULL, err);
        if (r >= 0)
                r = projects_delete(db, p->id, err);
        return r < 0 ? r
                     : audit(db, q->op, p->company_id, "project.deleted", "project", p->id,
                             json_pack("{s:s}", "name", p->name), err);
}

int project_delete(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
                   struct project *ret, struct err *err)
{
        struct request q = { op, rt, company_id, reference, NULL, ret };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        FAULT("project.delete.before");
        r = store_write(op, rt->store, project_remove, &q, err);
        FAULT("project.delete.after");
        return r;
}
