/* The workspace that an issue reuses: settings of the issue are also written to the workspace, so
 * that the next run sees them. */
#include "core/access/agent_fields.h"
#include "core/environments/host_use.h"
#include "core/issues/issue_internal.h"
#include "core/workspaces/execution_workspace.h"
#include "store/execution_workspaces.h"

#define REUSE "reuse_existing"

int issue_check_workspace(struct db *db, const struct op *op, const struct issue *i,
                          struct err *err)
{
        struct execution_workspace workspace;
        int r = execution_workspaces_get(db, i->execution_workspace_id, op->arena, &workspace, err);

        if (r == ERR_NOT_FOUND || (r >= 0 && !streq(workspace.company_id, i->company_id)))
                return err_set(err, ERR_UNPROCESSABLE, "Execution workspace not found");
        return r;
}

int issue_workspace_is_isolated(struct db *db, const struct runtime *rt, const struct op *op,
                                const struct issue *i, bool *ret, struct err *err)
{
        struct execution_workspace workspace;
        const char *id;
        json_t *config;
        int r;

        *ret = false;
        if (!i->execution_workspace_id)
                return 0;
        r = execution_workspaces_get(db, i->execution_workspace_id, op->arena, &workspace, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        config = execution_workspace_config(workspace.metadata);
        id = json_get_string(config, "environmentId");
        if (id)
                r = agent_environment_is_isolated(db, rt, op->arena, i->company_id, id, ret, err);
        json_decref(config);
        return r;
}

/* Settings of the issue as members of the workspace's configuration. A workspace without an
 * environment works on this machine, which an agent may not choose: an agent's null is ignored. */
static void merge(json_t *config, const json_t *settings, bool is_agent)
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
static int merged(const char *text, const json_t *settings, bool is_agent, json_t **ret,
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
        merge(config, settings, is_agent);
        *ret = metadata;
        return 0;
}

int issue_tell_workspace(struct db *db, const struct op *op, const struct issue *i,
                         const json_t *settings, struct err *err)
{
        struct execution_workspace workspace;
        json_t *metadata;
        int64_t seen;
        int r;

        if (!settings || !i->execution_workspace_id || !i->execution_workspace_preference ||
            !streq(i->execution_workspace_preference, REUSE))
                return 0;
        r = execution_workspaces_get(db, i->execution_workspace_id, op->arena, &workspace, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r >= 0)
                r = merged(workspace.metadata, settings, op->actor->type == ACTOR_AGENT, &metadata,
                           err);
        if (r < 0)
                return r;
        workspace.metadata = json_to_arena(op->arena, metadata);
        json_decref(metadata);
        seen = workspace.updated_at;
        workspace.updated_at = i->updated_at;
        r = execution_workspaces_replace(db, &workspace, seen, err);
        return r == 0 ? err_set(err, ERR_CONFLICT, "The workspace was changed by someone else") : r;
}
