/* Validating and probing configurations by asking the plugin's worker. */
#include "base/log.h"
#include "codec/secret_refs.h"
#include "core/kinds/plugin/plugin_place.h"
#include "core/plugins/plugin_registry.h"

#define PROBE_LIMIT_MS 120000

/* Validating */

static int refuse_config(const json_t *answer, const char *fallback, struct err *err)
{
        json_t *errors = json_object_get(answer, "errors");
        json_t *warnings = json_object_get(answer, "warnings");
        const char *first = json_string_value(json_array_get(errors, 0));
        json_t *details = json_pack(
                "{s:o, s:o}", "errors", json_is_array(errors) ? json_incref(errors) : json_array(),
                "warnings", json_is_array(warnings) ? json_incref(warnings) : json_array());
        int r = err_set(err, ERR_UNPROCESSABLE, "%s", first ? first : fallback);

        err_details(err, json_to_text(details));
        json_decref(details);
        return r;
}

/* *ret is a new reference: the worker's version, or a copy of the configuration it was given. */
static int ask_worker(struct op *op, struct runtime *rt, const struct plugin_target *target,
                      const json_t *config, const char *fallback, json_t **ret, struct err *err)
{
        json_t *params = json_pack("{s:s, s:O}", "driverKey", target->driver_key, "config", config);
        struct plugin_call call = { .plugin_id = target->plugin_id,
                                    .method = "environmentValidateConfig",
                                    .params = params,
                                    .redact = plugin_secret_values(op, target, config) };
        json_t *answer = NULL, *normal;
        int r = plugin_call(op, plugin_registry_host(rt->plugins), &call, &answer, err);

        json_decref(params);
        if (r == ERR_NOT_IMPLEMENTED) { /* then everything is fine with it */
                err_clear(err);
                *ret = json_deep_copy(config);
                return 0;
        }
        if (r < 0)
                return plugin_explain(op, rt, target, r, err);
        normal = json_get_object(answer, "normalizedConfig");
        if (!json_is_true(json_object_get(answer, "ok")))
                r = plugin_explain(op, rt, target, refuse_config(answer, fallback, err), err);
        else
                *ret = json_deep_copy(normal ? normal : config);
        json_decref(answer);
        return r;
}

/* Pickers of secrets send {type: "secret_ref", secretId, version?} for members that the schema
 * calls secret; a worker knows texts only, and the id is what is stored. */
static int take_references(struct op *op, const struct plugin_target *target, json_t *config,
                           struct err *err)
{
        json_t *paths = json_keep(op->arena, secret_ref_paths(target->schema)), *path;
        size_t i;

        json_array_foreach(paths, i, path)
        {
                const char *at = json_string_value(path);
                const json_t *ref = json_path_get(config, at);
                const json_t *version = json_object_get(ref, "version");
                const char *id = json_get_string(ref, "secretId");

                if (!secret_ref_is(ref) || !id)
                        continue;
                if (version &&
                    !(json_is_string(version) && streq(json_string_value(version), "latest")))
                        return err_set(err, ERR_UNPROCESSABLE,
                                       "Secret binding at %s pins a version; sandbox provider "
                                       "secret references always resolve the latest version.",
                                       at);
                json_path_set(config, at, json_string(id));
        }
        return 0;
}

/* The same for a plugin's own driver, where what was sent is stored: the worker sees the ids, and
 * *ret has the references by path. */
static int take_driver_references(struct op *op, const struct plugin_target *target, json_t *config,
                                  json_t **ret, struct err *err)
{
        json_t *paths = json_keep(op->arena, secret_ref_paths(target->schema)), *path;
        const char *id;
        int64_t version;
        size_t i;

        *ret = json_keep(op->arena, json_object());
        json_array_foreach(paths, i, path)
        {
                const char *at = json_string_value(path);
                json_t *ref = json_path_get(config, at);

                if (!secret_ref_is(ref))
                        continue;
                if (!secret_ref_read(ref, &id, &version))
                        return err_set(err, ERR_UNPROCESSABLE,
                                       "driverConfig.%s is no reference to a secret: it takes "
                                       "{type: \"secret_ref\", secretId, version}, version "
                                       "\"latest\" or a number",
                                       at);
                json_object_set_new(
                        *ret, at,
                        json_pack("{s:s, s:s, s:o}", "type", "secret_ref", "secretId", id,
                                  "version",
                                  version ? json_integer(version) : json_string("latest")));
                json_path_set(config, at, json_string(id));
        }
        return 0;
}

/* What the worker kept of the ids. */
static void put_references(json_t *config, json_t *refs)
{
        const char *path;
        json_t *ref;

        json_object_foreach(refs, path, ref) if (json_equal(json_path_get(config, path),
                                                            json_object_get(ref, "secretId")))
                json_path_set(config, path, json_incref(ref));
}

int plugin_validate_provider(struct op *op, struct runtime *rt, json_t **config,
                             const json_t **ret_schema, struct err *err)
{
        const char *key = json_get_string(*config, "provider");
        struct plugin_target target;
        json_t *clean, *normal = NULL, *whole;
        int r;

        if (!rt->plugins)
                return err_set(
                        err, ERR_UNPROCESSABLE,
                        "Sandbox provider config validation requires a running plugin worker "
                        "manager.");
        r = plugin_running_provider(op, rt, key, &target, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(
                        err, ERR_UNPROCESSABLE,
                        "Sandbox provider \"%s\" is not installed or its plugin worker is not "
                        "running.",
                        key);
        clean = plugin_clean_config(*config);
        r = take_references(op, &target, clean, err);
        if (r >= 0)
                r = ask_worker(op, rt, &target, clean,
                               arena_printf(op->arena,
                                            "Sandbox provider \"%s\" rejected its config.", key),
                               &normal, err);
        json_decref(clean);
        if (r < 0)
                return r;
        whole = json_pack("{s:s}", "provider", key);
        json_object_del(normal, "provider");
        json_object_update(whole, normal);
        json_decref(normal);
        json_decref(*config);
        *config = whole;
        if (ret_schema)
                *ret_schema = target.schema;
        return 0;
}

int plugin_validate_driver(struct op *op, struct runtime *rt, json_t **config,
                           const json_t **ret_schema, struct err *err)
{
        const char *plugin = json_get_string(*config, "pluginKey");
        const char *driver = json_get_string(*config, "driverKey");
        CLEAN(json_decrefp) json_t *asked = NULL;
        json_t *normal = NULL, *refs = NULL;
        struct plugin_target target;
        int r;

        if (!rt->plugins)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Plugin environment config validation requires a running plugin "
                               "worker manager.");
        r = plugin_ready_driver(op, rt, plugin, plugin, driver, &target, err);
        if (r < 0)
                return r;
        asked = json_deep_copy(json_get_object(*config, "driverConfig"));
        r = take_driver_references(op, &target, asked, &refs, err);
        if (r >= 0)
                r = ask_worker(
                        op, rt, &target, asked,
                        arena_printf(op->arena,
                                     "Plugin environment driver \"%s:%s\" rejected its config.",
                                     plugin, driver),
                        &normal, err);
        if (r < 0)
                return r;
        put_references(normal, refs);
        json_object_set_new(*config, "driverConfig", normal);
        if (ret_schema)
                *ret_schema = plugin_driver_schema(op, &target);
        return 0;
}

/* Probing */

struct probe {
        struct op *op;
        struct runtime *rt;
        const char *label; /* for the default summary */
        struct plugin_target target;
        const struct plugin_scope *scope;
        const json_t *config; /* as the worker gets it */
        struct probe_result *ret;
};

static void take_result(const struct probe *q, const json_t *answer)
{
        const char *summary = json_get_string(answer, "summary");
        json_t *diagnostics = json_object_get(answer, "diagnostics");
        json_t *metadata = json_get_object(answer, "metadata");
        const json_t *first = json_array_get(diagnostics, 0);
        const char *said = summary ? summary : json_get_string(first, "message");
        const char *hint = said ? plugin_hint_files(q->op, q->rt, &q->target, said) : NULL;

        q->ret->ok = json_is_true(json_object_get(answer, "ok"));
        if (hint)
                buf_appendf(&q->ret->summary, "%s: ", hint);
        if (summary && *summary)
                buf_puts(&q->ret->summary, summary);
        else
                buf_appendf(&q->ret->summary, "%s probe %s.", q->label,
                            q->ret->ok ? "passed" : "failed");
        json_object_set_new(q->ret->details, "diagnostics",
                            json_is_array(diagnostics) ? json_incref(diagnostics) : json_array());
        json_object_set_new(q->ret->details, "metadata",
                            metadata ? json_incref(metadata) : json_object());
}

static int run_probe(const struct probe *q, struct err *err)
{
        CLEAN(err_done) struct err failure = { 0 };
        struct plugin_request request = {
                .target = &q->target,
                .scope = q->scope,
                .method = "environmentProbe",
                .config = q->config,
                .limit_ms = PROBE_LIMIT_MS,
                .redact_member = "summary",
        };
        json_t *answer = NULL;
        int r = plugin_request(q->op, q->rt, &request, &answer, &failure);

        if (r == ERR_CANCELLED || r == ERR_BUSY || r == ERR_UNPROCESSABLE) {
                err_move(err, &failure);
                return r;
        }
        if (r < 0) {
                answer = json_pack("{s:b, s:[{s:s, s:s}]}", "ok", 0, "diagnostics", "severity",
                                   "error", "message", failure.msg);
                (void)json_keep(q->op->arena, answer);
        }
        take_result(q, answer);
        return 0;
}

static int probe_provider(struct probe *q, const json_t *config, struct err *err)
{
        const char *key = json_get_string(config, "provider");
        int r;

        json_object_set_new(q->ret->details, "provider", json_string(key));
        if (!q->rt->plugins) {
                buf_appendf(&q->ret->summary,
                            "Sandbox provider \"%s\" requires a running provider plugin.", key);
                return 0;
        }
        r = plugin_running_provider(q->op, q->rt, key, &q->target, err);
        if (r < 0)
                return r;
        if (r == 0) {
                buf_appendf(&q->ret->summary,
                            "Sandbox provider \"%s\" is not installed or its plugin worker is not "
                            "running.",
                            key);
                return 0;
        }
        json_object_set_new(q->ret->details, "pluginKey", json_string(q->target.plugin_key));
        q->label = arena_printf(q->op->arena, "Sandbox provider \"%s\"", key);
        return run_probe(q, err);
}

static int probe_driver(struct probe *q, const json_t *config, struct err *err)
{
        const char *plugin = json_get_string(config, "pluginKey");
        const char *driver = json_get_string(config, "driverKey");
        int r;

        json_object_set_new(q->ret->details, "pluginKey", json_string(plugin));
        json_object_set_new(q->ret->details, "driverKey", json_string(driver));
        if (!q->rt->plugins) {
                buf_appendf(
                        &q->ret->summary,
                        "Plugin environment probes require a plugin worker manager for \"%s:%s\".",
                        plugin, driver);
                return 0;
        }
        r = plugin_ready_driver(q->op, q->rt, plugin, plugin, driver, &q->target, err);
        if (r == ERR_UNPROCESSABLE) {
                buf_puts(&q->ret->summary, err ? err->msg : "");
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        q->label =
                arena_printf(q->op->arena, "Plugin environment driver \"%s:%s\"", plugin, driver);
        return run_probe(q, err);
}

static int probe_with(struct op *op, struct runtime *rt, const struct probe_target *target,
                      const json_t *config, const json_t *of_worker, struct probe_result *ret,
                      int (*probe)(struct probe *q, const json_t *config, struct err *err),
                      struct err *err)
{
        struct plugin_scope scope = {
                .company_id = target->company_id,
                .environment_id = target->environment_id ? target->environment_id : "unsaved",
        };
        json_t *clean = json_keep(op->arena, plugin_clean_config(of_worker));
        struct probe q = { .op = op, .rt = rt, .scope = &scope, .config = clean, .ret = ret };

        return probe(&q, config, err);
}

int plugin_probe_driver(struct op *op, struct runtime *rt, const struct probe_target *target,
                        json_t *config, struct probe_result *ret, struct err *err)
{
        return probe_with(op, rt, target, config, json_get_object(config, "driverConfig"), ret,
                          probe_driver, err);
}

int plugin_probe_provider(struct op *op, struct runtime *rt, const struct probe_target *target,
                          json_t *config, struct probe_result *ret, struct err *err)
{
        return probe_with(op, rt, target, config, config, ret, probe_provider, err);
}
