/* Which way serves which place. */
#include "core/kinds/sandbox.h"
#include "core/workspaces/workspace.h"

/* One line for each way that there is. */
static const struct workspace_way *const ways[] = {
        &workspace_in_place, &workspace_overlay, &workspace_copy,
        &workspace_sync,     &workspace_archive, NULL,
};

const struct workspace_way *workspace_way_by_name(const char *name)
{
        for (size_t i = 0; ways[i]; i++)
                if (streq(ways[i]->name, name))
                        return ways[i];
        return NULL;
}

/* Those to try for a place, the best first; NULL where an isolation makes no sense. */
static const char *const *candidates(const struct place *place, const char *isolation)
{
        static const char *const in_place[] = { "in_place", NULL };
        static const char *const synced[] = { "sync", "archive", NULL };
        static const char *const layered[] = { "overlay", "copy", "sync", NULL };
        static const char *const overlay[] = { "overlay", NULL };
        static const char *const copy[] = { "copy", "sync", NULL };
        bool is_sandbox = place->provider && streq(place->provider, PROVIDER_BERTH);

        if (place->provider && streq(place->provider, PROVIDER_FAKE))
                return NULL;
        if (!isolation)
                return is_sandbox ? layered : streq(place->driver, "local") ? in_place : synced;
        if (is_sandbox)
                return streq(isolation, "copy") ? copy : overlay;
        return streq(isolation, "copy") ? synced : NULL;
}

int workspace_way_for(const struct runtime *rt, const struct place *place, const char *isolation,
                      const struct workspace_way **ret, struct err *err)
{
        const char *const *names = candidates(place, isolation);
        const char *why = NULL;

        for (; names && *names; names++) {
                const struct workspace_way *way = workspace_way_by_name(*names);

                if (way && (!way->usable || way->usable(rt, place, &why))) {
                        *ret = way;
                        return 0;
                }
        }
        if (isolation)
                return err_set(err, ERR_UNPROCESSABLE,
                               "A workspace cannot be staged here with isolation \"%s\"%s%s.%s",
                               isolation, why ? ": " : "", why ? why : "",
                               streq(isolation, "overlay")
                                       ? " Leave it out, or use a sandbox environment."
                                       : " Leave it out for the default.");
        return err_set(err, ERR_UNPROCESSABLE,
                       "Workspaces cannot be staged into this kind of environment (%s%s%s)%s%s.",
                       place->driver, place->provider ? ", " : "",
                       place->provider ? place->provider : "", why ? ": " : "", why ? why : "");
}
