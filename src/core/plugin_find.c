/* Finding what plugins provide. */
#include "core/plugin_internal.h"

#define KIND_SANDBOX "sandbox_provider"

struct search {
        struct op *op;
        struct runtime *rt;
        const char *driver_key; /* NULL: all */
        const char *kind;       /* NULL: any */
        struct plugin_driver *ret;
        bool found;
        int (*fn)(void *ctx, const struct plugin_driver *driver);
        void *ctx;
};

static void unref_json(void *v)
{
        json_decref(v);
}

/* The manifest of a row, kept by the arena; NULL when it is no JSON any more. */
static json_t *manifest_of(struct op *op, const struct plugin *p)
{
        json_t *manifest = NULL;

        if (json_parse(p->manifest, strlen(p->manifest), &manifest, NULL) < 0)
                return NULL;
        arena_defer(op->arena, unref_json, manifest);
        return manifest;
}

static struct plugin_driver describe(struct search *s, const struct plugin *p, json_t *manifest,
                                     json_t *driver)
{
        const char *kind = json_get_string(driver, "kind");

        return (struct plugin_driver){
                .plugin_id = p->id,
                .plugin_key = p->key,
                .manifest = manifest,
                .driver = driver,
                .is_sandbox = kind && streq(kind, KIND_SANDBOX),
                .is_running = plugin_host_is_running(s->rt->plugins->host, p->id),
        };
}

/* The first that runs, else the first. */
static int consider(void *ctx, const struct plugin *p)
{
        struct search *s = ctx;
        json_t *manifest, *driver;
        struct plugin_driver found;

        if (!plugin_status_runs(p->status) || (s->found && s->ret->is_running))
                return 0;
        manifest = manifest_of(s->op, p);
        driver = manifest ? manifest_driver(manifest, s->driver_key, s->kind) : NULL;
        if (!driver)
                return 0;
        found = describe(s, p, manifest, driver);
        if (!s->found || found.is_running)
                *s->ret = found;
        s->found = true;
        return 0;
}

static int search_rows(struct db *db, void *arg, struct err *err)
{
        struct search *s = arg;

        return plugins_list(db, NULL, s->op->arena, consider, s, err);
}

int plugin_find_provider(struct op *op, struct runtime *rt, const char *provider,
                         struct plugin_driver *ret, struct err *err)
{
        struct search s = {
                .op = op, .rt = rt, .driver_key = provider, .kind = KIND_SANDBOX, .ret = ret
        };
        int r = rt->plugins ? store_read(op, rt->store, search_rows, &s, err) : 0;

        if (r < 0)
                return r;
        return s.found ? 0
                       : err_set(err, ERR_NOT_FOUND,
                                 "No plugin provides the sandbox provider \"%s\"", provider);
}

int plugin_find_driver(struct op *op, struct runtime *rt, const char *id_or_key,
                       const char *driver_key, struct plugin_driver *ret, struct err *err)
{
        struct search s = { .op = op, .rt = rt, .driver_key = driver_key, .ret = ret };
        struct plugin p;
        int r = rt->plugins ? plugin_load_row(op, rt, id_or_key, &p, err)
                            : err_set(err, ERR_NOT_FOUND, "Plugin not found");

        if (r < 0)
                return r;
        (void)consider(&s, &p);
        return s.found ? 0
                       : err_set(err, ERR_NOT_FOUND, "Plugin \"%s\" has no driver \"%s\" in use",
                                 id_or_key, driver_key);
}

/* All drivers of a plugin that runs */

static int show_drivers(void *ctx, const struct plugin *p)
{
        struct search *s = ctx;
        json_t *manifest, *driver;
        size_t i;
        int r = 0;

        if (!plugin_status_runs(p->status) || !plugin_host_is_running(s->rt->plugins->host, p->id))
                return 0;
        manifest = manifest_of(s->op, p);
        json_array_foreach(json_object_get(manifest, "environmentDrivers"), i, driver)
        {
                struct plugin_driver found = describe(s, p, manifest, driver);

                if (r >= 0)
                        r = s->fn(s->ctx, &found);
        }
        return r;
}

static int show_rows(struct db *db, void *arg, struct err *err)
{
        struct search *s = arg;

        return plugins_list(db, NULL, s->op->arena, show_drivers, s, err);
}

int plugin_each_driver(struct op *op, struct runtime *rt,
                       int (*fn)(void *ctx, const struct plugin_driver *driver), void *ctx,
                       struct err *err)
{
        struct search s = { .op = op, .rt = rt, .fn = fn, .ctx = ctx };

        return rt->plugins ? store_read(op, rt->store, show_rows, &s, err) : 0;
}
