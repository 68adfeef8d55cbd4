/* Upgrading. The new worker is started before the row names the new package, so a version that does
 * not start was never in use, and the old one runs on. A crash in between leaves the old one,
 * too. */
#include "base/fault.h"
#include "base/log.h"
#include "core/plugins/plugin_internal.h"

static json_t *parse_or_null(const char *text)
{
        json_t *v = NULL;

        return text && json_parse(text, strlen(text), &v, NULL) >= 0 ? v : NULL;
}

static const char *pending_install(struct arena *a, const struct plugin *p)
{
        CLEAN(json_decrefp) json_t *pending = parse_or_null(p->pending);

        return arena_strdup(a, json_get_string(pending, "installId"));
}

/* Start the version that `next` names, then write the row. When it does not start, the old one is
 * started again. */
static int switch_version(struct op *op, struct runtime *rt, const struct plugin *seen,
                          struct plugin *next, const char *install_id, struct err *err)
{
        CLEAN(err_done) struct err again = { 0 };
        struct op shield = op_shield(op, PLUGIN_SHIELD_MS);
        int r = plugin_start_worker(&shield, rt->plugins, next, false, err);

        next->status = PLUGIN_READY;
        if (r >= 0) {
                FAULT("registry.switch.before");
                r = plugin_commit(&shield, rt, seen, next, "plugin.upgraded", install_id, err);
                FAULT("registry.switch.after");
        }
        if (r >= 0)
                return 0;
        r = err_wrap(err, r == ERR_CONFLICT ? r : ERR_INVALID, "Upgrade failed");
        if (plugin_status_runs(seen->status) &&
            plugin_start_worker(&shield, rt->plugins, seen, true, &again) < 0)
                log_error("the former version of a plugin does not start any more",
                          LOG_S("plugin", seen->key), LOG_S("error", again.msg));
        return r;
}

/* A version that wants more rights waits until an administrator approves it; the present version
 * runs on. */
static int wait_for_approval(struct op *op, struct runtime *rt, const struct plugin *seen,
                             const struct plugin_fetched *f, json_t *added, const char *why,
                             struct plugin *next, struct err *err)
{
        CLEAN(json_decrefp) json_t *pending = NULL;
        struct plugin wanted = *seen;

        plugin_fill_row(op, f, &wanted);
        pending = json_pack("{s:s, s:s, s:s?, s:s?, s:s?, s:s, s:O, s:O}", "version",
                            wanted.version, "packageName", wanted.package_name, "packageVersion",
                            wanted.package_version, "packagePath", wanted.package_path, "installId",
                            wanted.install_id, "checksum", wanted.checksum, "addedCapabilities",
                            added, "manifest", f->package.manifest);
        *next = *seen;
        next->status = PLUGIN_UPGRADE_PENDING;
        next->pending = json_to_arena(op->arena, pending);
        next->last_error = why;
        FAULT("registry.pending.before");
        if (plugin_commit(op, rt, seen, next, "plugin.upgrade_pending", f->install_id, err) < 0)
                return err->code;
        FAULT("registry.pending.after");
        return 0;
}

static const char *say_added(struct arena *a, const struct plugin *seen, const json_t *added)
{
        CLEAN(buf_done) struct buf names = BUF_INIT;
        json_t *name;
        size_t i;

        json_array_foreach(added, i, name)
                buf_appendf(&names, "%s%s", i ? ", " : "", json_string_value(name));
        return arena_printf(a,
                            "Upgrade for \"%s\" introduces new capabilities that require approval: "
                            "%s",
                            seen->key, buf_str(&names));
}

struct key_check {
        const struct plugin *seen;
        const json_t *now, *next; /* manifests */
        struct err *err;
};

/* A plugin that was installed earlier would take the key from the plugin that has it now. */
static int check_keys_of(void *ctx, const struct plugin *other)
{
        struct key_check *k = ctx;
        CLEAN(json_decrefp) json_t *theirs = NULL;
        json_t *driver;
        size_t i;

        if (streq(other->id, k->seen->id))
                return 0;
        theirs = parse_or_null(other->manifest);
        json_array_foreach(json_object_get(k->next, "environmentDrivers"), i, driver)
        {
                const char *key = json_get_string(driver, "driverKey");

                if (manifest_driver(k->next, key, PLUGIN_KIND_SANDBOX) &&
                    !manifest_driver(k->now, key, PLUGIN_KIND_SANDBOX) &&
                    manifest_driver(theirs, key, PLUGIN_KIND_SANDBOX))
                        return err_set(k->err, ERR_CONFLICT,
                                       "The new version of \"%s\" declares the sandbox provider "
                                       "\"%s\", which is that of \"%s\". Uninstall one of them "
                                       "first.",
                                       k->seen->key, key, other->key);
        }
        return 0;
}

/* Take the fetched version into use, or let it wait for approval. */
static int take_over_version(struct op *op, struct runtime *rt, const struct plugin *seen,
                             const struct plugin_fetched *f, bool approved,
                             struct plugin_sink *sink, struct plugin *next, struct err *err)
{
        const char *found = json_get_string(f->package.manifest, "id");
        CLEAN(json_decrefp) json_t *now = parse_or_null(seen->manifest);
        CLEAN(json_decrefp) json_t *added = NULL;
        CLEAN(store_read_end) struct db *db = NULL;
        struct key_check keys = { seen, now, f->package.manifest, err };

        if (!streq(found, seen->key))
                return err_set(err, ERR_INVALID,
                               "Upgrade failed: new manifest ID '%s' does not match existing "
                               "plugin ID '%s'",
                               found, seen->key);
        int r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = plugins_list(db, NULL, op->arena, check_keys_of, &keys, err);
        store_read_end(&db);
        if (r < 0)
                return r;
        added = manifest_new_capabilities(now, f->package.manifest);
        if (json_array_size(added) > 0 && !approved) {
                const char *why = say_added(op->arena, seen, added);

                if (streq(seen->status, PLUGIN_READY))
                        return wait_for_approval(op, rt, seen, f, added, why, next, err);
                return err_set(err, ERR_CONFLICT,
                               "%s. It cannot wait while the status is '%s': approve it with the "
                               "request, or settle that first.",
                               why, seen->status);
        }
        *next = *seen;
        plugin_fill_row(op, f, next);
        plugin_say(sink, "starting the worker");
        return switch_version(op, rt, seen, next, f->install_id, err);
}

static int read_version(json_t *body, struct arena *a, struct plugin_source *source,
                        struct err *err)
{
        json_t *version = json_object_get(body, "version");

        if (version && !json_is_string(version))
                return err_set(err, ERR_INVALID, "version must be a string if provided");
        source->version = arena_strtrim(a, json_string_value(version));
        if (source->version && !package_version_is_valid(source->version))
                return err_set(err, ERR_INVALID, "version contains invalid characters");
        return 0;
}

static int upgrade_held(struct op *op, struct runtime *rt, const char *id, bool approved,
                        struct plugin_source *source, struct plugin_sink *sink, struct plugin *ret,
                        struct err *err)
{
        struct plugin_registry *reg = rt->plugins;
        struct plugin_fetched f = { 0 };
        struct plugin seen, next = { 0 };
        int r = plugin_load_row(op, rt, id, &seen, err);

        if (r >= 0 && !plugin_status_runs(seen.status) && !streq(seen.status, PLUGIN_ERROR))
                r = err_set(err, ERR_INVALID,
                            "Cannot upgrade plugin in status '%s'. Plugin must be in 'ready', "
                            "'error' or 'upgrade_pending' status to be upgraded.",
                            seen.status);
        if (r < 0)
                return r;
        source->is_local = seen.package_path != NULL;
        source->name = seen.package_path ? seen.package_path : seen.package_name;
        r = plugin_obtain(op, reg, source, sink, &f, err);
        if (r >= 0)
                r = take_over_version(op, rt, &seen, &f, approved, sink, &next, err);
        if (r < 0) {
                plugin_abandon(op, reg, f.install_id);
                return r;
        }
        if (streq(next.status, PLUGIN_READY)) {
                plugin_remove_package(op, reg, seen.install_id);
                plugin_remove_package(op, reg, pending_install(op->arena, &seen));
        }
        plugin_say(sink, next.last_error ? next.last_error : "ready");
        *ret = next;
        return 0;
}

int plugin_do_upgrade(struct op *op, struct runtime *rt, const char *id_or_key, json_t *body,
                      struct plugin_sink *sink, struct plugin *ret, struct err *err)
{
        struct plugin_source source = { 0 };
        struct plugin p;
        int r = read_version(body, op->arena, &source, err);

        if (r >= 0)
                r = plugin_load_row(op, rt, id_or_key, &p, err);
        if (r >= 0)
                r = plugin_hold(op, rt->plugins, p.key, err);
        if (r < 0)
                return r;
        r = upgrade_held(op, rt, p.id, json_is_true(json_object_get(body, "approve")), &source,
                         sink, ret, err);
        plugin_let_go(rt->plugins, p.key);
        return r;
}

int plugin_upgrade(struct op *op, struct runtime *rt, const char *id_or_key, json_t *body,
                   struct plugin *ret, struct err *err)
{
        struct plugin_sink none = { rt->plugins, NULL };
        int r = access_admin(op->actor, "Instance admin access required", err);

        return r < 0 ? r : plugin_do_upgrade(op, rt, id_or_key, body, &none, ret, err);
}

/* Approving */

/* The row that the waiting version would have. */
static int read_pending(struct op *op, const struct plugin *seen, struct plugin *ret,
                        struct err *err)
{
        struct arena *a = op->arena;
        CLEAN(json_decrefp) json_t *pending = parse_or_null(seen->pending);
        const json_t *manifest = json_get_object(pending, "manifest");

        if (!manifest)
                return err_set(err, ERR_CORRUPT, "the waiting upgrade of plugin %s is not readable",
                               seen->key);
        *ret = *seen;
        ret->version = arena_strdup(a, json_get_string(pending, "version"));
        ret->package_name = arena_strdup(a, json_get_string(pending, "packageName"));
        ret->package_version = arena_strdup(a, json_get_string(pending, "packageVersion"));
        ret->package_path = arena_strdup(a, json_get_string(pending, "packagePath"));
        ret->install_id = arena_strdup(a, json_get_string(pending, "installId"));
        ret->checksum = arena_strdup(a, json_get_string(pending, "checksum"));
        ret->categories = json_to_arena(a, json_object_get(manifest, "categories"));
        ret->manifest = json_to_arena(a, manifest);
        ret->pending = NULL;
        ret->last_error = NULL;
        return 0;
}

int plugin_settle(struct op *op, struct runtime *rt, const struct plugin *seen, bool approve,
                  struct plugin *ret, struct err *err)
{
        struct plugin next = *seen;
        const char *gone = pending_install(op->arena, seen);
        int r;

        if (approve) {
                gone = seen->install_id;
                r = read_pending(op, seen, &next, err);
                if (r >= 0)
                        r = switch_version(op, rt, seen, &next, NULL, err);
        } else {
                next.status = PLUGIN_READY;
                next.pending = NULL;
                next.last_error = NULL;
                r = plugin_commit(op, rt, seen, &next, "plugin.upgrade_rejected", NULL, err);
        }
        if (r < 0)
                return r;
        plugin_remove_package(op, rt->plugins, gone);
        *ret = next;
        return 0;
}
