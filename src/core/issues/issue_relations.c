/* Decides which projects, parents, blockers and places an issue may have, and passes its settings
 * on to the workspace that it reuses. */
#include "core/access/agent_fields.h"
#include "core/environments/env_select.h"
#include "core/environments/host_use.h"
#include "core/issues/issue_internal.h"
#include "core/workspaces/execution_workspace.h"

#define REUSE "reuse_existing"

static int check_project(struct db *db, const struct op *op, const struct issue *i, struct err *err)
{
        struct project p;
        int r = i->project_id ? projects_get(db, i->project_id, op->arena, &p, err) : 0;

        if (r == ERR_NOT_FOUND || (r >= 0 && i->project_id && !streq(p.company_id, i->company_id)))
                return err_set(err, ERR_UNPROCESSABLE, "Project must belong to same company");
        return r;
}

static int check_project_workspace(struct db *db, const struct op *op, const struct issue *i,
                                   struct err *err)
{
        struct project_workspace w;
        int r = i->project_workspace_id
                        ? project_workspaces_get(db, i->project_workspace_id, op->arena, &w, err)
                        : 0;

        if (r == ERR_NOT_FOUND ||
            (r >= 0 && i->project_workspace_id && !issue_same(w.project_id, i->project_id)))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Project workspace must belong to the selected project");
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

static int check_issue_settings(struct db *db, struct runtime *rt, const struct op *op,
                                const struct issue *before, const struct issue *i,
                                const struct issue_patch *patch, struct err *err)
{
        const char *had = before ? before->execution_workspace_settings : NULL;
        const char *id = json_get_string(patch->settings, "environmentId");
        CLEAN(json_decrefp) json_t *old = NULL;
        struct field_change fields = { .of = FIELD_OF_ISSUE_SETTINGS,
                                       .company_id = i->company_id,
                                       .path = "executionWorkspaceSettings",
                                       .after = patch->settings };
        int r = had ? json_parse(had, strlen(had), &old, err) : 0;

        fields.before = old;
        if (r >= 0 && id) /* without one the work is done wherever its agent works */
                r = agent_environment_is_isolated(db, rt, op->arena, i->company_id, id,
                                                  &fields.is_isolated, err);
        if (r >= 0)
                r = agent_fields_check(db, op, &fields, NULL, err);
        return r < 0 ? r : env_select_in(db, rt, op, i->company_id, patch->settings, had, err);
}

/* Whether the workspace that the issue names keeps its work in an isolated place. A workspace that
 * names no environment does not answer this. */
static int issue_workspace_is_isolated(struct db *db, const struct runtime *rt, const struct op *op,
                                       const struct issue *i, bool *ret, struct err *err)
{
        struct execution_workspace workspace;

        *ret = false;
        if (!i->execution_workspace_id)
                return 0;
        int r = execution_workspaces_get(db, i->execution_workspace_id, op->arena, &workspace, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        json_t *config = execution_workspace_config(workspace.metadata);
        const char *id = json_get_string(config, "environmentId");
        if (id)
                r = agent_environment_is_isolated(db, rt, op->arena, i->company_id, id, ret, err);
        json_decref(config);
        return r;
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

        if (op->actor->type != ACTOR_AGENT || json_equal(was, is))
                return 0;
        int r = access_manage_environments(db, op->actor, i->company_id, err);
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
        int r = 0;

        if (op->actor->type != ACTOR_AGENT || issue_same(before->project_id, i->project_id))
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
        const char *id = json_get_string(policy, "environmentId");
        if (r >= 0 && id && fields.is_isolated)
                r = agent_environment_is_isolated(db, rt, op->arena, i->company_id, id,
                                                  &fields.is_isolated, err);
        return r < 0 ? r : agent_fields_check(db, op, &fields, NULL, err);
}

int issue_check_relations(struct db *db, struct runtime *rt, const struct op *op,
                          const struct issue *before, const struct issue *i,
                          const struct issue_patch *patch, struct err *err)
{
        struct execution_workspace workspace;
        json_t *item;
        size_t at;
        int r = 0;

        if (!before || !issue_same(before->project_id, i->project_id))
                r = check_project(db, op, i, err);
        if (r >= 0 && body_has(&issue_body, &patch->body, "projectWorkspaceId"))
                r = check_project_workspace(db, op, i, err);
        if (r >= 0 && before)
                r = check_moved(db, rt, op, before, i, err);
        if (r >= 0 && (!before || !issue_same(before->parent_id, i->parent_id)))
                r = check_parent(db, op, i, err);
        json_array_foreach(patch->blocked_by, at, item)
        {
                if (r >= 0)
                        r = check_blocker(db, op, i, json_string_value(item), err);
        }
        if (r >= 0 && body_has(&issue_body, &patch->body, "executionWorkspaceSettings"))
                r = check_issue_settings(db, rt, op, before, i, patch, err);
        if (r >= 0)
                r = check_place(db, rt, op, before, i, err);
        if (r < 0 || !i->execution_workspace_id ||
            (before && issue_same(before->execution_workspace_id, i->execution_workspace_id)))
                return r;
        r = execution_workspaces_get(db, i->execution_workspace_id, op->arena, &workspace, err);
        if (r == ERR_NOT_FOUND || (r >= 0 && !streq(workspace.company_id, i->company_id)))
                return err_set(err, ERR_UNPROCESSABLE, "Execution workspace not found");
        return r;
}

int issue_write_blockers(struct db *db, const struct issue *i, const struct issue_patch *patch,
                         struct err *err)
{
        json_t *item;
        size_t at;

        if (!patch->blocked_by)
                return 0;
        int r = issue_blockers_clear(db, i->id, err);
        json_array_foreach(patch->blocked_by, at, item)
        {
                struct uuid id;

                if (r >= 0 && uuid_parse(json_string_value(item), &id))
                        r = issue_blockers_put(db, i->id, id.s, i->updated_at, err);
        }
        return r;
}

/* Settings of the issue as members of the workspace's configuration. A workspace without an
 * environment works on this machine, which an agent may not choose: an agent's null is ignored. */
static void merge_settings(json_t *config, const json_t *settings, bool is_agent)
{
        static const char *const commands[] = { "provisionCommand", "teardownCommand" };
        json_t *environment = json_object_get(settings, "environmentId");
        json_t *runtime = json_object_get(settings, "workspaceRuntime");
        const json_t *strategy = json_get_object(settings, "workspaceStrategy");

        if (environment && !(is_agent && json_is_null(environment)))
                json_object_set(config, "environmentId", environment);
        if (runtime)
                json_object_set(config, "workspaceRuntime", runtime);
        for (size_t n = 0; n < ARRAY_LEN(commands); n++)
                if (json_object_get(strategy, commands[n]))
                        json_object_set(config, commands[n],
                                        json_object_get(strategy, commands[n]));
}

/* The workspace's metadata with the settings in its configuration. A new reference. */
static int merged_metadata(const char *text, const json_t *settings, bool is_agent, json_t **ret,
                           struct err *err)
{
        json_t *metadata = NULL, *config;
        int r = text ? json_parse(text, strlen(text), &metadata, err) : 0;

        if (r < 0)
                return r;
        metadata = metadata ? metadata : json_object();
        config = json_get_object(metadata, "config");
        if (!config) {
                config = json_object();
                json_object_set_new(metadata, "config", config);
        }
        merge_settings(config, settings, is_agent);
        *ret = metadata;
        return 0;
}

int issue_tell_workspace(struct db *db, const struct op *op, const struct issue *i,
                         const json_t *settings, struct err *err)
{
        struct execution_workspace workspace;
        json_t *metadata;

        if (!settings || !i->execution_workspace_id || !i->execution_workspace_preference ||
            !streq(i->execution_workspace_preference, REUSE))
                return 0;
        int r = execution_workspaces_get(db, i->execution_workspace_id, op->arena, &workspace, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r >= 0)
                r = merged_metadata(workspace.metadata, settings, op->actor->type == ACTOR_AGENT,
                                    &metadata, err);
        if (r < 0)
                return r;
        workspace.metadata = json_to_arena(op->arena, metadata);
        json_decref(metadata);
        int64_t seen = workspace.updated_at;
        workspace.updated_at = i->updated_at;
        r = execution_workspaces_replace(db, &workspace, seen, err);
        return r == 0 ? err_set(err, ERR_CONFLICT, "The workspace was changed by someone else") : r;
}
