/* Installs a plugin: fetches it, records it, loads it. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/installed.h"
#include "core/plugins/plugin_internal.h"

#define OWN_PREFIX "berth:" /* before the name of a provider that Berth brings along */

/* The request */

static int check_install_body(json_t *body, struct arena *a, struct plugin_source *ret,
                              struct err *err)
{
        json_t *name = json_object_get(body, "packageName");
        json_t *version = json_object_get(body, "version");
        json_t *is_local = json_object_get(body, "isLocalPath");

        if (!json_is_string(name))
                return err_set(err, ERR_INVALID, "packageName is required and must be a string");
        if (version && !json_is_string(version))
                return err_set(err, ERR_INVALID, "version must be a string if provided");
        if (is_local && !json_is_boolean(is_local))
                return err_set(err, ERR_INVALID, "isLocalPath must be a boolean if provided");
        ret->name = arena_strtrim(a, json_string_value(name));
        ret->version = arena_strtrim(a, json_string_value(version));
        ret->is_local = json_is_true(is_local);
        if (!ret->name)
                return err_set(err, ERR_INVALID, "packageName cannot be empty");
        if (!ret->is_local && str_starts(ret->name, OWN_PREFIX)) {
                const char *own = installed_provider(a, ret->name + strlen(OWN_PREFIX));

                if (!own)
                        return err_set(err, ERR_INVALID,
                                       "Berth brings no provider \"%.100s\" along "
                                       "(docs/providers.md lists them).",
                                       ret->name + strlen(OWN_PREFIX));
                ret->name = own;
                ret->is_local = true;
        }
        if (!ret->is_local && !package_name_is_valid(ret->name))
                return err_set(err, ERR_INVALID, "packageName contains invalid characters");
        if (!ret->is_local && ret->version && !package_version_is_valid(ret->version))
                return err_set(err, ERR_INVALID, "version contains invalid characters");
        return 0;
}

/* Install */

struct record_request {
        struct op *op;
        const struct plugin_fetched *fetched;
        struct plugin *row;
};

/* The row is new, or that of a plugin that was uninstalled. */
static int record_install(struct db *db, void *arg, struct err *err)
{
        struct record_request *q = arg;
        struct plugin old, *row = q->row;
        int r = plugins_get(db, row->key, q->op->arena, &old, err);

        row->status = PLUGIN_INSTALLED;
        row->installed_at = row->updated_at = clock_now_us();
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                r = plugins_insert(db, row, err);
        } else if (r >= 0) {
                if (!streq(old.status, PLUGIN_UNINSTALLED))
                        return err_set(err, ERR_CONFLICT, "Plugin already installed: %s", row->key);
                row->id = old.id;
                r = plugins_update(db, row, old.updated_at, err);
                if (r >= 0) /* keys that other plugins have meanwhile stay theirs */
                        r = plugins_move_last(db, row->id, err);
        }
        if (r >= 0 && q->fetched->install_id)
                r = plugin_installs_delete(db, q->fetched->install_id, err);
        return r < 0 ? r : plugin_audit(db, q->op, row, "plugin.installed", err);
}

/* From here on the plugin is installed, whether the caller still waits or not. */
static int load_installed(struct op *op, struct runtime *rt, struct plugin_sink *sink,
                          struct plugin *row, struct err *err)
{
        struct op shield = op_shield(op, PLUGIN_SHIELD_MS);

        int r = plugin_load_row(&shield, rt, row->id, row, err); /* its place in the order, too */
        if (r < 0)
                return r;
        struct plugin ready = *row;
        ready.status = PLUGIN_READY;
        FAULT("registry.load.before");
        r = plugin_commit(&shield, rt, row, &ready, NULL, NULL, err);
        FAULT("registry.load.after");
        if (r < 0)
                return r;
        *row = ready;
        plugin_say(sink, "starting the worker");
        r = plugin_activate(&shield, rt, row, false, err);
        if (r >= 0)
                plugin_say(sink, row->last_error ? row->last_error : "ready");
        return r;
}

int plugin_do_install(struct op *op, struct runtime *rt, json_t *body, struct plugin_sink *sink,
                      struct plugin *ret, struct err *err)
{
        struct plugin_registry *reg = rt->plugins;
        struct plugin_fetched f = { 0 };
        struct uuid id = uuid_new();
        struct plugin row = { .id = id.s };
        struct record_request q = { op, &f, &row };
        struct plugin_source source;
        int r = check_install_body(body, op->arena, &source, err);

        if (r < 0)
                return r;
        r = plugin_obtain(op, reg, &source, sink, &f, err);
        if (r < 0)
                goto fail;
        plugin_fill_row(op, &f, &row);
        r = plugin_hold(op, reg, row.key, err);
        if (r < 0)
                goto fail;
        FAULT("registry.record.before");
        r = store_write(op, rt->store, record_install, &q, err);
        FAULT("registry.record.after");
        if (r >= 0)
                r = load_installed(op, rt, sink, &row, err);
        else
                plugin_abandon(op, reg, f.install_id);
        plugin_let_go(reg, json_get_string(f.package.manifest, "id"));
        if (r >= 0)
                *ret = row;
        return r;

fail:
        plugin_abandon(op, reg, f.install_id);
        return r;
}

int plugin_install(struct op *op, struct runtime *rt, json_t *body, struct plugin *ret,
                   struct err *err)
{
        struct plugin_sink none = { rt->plugins, NULL };
        int r = access_admin(op->actor, "Instance admin access required", err);

        return r < 0 ? r : plugin_do_install(op, rt, body, &none, ret, err);
}
