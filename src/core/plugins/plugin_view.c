/* Reading plugins: the rows, the drivers that they provide, and their health. */
#include "base/clock.h"
#include "core/plugins/plugin_internal.h"

json_t *plugin_manifest(struct op *op, const struct plugin *p)
{
        json_t *manifest = NULL;

        if (json_parse(p->manifest, strlen(p->manifest), &manifest, NULL) < 0)
                return NULL;
        return json_keep(op->arena, manifest);
}

const char *plugin_shown_error(const struct op *op, const struct plugin *p)
{
        return !p->last_error || op->actor->is_instance_admin
                       ? p->last_error
                       : "The plugin failed; an instance admin sees why.";
}

int plugin_list(struct op *op, struct runtime *rt, const char *status, plugin_fn fn, void *ctx,
                struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const char *const *known = plugin_statuses;
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        while (status && *known && !streq(*known, status))
                known++;
        if (!*known)
                return err_set(err, ERR_INVALID,
                               "Invalid status '%s'. Must be one of: installed, ready, disabled, "
                               "error, upgrade_pending, uninstalled",
                               status);
        r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = access_board_org(db, op->actor, err);
        return r < 0 ? r : plugins_list(db, status, op->arena, fn, ctx, err);
}

int plugin_get(struct op *op, struct runtime *rt, const char *id_or_key, struct plugin *ret,
               struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = access_board_org(db, op->actor, err);
        return r < 0 ? r : plugins_get(db, id_or_key, op->arena, ret, err);
}

int plugin_load_row(struct op *op, struct runtime *rt, const char *id_or_key, struct plugin *ret,
                    struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : plugins_get(db, id_or_key, op->arena, ret, err);
}

/* Drivers */

struct driver_search {
        struct op *op;
        struct plugin_host *host;
        int (*fn)(void *ctx, const struct plugin_driver *driver);
        void *ctx;
};

static int show_drivers(void *ctx, const struct plugin *p)
{
        struct driver_search *s = ctx;
        json_t *manifest, *driver;
        size_t i;
        int r = 0;

        if (!plugin_status_runs(p->status) || !plugin_host_is_running(s->host, p->id))
                return 0;
        manifest = plugin_manifest(s->op, p);
        json_array_foreach(json_object_get(manifest, "environmentDrivers"), i, driver)
        {
                const char *kind = json_get_string(driver, "kind");
                struct plugin_driver found = {
                        .plugin_id = p->id,
                        .plugin_key = p->key,
                        .manifest = manifest,
                        .driver = driver,
                        .is_sandbox = kind && streq(kind, PLUGIN_KIND_SANDBOX),
                        .is_running = plugin_host_is_running(s->host, p->id),
                };

                if (r >= 0)
                        r = s->fn(s->ctx, &found);
        }
        return r;
}

int plugin_each_driver(struct op *op, struct runtime *rt,
                       int (*fn)(void *ctx, const struct plugin_driver *driver), void *ctx,
                       struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;

        if (!rt->plugins)
                return 0;
        int r = store_read_begin(op, rt->store, &db, err);
        return r < 0 ? r
                     : plugins_list(db, NULL, op->arena, show_drivers,
                                    &(struct driver_search){ op, rt->plugins->host, fn, ctx }, err);
}

/* Health */

bool plugin_supports_config_test(struct runtime *rt, const struct plugin *p)
{
        return rt->plugins && plugin_host_supports(rt->plugins->host, p->id, "validateConfig");
}

static void add_check(struct plugin_health *h, const char *name, bool passed, const char *message)
{
        h->checks[h->n_checks++] = (struct plugin_health_check){ name, passed, message };
        h->is_good = h->is_good && passed;
}

int plugin_check_health(struct op *op, struct runtime *rt, const char *id_or_key,
                        struct plugin_health *ret, struct err *err)
{
        struct plugin *p = &ret->plugin;

        *ret = (struct plugin_health){ .is_good = true };
        int r = plugin_get(op, rt, id_or_key, p, err);
        if (r < 0)
                return r;
        bool runs = plugin_status_runs(p->status);
        bool is_manifest = json_get_string(plugin_manifest(op, p), "id") != NULL;
        ret->has_worker = plugin_host_view(rt->plugins->host, p->id, &ret->worker);
        add_check(ret, "registry", true, "Plugin found in registry");
        add_check(ret, "manifest", is_manifest,
                  is_manifest ? "Manifest is valid" : "Manifest is invalid or missing");
        add_check(ret, "status", runs, arena_printf(op->arena, "Current status: %s", p->status));
        if (runs) {
                const char *state =
                        ret->has_worker ? worker_state_name(ret->worker.state) : "stopped";

                add_check(ret, "worker", streq(state, "running"),
                          arena_printf(op->arena, "Worker is %s", state));
        }
        p->last_error = plugin_shown_error(op, p);
        if (p->last_error && !runs)
                add_check(ret, "error_state", false, p->last_error);
        return 0;
}
