/* The configuration of a plugin as a whole, as opposed to those of the environments it drives. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "codec/jsonschema.h"
#include "core/plugins/plugin_internal.h"

#define NO_SECRETS "Plugin secret references are disabled until company-scoped plugin config lands"

/* Reading */

struct config_request {
        struct op *op;
        const struct plugin *p;
        struct plugin_config *row;
};

int plugin_read_config(struct op *op, struct runtime *rt, const char *id_or_key,
                       struct plugin_config *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct plugin p;
        int r = access_admin(op->actor, "Instance admin access required", err);

        if (r >= 0)
                r = plugin_get(op, rt, id_or_key, &p, err);
        if (r >= 0)
                r = store_read_begin(op, rt->store, &db, err);
        if (r < 0)
                return r;
        r = plugin_config_get(db, p.id, op->arena, ret, err);
        return r == ERR_NOT_FOUND ? err_set(err, ERR_NOT_FOUND, "%s", "") : r;
}

/* Checking */

static int require_object(const json_t *config, struct err *err)
{
        return json_is_object(config) ? 0
                                      : err_set(err, ERR_INVALID,
                                                "\"configJson\" is required and must be an object");
}

/* A secret would be stored in clear, and the worker could not resolve a reference: neither is
 * allowed. A reference is also recognised by its own shape. */
static bool has_secret(const json_t *schema, const json_t *value, int depth)
{
        static const char *const compositions[] = { "allOf", "anyOf", "oneOf" };
        const char *type = json_get_string(value, "type"), *format, *key;
        json_t *member, *branch;
        size_t i;

        format = json_get_string(schema, "format");
        if (format && streq(format, "secret-ref") && !json_is_null(value) &&
            !(json_is_string(value) && json_string_length(value) == 0))
                return true;
        if (type && streq(type, "secret_ref") && json_get_string(value, "secretId"))
                return true;
        if (depth > JSON_MAX_DEPTH)
                return true;
        for (size_t c = 0; c < ARRAY_LEN(compositions); c++)
                json_array_foreach(json_object_get(schema, compositions[c]), i,
                                   branch) if (has_secret(branch, value, depth + 1)) return true;
        json_object_foreach((json_t *)value, key, member)
        {
                json_t *properties = json_object_get(schema, "properties");

                if (has_secret(json_object_get(properties, key), member, depth + 1))
                        return true;
        }
        return false;
}

static int check_config(const struct plugin *p, const json_t *config, json_t **ret_field_errors,
                        struct err *err)
{
        CLEAN(json_decrefp) json_t *manifest = NULL;
        CLEAN(json_decrefp) json_t *errors = json_array();
        int r = json_parse(p->manifest, strlen(p->manifest), &manifest, err);

        if (r < 0)
                return r;
        const json_t *schema = json_object_get(manifest, "instanceConfigSchema");
        if (has_secret(schema, config, 0))
                return err_set(err, ERR_UNPROCESSABLE, NO_SECRETS);
        r = schema ? jsonschema_check(schema, config, errors, err) : 0;
        if (r <= 0)
                return r;
        *ret_field_errors = json_incref(errors);
        return err_set(err, ERR_INVALID,
                       "Configuration does not match the plugin's instanceConfigSchema");
}

/* Saving */

static int write_config_row(struct db *db, void *arg, struct err *err)
{
        struct config_request *q = arg;
        struct plugin_config old;
        int r = plugin_config_get(db, q->p->id, q->op->arena, &old, err);

        if (r >= 0) {
                q->row->id = old.id;
                q->row->created_at = old.created_at;
        } else if (r == ERR_NOT_FOUND) {
                err_clear(err);
        } else {
                return r;
        }
        r = plugin_config_put(db, q->row, err);
        return r < 0 ? r : plugin_audit(db, q->op, q->p, "plugin.config.updated", err);
}

/* Tell the worker of the change, or restart it when it does not listen. The configuration stays
 * saved in any case. */
static void tell_worker(struct op *op, struct runtime *rt, const struct plugin *p,
                        const json_t *config)
{
        CLEAN(err_done) struct err err = { 0 };
        CLEAN(json_decrefp) json_t *params = json_pack("{s:O}", "config", config);
        CLEAN(json_decrefp) json_t *answer = NULL;
        struct op shield = op_shield(op, PLUGIN_SHIELD_MS);
        struct plugin_call call = { .plugin_id = p->id,
                                    .method = "configChanged",
                                    .params = params };

        if (!plugin_host_is_running(rt->plugins->host, p->id))
                return;
        int r = plugin_call(&shield, rt->plugins->host, &call, &answer, &err);
        if (r < 0)
                r = plugin_start_worker(&shield, rt->plugins, p, true, &err);
        if (r < 0)
                log_warn("a plugin did not take its new configuration", LOG_S("plugin", p->key),
                         LOG_S("error", err.msg));
}

int plugin_save_config(struct op *op, struct runtime *rt, const char *id_or_key,
                       const json_t *config, struct plugin_config *ret, json_t **ret_field_errors,
                       struct err *err)
{
        struct plugin p;
        struct config_request q = { op, &p, ret };
        int r = access_admin(op->actor, "Instance admin access required", err);

        if (r >= 0)
                r = plugin_load_row(op, rt, id_or_key, &p, err);
        if (r >= 0)
                r = require_object(config, err);
        if (r >= 0)
                r = check_config(&p, config, ret_field_errors, err);
        if (r >= 0)
                r = plugin_hold(op, rt->plugins, p.key, err);
        if (r < 0)
                return r;
        *ret = (struct plugin_config){
                .plugin_id = p.id,
                .id = arena_strdup(op->arena, uuid_new().s),
                .config = json_to_arena(op->arena, config),
                .created_at = clock_now_us(),
        };
        ret->updated_at = ret->created_at;
        FAULT("registry.config.before");
        r = store_write(op, rt->store, write_config_row, &q, err);
        FAULT("registry.config.after");
        if (r >= 0)
                tell_worker(op, rt, &p, config);
        plugin_let_go(rt->plugins, p.key);
        return r;
}

/* Testing */

int plugin_test_config(struct op *op, struct runtime *rt, const char *id_or_key,
                       const json_t *config, struct plugin_verdict *ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *params = NULL;
        CLEAN(json_decrefp) json_t *answer = NULL;
        struct plugin p;
        int r = access_admin(op->actor, "Instance admin access required", err);

        if (r >= 0)
                r = plugin_get(op, rt, id_or_key, &p, err);
        if (r >= 0 && !plugin_status_runs(p.status))
                r = err_set(err, ERR_INVALID, "Plugin is not ready (current status: %s)", p.status);
        if (r >= 0)
                r = require_object(config, err);
        if (r < 0)
                return r;
        params = json_pack("{s:O}", "config", config);
        r = plugin_call(op, rt->plugins->host,
                        &(struct plugin_call){
                                .plugin_id = p.id, .method = "validateConfig", .params = params },
                        &answer, err);
        if (r == ERR_NOT_IMPLEMENTED) {
                err_clear(err);
                *ret = (struct plugin_verdict){ .message =
                                                        "The plugin cannot test a configuration." };
                return 0;
        }
        /* {ok, errors?, warnings?}: the first text is the one to show. */
        const char *text = json_string_value(json_array_get(json_object_get(answer, "errors"), 0));
        if (!text)
                text = json_string_value(json_array_get(json_object_get(answer, "warnings"), 0));
        *ret = (struct plugin_verdict){ .is_valid = json_is_true(json_object_get(answer, "ok")),
                                        .is_supported = true,
                                        .message = arena_strdup(op->arena, text) };
        return r;
}
