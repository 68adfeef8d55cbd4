/* Which way serves which place. */
#include "core/kinds/kind.h"
#include "core/workspaces/workspace.h"

static const struct workspace_way *find_way(const struct workspace_way *const *list,
                                            const char *name)
{
        for (; list && *list; list++)
                if (streq((*list)->name, name))
                        return *list;
        return NULL;
}

const struct workspace_way *workspace_way_by_name(const struct runtime *rt, const char *name)
{
        const struct workspace_way *way = NULL;

        for (const struct kind *const *k = rt->kinds; !way && *k; k++) {
                way = find_way((*k)->ways, name);
                if (!way)
                        way = find_way((*k)->ways_copy, name);
        }
        return way;
}

int workspace_way_for(const struct runtime *rt, const struct place *place, const char *isolation,
                      const struct workspace_way **ret, struct err *err)
{
        const struct kind *kind = kind_of_place(rt, place);
        const struct workspace_way *const *ways = NULL;
        const char *why = NULL;

        if (kind)
                ways = !isolation                 ? kind->ways
                       : streq(isolation, "copy") ? kind->ways_copy
                                                  : kind->ways_overlay;
        for (; ways && *ways; ways++)
                if (!(*ways)->usable || (*ways)->usable(rt, place, &why)) {
                        *ret = *ways;
                        return 0;
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
