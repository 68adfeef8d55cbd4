/* Enabling, disabling, approving and uninstalling an installed plugin, by an administrator. The row
 * changes first, then the worker: after a crash in between the row decides. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/plugins/plugin_internal.h"
#include "store/places.h"

typedef int (*change_fn)(struct op *op, struct runtime *rt, const struct plugin *seen, void *arg,
                         struct plugin *ret, struct err *err);

/* Apply an administrator's change to the plugin's current row, once this change holds the
 * plugin. */
static int change_held(struct op *op, struct runtime *rt, const char *id_or_key, change_fn fn,
                       void *arg, struct plugin *ret, struct err *err)
{
        struct plugin seen;
        int r = access_admin(op->actor, "Instance admin access required", err);

        if (r >= 0)
                r = plugin_load_row(op, rt, id_or_key, &seen, err);
        if (r < 0)
                return r;
        const char *key = seen.key;
        r = plugin_hold(op, rt->plugins, key, err);
        if (r < 0)
                return r;
        r = plugin_load_row(op, rt, seen.id, &seen, err);
        if (r >= 0)
                r = fn(op, rt, &seen, arg, ret, err);
        plugin_let_go(rt->plugins, key);
        return r;
}

/* Enable */

static int enable_held(struct op *op, struct runtime *rt, const struct plugin *seen, void *arg,
                       struct plugin *ret, struct err *err)
{
        struct op shield = op_shield(op, PLUGIN_SHIELD_MS);
        struct plugin next = *seen;

        (void)arg;
        if (streq(seen->status, PLUGIN_UPGRADE_PENDING))
                return plugin_settle(op, rt, seen, true, ret, err);
        if (!streq(seen->status, PLUGIN_DISABLED) && !streq(seen->status, PLUGIN_ERROR))
                return err_set(err, ERR_INVALID,
                               "Cannot enable plugin in status '%s'. Plugin must be in "
                               "'disabled', 'error', or 'upgrade_pending' status to be enabled.",
                               seen->status);
        next.status = PLUGIN_READY;
        next.last_error = NULL;
        FAULT("registry.enable.before");
        int r = plugin_commit(op, rt, seen, &next, "plugin.enabled", NULL, err);
        FAULT("registry.enable.after");
        if (r >= 0)
                r = plugin_activate(&shield, rt, &next, false, err);
        if (r >= 0)
                *ret = next;
        return r;
}

int plugin_enable(struct op *op, struct runtime *rt, const char *id_or_key, struct plugin *ret,
                  struct err *err)
{
        return change_held(op, rt, id_or_key, enable_held, NULL, ret, err);
}

/* Approve */

static int approve_held(struct op *op, struct runtime *rt, const struct plugin *seen, void *arg,
                        struct plugin *ret, struct err *err)
{
        bool reject = *(bool *)arg;

        if (!streq(seen->status, PLUGIN_UPGRADE_PENDING))
                return err_set(err, ERR_INVALID,
                               "No upgrade of plugin %s waits for approval (current status: %s)",
                               seen->key, seen->status);
        return plugin_settle(op, rt, seen, !reject, ret, err);
}

int plugin_approve(struct op *op, struct runtime *rt, const char *id_or_key, bool reject,
                   struct plugin *ret, struct err *err)
{
        return change_held(op, rt, id_or_key, approve_held, &reject, ret, err);
}

/* Disable */

static int stop_worker(struct op *op, struct runtime *rt, const struct plugin *p, struct err *err)
{
        struct op shield = op_shield(op, PLUGIN_SHIELD_MS);

        FAULT("registry.stop.before");
        int r = plugin_host_stop(&shield, rt->plugins->host, p->id, err);
        FAULT("registry.stop.after");
        return r;
}

static int disable_held(struct op *op, struct runtime *rt, const struct plugin *seen, void *arg,
                        struct plugin *ret, struct err *err)
{
        struct plugin next = *seen;

        if (!streq(seen->status, PLUGIN_READY))
                return err_set(err, ERR_INVALID,
                               "Cannot disable plugin in status '%s'. Plugin must be in 'ready' "
                               "status to be disabled.",
                               seen->status);
        next.status = PLUGIN_DISABLED;
        next.last_error = arg;
        FAULT("registry.disable.before");
        int r = plugin_commit(op, rt, seen, &next, "plugin.disabled", NULL, err);
        FAULT("registry.disable.after");
        if (r >= 0)
                r = stop_worker(op, rt, &next, err);
        if (r >= 0)
                *ret = next;
        return r;
}

int plugin_disable(struct op *op, struct runtime *rt, const char *id_or_key, const char *reason,
                   struct plugin *ret, struct err *err)
{
        return change_held(op, rt, id_or_key, disable_held, (void *)reason, ret, err);
}

/* Uninstall */

struct living {
        const json_t *manifest;
        int64_t count;
};

static int count_living(void *ctx, const struct place *place)
{
        struct living *l = ctx;

        if (place->provider && manifest_driver(l->manifest, place->provider, NULL))
                l->count++;
        return 0;
}

struct purge_request {
        struct op *op;
        const struct plugin *seen;
};

/* Without the row, places that the provider still holds could never be given up. */
static int purge_row(struct db *db, void *arg, struct err *err)
{
        struct purge_request *q = arg;
        CLEAN(json_decrefp) json_t *manifest = NULL;
        struct living living = { 0 };
        struct plugin now;
        int r = plugins_get(db, q->seen->id, q->op->arena, &now, err);

        if (r < 0)
                return r;
        (void)json_parse(now.manifest, strlen(now.manifest), &manifest, NULL);
        living.manifest = manifest;
        r = places_living(db, NULL, q->op->arena, count_living, &living, err);
        if (r < 0)
                return r;
        if (living.count > 0)
                return err_set(err, ERR_CONFLICT,
                               "Plugin %s still has %lld living places; release their leases "
                               "before it is purged (see GET /api/leaks)",
                               now.key, (long long)living.count);
        r = plugins_delete(db, now.id, err);
        return r < 0 ? r : plugin_audit(db, q->op, &now, "plugin.uninstalled", err);
}

/* Remove the worker and the files, once the row does not want them any more. Remaining files are
 * swept at the next start. */
static int clear_away(struct op *op, struct runtime *rt, const struct plugin *seen, bool all,
                      struct err *err)
{
        struct op shield = op_shield(op, PLUGIN_SHIELD_MS);
        CLEAN(json_decrefp) json_t *pending = NULL;
        int r = stop_worker(op, rt, seen, err);

        plugin_remove_package(op, rt->plugins, seen->install_id);
        if (seen->pending && json_parse(seen->pending, strlen(seen->pending), &pending, NULL) >= 0)
                plugin_remove_package(op, rt->plugins, json_get_string(pending, "installId"));
        plugin_log_forget(rt->plugins, seen->key);
        if (all)
                (void)tree_remove(
                        &shield,
                        arena_printf(op->arena, "%s/%s", rt->plugins->private_dir, seen->id), NULL);
        (void)tree_remove(
                &shield, arena_printf(op->arena, "%s/%s", rt->plugins->copies_dir, seen->id), NULL);
        return r;
}

static int uninstall_held(struct op *op, struct runtime *rt, const struct plugin *seen, void *arg,
                          struct plugin *ret, struct err *err)
{
        bool all = *(bool *)arg;
        struct plugin next = *seen;
        int r;

        if (!all && streq(seen->status, PLUGIN_UNINSTALLED))
                return err_set(err, ERR_INVALID,
                               "Plugin %s is already uninstalled. Use removeData=true to "
                               "permanently delete it.",
                               seen->key);
        if (all) {
                FAULT("registry.purge.before");
                r = store_write(op, rt->store, purge_row, &(struct purge_request){ op, seen }, err);
                FAULT("registry.purge.after");
        } else {
                next.status = PLUGIN_UNINSTALLED;
                next.install_id = next.pending = next.last_error = NULL;
                FAULT("registry.uninstall.before");
                r = plugin_commit(op, rt, seen, &next, "plugin.uninstalled", NULL, err);
                FAULT("registry.uninstall.after");
        }
        if (r >= 0)
                r = clear_away(op, rt, seen, all, err);
        if (r >= 0)
                *ret = next;
        return r;
}

int plugin_uninstall(struct op *op, struct runtime *rt, const char *id_or_key, bool purge_all,
                     struct plugin *ret, struct err *err)
{
        return change_held(op, rt, id_or_key, uninstall_held, &purge_all, ret, err);
}
