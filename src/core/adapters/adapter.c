/* Decides what the capabilities document says: adapters, providers, drivers, isolation. */
#include "core/adapters/adapter.h"

#include "core/adapters/adapter_descriptor.h"
#include "core/kinds/kind.h"
#include "core/plugins/plugin_registry.h"

#define PROVIDERS_MAX 256

bool adapter_is_known(const char *type)
{
        return adapter_find(type) != NULL;
}

/* Unlike in Paperclip, `process` too: its command is run wherever the lease is. */
bool adapter_is_remote_capable(const char *type)
{
        const struct adapter_descriptor *d = adapter_find(type);

        return d && d->is_remote;
}

static const char *word(bool supported)
{
        return supported ? "supported" : "unsupported";
}

static void write_drivers(struct jw *w, const struct runtime *rt, bool remote)
{
        jw_key(w, "drivers");
        jw_object(w);
        for (const struct kind *const *k = NULL; (k = kind_next_driver(rt, k));)
                jw_kstring(w, (*k)->driver,
                           word(kind_driver_takes_runs(rt, (*k)->driver) &&
                                (remote || (*k)->runs_on_host)));
        jw_object_end(w);
}

/* What plugins add, in the order in which they were installed. A built-in provider and the first
 * plugin win over later ones with the same key. */
struct plugin_providers {
        const struct runtime *rt;
        struct plugin_driver list[PROVIDERS_MAX];
        size_t n;
        struct plugin_driver drivers[PROVIDERS_MAX]; /* those that are not sandbox providers */
        size_t n_drivers;
};

static int add_provider(void *ctx, const struct plugin_driver *driver)
{
        struct plugin_providers *all = ctx;
        const char *key = json_get_string(driver->driver, "driverKey");

        if (!driver->is_sandbox) {
                if (all->n_drivers < PROVIDERS_MAX)
                        all->drivers[all->n_drivers++] = *driver;
                return 0;
        }
        if (all->n == PROVIDERS_MAX || kind_of_provider(all->rt, key))
                return 0;
        for (size_t i = 0; i < all->n; i++)
                if (streq(json_get_string(all->list[i].driver, "driverKey"), key))
                        return 0;
        all->list[all->n++] = *driver;
        return 0;
}

static void write_adapter(struct jw *w, const struct adapter_descriptor *d,
                          const struct plugin_providers *plugins)
{
        bool remote = d->is_remote;

        jw_object(w);
        jw_kstring(w, "adapterType", d->type);
        write_drivers(w, plugins->rt, remote);
        jw_key(w, "sandboxProviders");
        jw_object(w);
        for (const struct kind *const *k = plugins->rt->kinds; *k; k++)
                if ((*k)->provider)
                        jw_kstring(w, (*k)->provider, word(remote && (*k)->takes_runs));
        for (size_t i = 0; i < plugins->n; i++)
                jw_kstring(w, json_get_string(plugins->list[i].driver, "driverKey"), word(remote));
        jw_object_end(w);
        jw_object_end(w);
}

static void write_common(struct jw *w, bool runs, bool reuses, const char *name)
{
        json_t *none = json_array();

        jw_kstring(w, "status", word(runs));
        jw_kbool(w, "supportsSavedProbe", true);
        jw_kbool(w, "supportsUnsavedProbe", true);
        jw_kbool(w, "supportsRunExecution", runs);
        jw_kbool(w, "supportsReusableLeases", reuses);
        /* Berth sets nothing up by hand and captures no templates, whatever a plugin declares. */
        jw_kbool(w, "supportsInteractiveSetup", false);
        jw_kvalue(w, "interactiveSetupConnectionTypes", none);
        jw_kbool(w, "supportsTemplateCapture", false);
        jw_kbool(w, "supportsTemplateDelete", false);
        jw_kbool(w, "supportsSetupTokenLogin", false);
        jw_kstring(w, "displayName", name);
        json_decref(none);
}

static void write_schema(struct jw *w, const struct kind *kind)
{
        json_t *schema = kind->schema ? kind->schema(kind) : NULL;

        if (schema)
                jw_kvalue(w, "configSchema", schema);
        json_decref(schema);
}

static void write_provider(struct jw *w, const struct kind *kind)
{
        jw_key(w, kind->provider);
        jw_object(w);
        write_common(w, kind->takes_runs, true, kind->display_name);
        if (kind->description)
                jw_kstring(w, "description", kind->description);
        jw_kstring(w, "source", "builtin");
        write_schema(w, kind);
        jw_object_end(w);
}

/* As in Paperclip, a capability counts as present unless it is declared as missing. */
static bool reuses_leases(const json_t *driver)
{
        const json_t *nested = json_object_get(driver, "sandboxCapabilities");
        const json_t *said = json_object_get(nested, "reusableLeases");

        if (!said)
                said = json_object_get(driver, "supportsReusableLeases");
        return !json_is_false(said);
}

static void write_declared(struct jw *w, const struct plugin_driver *p)
{
        const char *description = json_get_string(p->driver, "description");

        if (description)
                jw_kstring(w, "description", description);
        jw_kstring(w, "source", "plugin");
        jw_kstring(w, "pluginKey", p->plugin_key);
        jw_kstring(w, "pluginId", p->plugin_id);
        jw_kvalue(w, "configSchema", json_object_get(p->driver, "configSchema"));
}

static void write_plugin_provider(struct jw *w, const struct plugin_driver *p)
{
        jw_key(w, json_get_string(p->driver, "driverKey"));
        jw_object(w);
        write_common(w, true, reuses_leases(p->driver), json_get_string(p->driver, "displayName"));
        write_declared(w, p);
        jw_object_end(w);
}

/* Berth's own: what environments of the driver `plugin` can be, and what their driverConfig is. */
static void write_plugin_drivers(struct jw *w, const struct plugin_providers *plugins)
{
        jw_key(w, "pluginDrivers");
        jw_array(w);
        for (size_t i = 0; i < plugins->n_drivers; i++) {
                const struct plugin_driver *p = &plugins->drivers[i];

                jw_object(w);
                jw_kstring(w, "driverKey", json_get_string(p->driver, "driverKey"));
                jw_kstring(w, "displayName", json_get_string(p->driver, "displayName"));
                write_declared(w, p);
                jw_object_end(w);
        }
        jw_array_end(w);
}

/* Berth's own: how far the places of each kind are kept apart. */
static void write_isolation(struct jw *w, const struct runtime *rt)
{
        jw_key(w, "isolation");
        jw_object(w);
        for (const struct kind *const *k = NULL; (k = kind_next_driver(rt, k));) {
                jw_key(w, (*k)->driver);
                jw_object(w);
                jw_kbool(w, "isolated", (*k)->isolated);
                jw_kstring(w, "isolation", (*k)->isolation);
                jw_object_end(w);
        }
        jw_object_end(w);
}

int adapter_write_capabilities(struct op *op, struct runtime *rt, struct buf *b, struct err *err)
{
        struct plugin_providers *plugins = arena_new(op->arena, struct plugin_providers);
        struct jw w;
        int r;

        plugins->rt = rt;
        r = plugin_each_driver(op, rt, add_provider, plugins, err);
        if (r < 0)
                return r;
        jw_init(&w, b);
        jw_object(&w);
        jw_key(&w, "adapters");
        jw_array(&w);
        for (size_t i = 0; adapter_at(i); i++)
                write_adapter(&w, adapter_at(i), plugins);
        jw_array_end(&w);
        write_drivers(&w, rt, true);
        write_isolation(&w, rt);
        jw_key(&w, "sandboxProviders");
        jw_object(&w);
        for (const struct kind *const *k = rt->kinds; *k; k++)
                if ((*k)->provider)
                        write_provider(&w, *k);
        for (size_t i = 0; i < plugins->n; i++)
                write_plugin_provider(&w, &plugins->list[i]);
        jw_object_end(&w);
        write_plugin_drivers(&w, plugins);
        jw_object_end(&w);
        return 0;
}
