/* Finds the drivers that plugins provide. */
#include "core/plugins/plugin_internal.h"

#define KIND_SANDBOX "sandbox_provider"

struct search {
        struct op *op;
        struct runtime *rt;
        int (*fn)(void *ctx, const struct plugin_driver *driver);
        void *ctx;
};

static void unref_json(void *v)
{
        json_decref(v);
}

/* The manifest of a row, kept by the arena; NULL when it is not valid JSON any more. */
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
