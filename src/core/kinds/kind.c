/* Finding the kind of something: the only file that compares names of drivers and providers. */
#include "core/kinds/kind.h"

#include "base/arena.h"
#include "rt/op.h"

const struct kind *kind_find(const struct runtime *rt, const char *driver, const char *provider)
{
        const struct kind *any = NULL;

        for (const struct kind *const *k = rt->kinds; driver && *k; k++) {
                if (!streq((*k)->driver, driver))
                        continue;
                if (provider && (*k)->provider ? streq((*k)->provider, provider)
                                               : !provider && (*k)->is_unnamed)
                        return *k;
                if (!(*k)->provider)
                        any = *k;
        }
        return any;
}

const struct kind *kind_of_config(const struct runtime *rt, const char *driver,
                                  const json_t *config)
{
        struct arena arena;

        arena_init(&arena);
        const struct kind *found =
                kind_find(rt, driver, arena_strtrim(&arena, json_get_string(config, "provider")));
        arena_done(&arena);
        return found;
}

const struct kind *kind_of_environment(const struct runtime *rt, const struct environment *env)
{
        CLEAN(json_decrefp) json_t *config = NULL;
        const struct kind *only = NULL;
        size_t n = 0;

        for (const struct kind *const *k = rt->kinds; *k; k++)
                if (streq((*k)->driver, env->driver)) {
                        only = *k;
                        n++;
                }
        if (n == 0 || (n == 1 && !only->provider))
                return only; /* whatever the configuration says */
        (void)json_parse(env->config, strlen(env->config), &config, NULL);
        return kind_of_config(rt, env->driver, config);
}

const struct kind *kind_of_place(const struct runtime *rt, const struct place *place)
{
        return kind_find(rt, place->driver, place->provider);
}

const struct kind *kind_of_driver(const struct runtime *rt, const char *driver)
{
        return kind_find(rt, driver, NULL);
}

const struct kind *kind_of_provider(const struct runtime *rt, const char *provider)
{
        for (const struct kind *const *k = rt->kinds; *k; k++)
                if ((*k)->provider && streq((*k)->provider, provider))
                        return *k;
        return NULL;
}

int kind_required(const struct kind *kind, const char *driver, struct err *err)
{
        if (kind)
                return 0;
        return err_set(err, ERR_UNPROCESSABLE,
                       "Environment driver \"%s\" is not registered in the environment "
                       "runtime yet.",
                       driver);
}

int kind_unsupported(const struct kind *kind, const char *what, struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE, "Environment driver \"%s\" does not support %s.",
                       kind->driver, what);
}

static bool is_first_of_driver(const struct runtime *rt, const struct kind *const *at)
{
        for (const struct kind *const *k = rt->kinds; k < at; k++)
                if (streq((*k)->driver, (*at)->driver))
                        return false;
        return true;
}

const struct kind *const *kind_next_driver(const struct runtime *rt, const struct kind *const *at)
{
        at = at ? at + 1 : rt->kinds;
        while (*at && !is_first_of_driver(rt, at))
                at++;
        return *at ? at : NULL;
}

const char *const *kind_drivers(const struct runtime *rt, struct arena *arena)
{
        const struct kind *const *k = NULL;
        const char **list;
        size_t n = 0;

        while ((k = kind_next_driver(rt, k)))
                n++;
        list = arena_alloc(arena, (n + 1) * sizeof(*list));
        for (n = 0; (k = kind_next_driver(rt, k)); n++)
                list[n] = (*k)->driver;
        list[n] = NULL;
        return list;
}

bool kind_driver_takes_runs(const struct runtime *rt, const char *driver)
{
        for (const struct kind *const *k = rt->kinds; driver && *k; k++)
                if ((*k)->takes_runs && streq((*k)->driver, driver))
                        return true;
        return false;
}

/* Configuration */

int kind_normalize(const struct runtime *rt, const char *driver, json_t *config,
                   enum config_form form, json_t **ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *empty = json_is_object(config) ? NULL : json_object();
        json_t *given = empty ? empty : config;
        const struct kind *kind = kind_of_config(rt, driver, given);

        if (!kind)
                return err_set(err, ERR_UNPROCESSABLE, "Unsupported environment driver \"%s\".",
                               driver);
        return kind->normalize(kind, given, form, ret, err);
}

int kind_config(struct op *op, const struct kind *kind, const struct environment *env, json_t **ret,
                struct err *err)
{
        CLEAN(json_decrefp) json_t *raw = NULL;
        int r = json_parse(env->config, strlen(env->config), &raw, err);

        if (r < 0)
                return err_wrap(err, ERR_CORRUPT, "configuration of environment %s", env->id);
        r = kind->normalize(kind, raw, CONFIG_STORED, ret, err);
        if (r >= 0)
                (void)json_keep(op->arena, *ret);
        return r;
}

int kind_place_config(struct op *op, const struct place *place, json_t **ret, struct err *err)
{
        int r = json_parse(place->config, strlen(place->config), ret, err);

        if (r < 0)
                return err_wrap(err, ERR_CORRUPT, "configuration of place %s", place->id);
        (void)json_keep(op->arena, *ret);
        return 0;
}

size_t kind_n_secrets(const struct kind *kind)
{
        size_t n = 0;

        while (kind->secrets && kind->secrets[n].member)
                n++;
        return n;
}

bool kind_is_key(const char *s)
{
        for (const char *p = s; *p; p++) {
                bool alnum = (*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9');

                if (!alnum && (p == s || (*p != '.' && *p != '_' && *p != '-')))
                        return false;
        }
        return *s != '\0';
}

/* What the kinds of a driver have in common */

bool kind_is_isolated(const struct runtime *rt, const struct environment *env)
{
        const struct kind *kind = kind_of_environment(rt, env);

        return kind && kind->isolated;
}

const char *kind_isolation(const struct runtime *rt, const struct environment *env)
{
        const struct kind *kind = kind_of_environment(rt, env);

        return kind ? kind->isolation : "not isolated";
}

bool kind_runs_on_host(const struct runtime *rt, const char *driver)
{
        const struct kind *kind = kind_of_driver(rt, driver);

        return kind && kind->runs_on_host;
}

/* Places */

bool kind_matches(const struct kind *kind, const char *recorded, const char *wanted)
{
        return kind->matches && kind->matches(recorded, wanted);
}

bool kind_can_find(const struct runtime *rt, const struct place *place)
{
        const struct kind *kind = kind_of_place(rt, place);

        return kind && kind->list && (!kind->can_list || kind->can_list(rt, place));
}

bool kind_is_dead(const struct runtime *rt, const struct place *place)
{
        const struct kind *kind = kind_of_place(rt, place);

        return kind && kind->is_alive && kind->is_alive(rt, place) == LIFE_NO;
}
