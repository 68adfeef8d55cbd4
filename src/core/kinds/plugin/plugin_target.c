/* Finding the plugin that serves a driver key, with the texts of Paperclip. */
#include "base/clock.h"
#include "core/kinds/plugin/plugin_place.h"
#include "core/plugins/plugin_registry.h"
#include "core/plugins/plugin_state.h"
#include "plugin/manifest.h"

#define READY_WAIT_MS 5000
#define READY_POLL_MS 100

/* One search over the rows, in install order. */
struct search {
        struct op *op;
        const char *driver_key;
        struct plugin_target *ret;
        bool settled; /* whose key it is */
};

static bool is_running(const struct runtime *rt, const char *plugin_id)
{
        return rt->plugins && plugin_host_is_running(plugin_registry_host(rt->plugins), plugin_id);
}

/* The target that a row describes; false when it declares no such driver. */
static bool describe_target(struct op *op, const struct plugin *row, const char *driver_key,
                            const char *kind, struct plugin_target *ret)
{
        json_t *manifest = json_from_text(op->arena, row->manifest);
        json_t *driver = manifest ? manifest_driver(manifest, driver_key, kind) : NULL;

        if (!driver)
                return false;
        *ret = (struct plugin_target){
                .plugin_id = row->id,
                .plugin_key = row->key,
                .driver_key = driver_key,
                .status = row->status,
                .driver = driver,
                .schema = json_get_object(driver, "configSchema"),
                .is_sandbox = kind != NULL,
        };
        return true;
}

/* A key belongs to the first plugin that declares it, as long as that plugin is installed, whether
 * it runs or not. Otherwise another plugin would get the environments of its kind, with their
 * secrets, when it is stopped. */
static int consider_plugin(void *ctx, const struct plugin *row)
{
        struct search *s = ctx;

        if (s->settled || !describe_target(s->op, row, s->driver_key, PLUGIN_KIND_SANDBOX, s->ret))
                return 0;
        s->settled = true;
        return 0;
}

static int find_provider(struct op *op, struct runtime *rt, const char *provider,
                         struct plugin_target *ret, struct err *err)
{
        struct search s = { .op = op, .driver_key = provider, .ret = ret };
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = plugins_list(db, NULL, op->arena, consider_plugin, &s, err);
        return r < 0 ? r : s.settled;
}

/* Wait until the worker runs: as long as it takes for one that starts with the daemon, for a while
 * for one that died a moment ago. */
static int wait_for_worker(struct op *op, struct runtime *rt, const char *plugin_id, int64_t ms,
                           struct err *err)
{
        int64_t until = clock_mono_ms() + ms;

        while (!is_running(rt, plugin_id) &&
               ((rt->plugins && plugin_registry_is_starting(rt->plugins, plugin_id)) ||
                clock_mono_ms() < until)) {
                int r = op_wait_fd(op, -1, 0, READY_POLL_MS, err);

                if (r < 0)
                        return r;
        }
        return 0;
}

int plugin_running_provider(struct op *op, struct runtime *rt, const char *provider,
                            struct plugin_target *ret, struct err *err)
{
        int r = rt->plugins ? find_provider(op, rt, provider, ret, err) : 0;

        if (r <= 0)
                return r;
        r = wait_for_worker(op, rt, ret->plugin_id, 0, err);
        return r < 0 ? r : plugin_status_runs(ret->status) && is_running(rt, ret->plugin_id);
}

static int refuse_unready(const char *provider, const struct plugin_target *t, struct err *err)
{
        if (!plugin_status_runs(t->status))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Sandbox provider \"%s\" is installed via plugin \"%s\", but that "
                               "plugin is currently %s.",
                               provider, t->plugin_key, t->status);
        (void)err_set(err, ERR_UNPROCESSABLE,
                      "Sandbox provider \"%s\" is installed via plugin \"%s\", but its worker is "
                      "not running.",
                      provider, t->plugin_key);
        err_mark_transient(err); /* it is being started again */
        return ERR_UNPROCESSABLE;
}

int plugin_await_provider(struct op *op, struct runtime *rt, const char *provider,
                          struct plugin_target *ret, struct err *err)
{
        int r = plugin_running_provider(op, rt, provider, ret, err);

        if (r != 0)
                return MIN(r, 0);
        r = find_provider(op, rt, provider, ret, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(
                        err, ERR_UNPROCESSABLE,
                        "Sandbox provider \"%s\" is not registered as a built-in provider and no "
                        "matching plugin is available.",
                        provider);
        if (!rt->plugins)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Sandbox provider \"%s\" is installed, but sandbox plugin workers "
                               "are unavailable in this server process.",
                               provider);
        if (!plugin_status_runs(ret->status))
                return refuse_unready(provider, ret, err);
        r = wait_for_worker(op, rt, ret->plugin_id, READY_WAIT_MS, err);
        if (r >= 0 && !is_running(rt, ret->plugin_id))
                r = refuse_unready(provider, ret, err);
        return r;
}

int plugin_ready_driver(struct op *op, struct runtime *rt, const char *id_or_key,
                        const char *plugin_key, const char *driver_key, struct plugin_target *ret,
                        struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct plugin row;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = plugins_get(db, id_or_key, op->arena, &row, err);
        store_read_end(&db);
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        if (r < 0 || !plugin_status_runs(row.status))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Plugin environment driver \"%s:%s\" is not ready.", plugin_key,
                               driver_key);
        if (!describe_target(op, &row, driver_key, NULL, ret))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Plugin \"%s\" does not declare environment driver \"%s\".",
                               plugin_key, driver_key);
        r = wait_for_worker(op, rt, ret->plugin_id, READY_WAIT_MS, err);
        if (r < 0)
                return r;
        if (!is_running(rt, ret->plugin_id)) {
                (void)err_set(err, ERR_UNPROCESSABLE,
                              "Plugin environment driver \"%s:%s\" has no running worker.",
                              plugin_key, driver_key);
                err_mark_transient(err);
                return ERR_UNPROCESSABLE;
        }
        return 0;
}
