#include "core/agents/agent_limits.h"

static const char *const commands[] = { "provisionCommand", "teardownCommand",  "cleanupCommand",
                                        "setupCommand",     "workspaceRuntime", NULL };
static const char *const directories[] = { "cwd", "worktreeParentDir", "localPath", NULL };
static const char *const instructions[] = { "instructionsBundleMode", "instructionsRootPath",
                                            "instructionsEntryFile",  "instructionsFilePath",
                                            "agentsMdPath",           NULL };

static bool is_one_of(const char *const *list, const char *key)
{
        for (; *list; list++)
                if (streq(*list, key))
                        return true;
        return false;
}

/* Write the paths of members that are named in the list and differ from what was there. */
static void collect(const char *const *names, const char *path, const json_t *value,
                    const json_t *before, struct buf *ret)
{
        const char *key;
        json_t *member;

        json_object_foreach((json_t *)value, key, member)
        {
                const json_t *was = json_object_get(before, key);
                char *here = xasprintf("%s.%s", path, key);

                if (!is_one_of(names, key))
                        collect(names, here, member, was, ret);
                else if (!json_is_null(member) && !json_equal(member, was))
                        buf_appendf(ret, "%s%s", ret->len ? ", " : "", here);
                free(here);
        }
}

int agent_limits_workspace(const struct op *op, const char *path, const json_t *value,
                           const json_t *before, struct err *err)
{
        CLEAN(buf_done) struct buf paths = BUF_INIT;

        if (op->actor->type != ACTOR_AGENT)
                return 0;
        collect(commands, path, value, before, &paths);
        if (paths.len > 0)
                return err_set(err, ERR_FORBIDDEN,
                               "Agent keys cannot modify host-executed workspace commands (%s).",
                               buf_str(&paths));
        collect(directories, path, value, before, &paths);
        if (paths.len > 0)
                return err_set(err, ERR_FORBIDDEN,
                               "Agent keys cannot choose directories of the host (%s).",
                               buf_str(&paths));
        return 0;
}

int agent_limits_instructions(const struct op *op, const json_t *config, const json_t *before,
                              struct err *err)
{
        CLEAN(buf_done) struct buf paths = BUF_INIT;

        if (op->actor->type != ACTOR_AGENT)
                return 0;
        collect(instructions, "adapterConfig", config, before, &paths);
        if (paths.len == 0)
                return 0;
        return err_set(err, ERR_FORBIDDEN,
                       "Agent-authenticated callers cannot modify instructions path or bundle "
                       "configuration (%s)",
                       buf_str(&paths));
}
