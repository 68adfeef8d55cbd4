/* Decides which statuses of a plugin may follow each other. */
#include "core/plugins/plugin_state.h"

#include "core/transition.h"

const char *const plugin_statuses[] = {
        PLUGIN_INSTALLED,   PLUGIN_READY, PLUGIN_DISABLED, PLUGIN_ERROR, PLUGIN_UPGRADE_PENDING,
        PLUGIN_UNINSTALLED, NULL,
};

static const struct transition plugin_transitions[] = {
        { PLUGIN_INSTALLED, PLUGIN_READY, "it is loaded" },
        { PLUGIN_INSTALLED, PLUGIN_ERROR, "it could not be loaded" },
        { PLUGIN_INSTALLED, PLUGIN_UNINSTALLED, "it is not wanted after all" },
        { PLUGIN_READY, PLUGIN_READY, "another version, or it is activated again" },
        { PLUGIN_READY, PLUGIN_DISABLED, "an operator stops it" },
        { PLUGIN_READY, PLUGIN_ERROR, "its worker does not start or does not stay" },
        { PLUGIN_READY, PLUGIN_UPGRADE_PENDING, "a newer version wants more rights" },
        { PLUGIN_READY, PLUGIN_UNINSTALLED, "it is removed" },
        { PLUGIN_DISABLED, PLUGIN_READY, "an operator starts it" },
        { PLUGIN_DISABLED, PLUGIN_UNINSTALLED, "it is removed" },
        { PLUGIN_ERROR, PLUGIN_READY, "an operator tries again" },
        { PLUGIN_ERROR, PLUGIN_UNINSTALLED, "it is removed" },
        { PLUGIN_UPGRADE_PENDING, PLUGIN_READY, "the newer version is approved, or refused" },
        { PLUGIN_UPGRADE_PENDING, PLUGIN_ERROR, "its worker does not start or does not stay" },
        { PLUGIN_UPGRADE_PENDING, PLUGIN_UNINSTALLED, "it is removed" },
        { PLUGIN_UNINSTALLED, PLUGIN_INSTALLED, "it is installed again" },
        { NULL, NULL, NULL },
};

int plugin_transition_check(const char *from, const char *to, const char *key, struct err *err)
{
        if (transition_exists(plugin_transitions, from, to))
                return 0;
        return err_set(err, ERR_INVALID, "Invalid lifecycle transition: %s \u2192 %s for plugin %s",
                       from, to, key);
}

bool plugin_status_runs(const char *status)
{
        return streq(status, PLUGIN_READY) || streq(status, PLUGIN_UPGRADE_PENDING);
}
