/* The workspace that an issue works in again: what the issue says about it is said to the
 * workspace, too, so that the next run sees it. */
#include "core/issue_internal.h"
#include "store/execution_workspaces.h"

#define REUSE "reuse_existing"

int issue_check_workspace(struct db *db, const struct op *op, const struct issue *i,
                          struct err *err)
{
        const char *metadata;
        int r = 0;

        /* A workspace carries an environment with it. */
        if (op->actor->type == ACTOR_AGENT)
                r = access_manage_environments(db, op->actor, i->company_id, err);
        if (r >= 0)
                r = execution_workspaces_metadata(db, i->company_id, i->execution_workspace_id,
                                                  op->arena, &metadata, err);
        return r == ERR_NOT_FOUND ? err_set(err, ERR_UNPROCESSABLE, "Execution workspace not found")
                                  : r;
}

/* Settings of the issue as members of the workspace's configuration. */
static void merge(json_t *config, const json_t *settings)
{
        static const char *const commands[] = { "provisionCommand", "teardownCommand" };
        json_t *environment = json_object_get(settings, "environmentId");
        json_t *runtime = json_object_get(settings, "workspaceRuntime");
        const json_t *strategy = json_get_object(settings, "workspaceStrategy");

        if (environment)
                json_object_set(config, "environmentId", environment);
        if (runtime)
                json_object_set(config, "workspaceRuntime", runtime);
        for (size_t n = 0; n < ARRAY_LEN(commands); n++)
                if (json_object_get(strategy, commands[n]))
                        json_object_set(config, commands[n],
                                        json_object_get(strategy, commands[n]));
}

int issue_tell_workspace(struct db *db, const struct op *op, const struct issue *i,
                         const json_t *settings, struct err *err)
{
        const char *text;
        json_t *metadata = NULL, *config;
        int r;

        if (!settings || !i->execution_workspace_id || !i->execution_workspace_preference ||
            !streq(i->execution_workspace_preference, REUSE))
                return 0;
        r = execution_workspaces_metadata(db, i->company_id, i->execution_workspace_id, op->arena,
                                          &text, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r >= 0 && text)
                r = json_parse(text, strlen(text), &metadata, err);
        if (r < 0)
                return r;
        metadata = metadata ? metadata : json_object();
        config = json_get_object(metadata, "config");
        if (!config) {
                config = json_object();
                json_object_set_new(metadata, "config", config);
        }
        merge(config, settings);
        r = execution_workspaces_set_metadata(db, i->execution_workspace_id,
                                              json_to_arena(op->arena, metadata), i->updated_at,
                                              err);
        json_decref(metadata);
        return r;
}
