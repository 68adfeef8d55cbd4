#include "core/kinds/kind.h"

const struct driver *driver_lookup(const struct runtime *rt, const char *key)
{
        const struct driver *found = NULL;

        for (const struct driver *const *d = rt->drivers; *d; d++)
                if (streq((*d)->key, key))
                        found = *d;
        return found;
}

int driver_find(const struct runtime *rt, const char *key, const struct driver **ret,
                struct err *err)
{
        const struct driver *found = driver_lookup(rt, key);

        if (!found)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Environment driver \"%s\" is not registered in the environment "
                               "runtime yet.",
                               key);
        *ret = found;
        return 0;
}

bool driver_is_isolated(const struct runtime *rt, const char *key)
{
        const struct driver *driver = driver_lookup(rt, key);

        return driver && driver->isolated;
}

const char *driver_isolation(const struct runtime *rt, const char *key)
{
        const struct driver *driver = driver_lookup(rt, key);

        return driver ? driver->isolation : "not isolated";
}

bool driver_runs_on_host(const struct runtime *rt, const char *key)
{
        const struct driver *driver = driver_lookup(rt, key);

        return driver && driver->runs_on_host;
}

bool driver_can_find(const struct runtime *rt, const struct place *place)
{
        const struct driver *driver = driver_lookup(rt, place->driver);

        return driver && driver->list && (!driver->lists || driver->lists(place));
}

bool driver_is_dead(const struct runtime *rt, const struct place *place)
{
        const struct driver *driver = driver_lookup(rt, place->driver);

        return driver && driver->is_alive && driver->is_alive(rt, place) == LIFE_NO;
}

int driver_unsupported(const char *key, const char *what, struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE, "Environment driver \"%s\" does not support %s.",
                       key, what);
}
