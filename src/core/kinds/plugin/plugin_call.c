/* One call to the worker behind a place, with everything that every call carries. */
#include <math.h>

#include "base/log.h"
#include "codec/redact.h"
#include "codec/secret_refs.h"
#include "core/kinds/plugin/plugin_place.h"
#include "core/plugins/plugin_registry.h"
#include "core/secrets/secret.h"

/* Limits */

/* Truncated, if it is a finite number above 0; else 0. */
static int64_t positive(const json_t *v)
{
        double n = json_is_number(v) ? json_number_value(v) : 0;

        return isfinite(n) && n >= 1 ? (int64_t)MIN(n, (double)INT32_MAX) : 0;
}

static int64_t with_grace(int64_t base)
{
        return base > 0 ? base + PLUGIN_CALL_GRACE_MS : 0;
}

int64_t plugin_limit_lease(const struct plugin_target *target, const json_t *config)
{
        if (!target->is_sandbox)
                return 0;
        return with_grace(MAX(positive(json_object_get(config, "timeoutMs")),
                              positive(json_object_get(config, "bridgeRequestTimeoutMs"))));
}

int64_t plugin_limit_execute(int64_t requested_ms, const json_t *config)
{
        return with_grace(requested_ms > 0 ? requested_ms
                                           : positive(json_object_get(config, "timeoutMs")));
}

/* Configuration */

json_t *plugin_clean_config(const json_t *stored)
{
        json_t *config = json_deep_copy(stored);

        json_object_del(config, "provider");
        json_object_del(config, "$plugin");
        json_object_del(config, "$adapter");
        json_object_del(config, "$lease");
        json_object_del(config, "$box");
        return config;
}

const char *const *plugin_secret_values(struct op *op, const struct plugin_target *target,
                                        const json_t *config)
{
        json_t *paths = secret_ref_paths(target->schema), *path;
        const char **values =
                arena_alloc(op->arena, (json_array_size(paths) + 1) * sizeof(*values));
        size_t n = 0, i;

        json_array_foreach(paths, i, path)
        {
                const char *value =
                        json_string_value(json_path_get(config, json_string_value(path)));

                if (value && *value && !uuid_is_valid(value))
                        values[n++] = value;
        }
        json_decref(paths);
        return values;
}

/* A `format` of the whole would make a reference of all of it. */
const json_t *plugin_driver_schema(struct op *op, const struct plugin_target *target)
{
        json_t *own = target->schema ? json_copy((json_t *)target->schema) : NULL;

        json_object_del(own, "format");
        return own ? json_keep(op->arena, json_pack("{s:{s:o}}", "properties", "driverConfig", own))
                   : NULL;
}

static int resolve_sandbox(struct op *op, struct runtime *rt, const struct plugin_target *target,
                           const struct plugin_scope *scope, const json_t *config,
                           const struct secret_context *context, json_t **ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *whole = json_deep_copy(config);
        int r;

        json_object_set_new(whole, "provider", json_string(target->driver_key));
        r = secret_resolve_config(op, rt, scope->company_id, scope->environment_id,
                                  &kind_plugin_sandbox, whole, target->schema, context, ret, err);
        if (r >= 0)
                json_object_del(*ret, "provider");
        return r;
}

static int resolve_driver(struct op *op, struct runtime *rt, const struct plugin_target *target,
                          const struct plugin_scope *scope, const json_t *config,
                          const struct secret_context *context, json_t **ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *whole = NULL, *resolved = NULL;
        int r;

        whole = json_pack("{s:s, s:s, s:O}", "pluginKey", target->plugin_key, "driverKey",
                          target->driver_key, "driverConfig", config);
        r = secret_resolve_config(op, rt, scope->company_id, scope->environment_id,
                                  &kind_plugin_driver, whole, plugin_driver_schema(op, target),
                                  context, &resolved, err);
        if (r >= 0)
                *ret = json_incref(json_get_object(resolved, "driverConfig"));
        return r;
}

/* A call that gives a place up may read the secrets that the place was opened with, whatever the
 * environment says by now. */
int plugin_resolve_config(struct op *op, struct runtime *rt, const struct plugin_target *target,
                          const struct plugin_scope *scope, const json_t *config, json_t **ret,
                          const char *const **ret_secrets, struct err *err)
{
        struct secret_context context = {
                .issue_id = scope->issue_id,
                .run_id = scope->run_id,
                .for_cleanup = scope->place_id != NULL,
        };
        int r = 0;

        if (!target->schema || streq(scope->environment_id, "unsaved"))
                *ret = json_deep_copy(config);
        else if (target->is_sandbox)
                r = resolve_sandbox(op, rt, target, scope, config, &context, ret, err);
        else
                r = resolve_driver(op, rt, target, scope, config, &context, ret, err);
        if (r >= 0)
                *ret_secrets = plugin_secret_values(op, target, *ret);
        return r;
}

/* Files */

/* The length of the path that a text names between quotes or spaces; 0: it is none. */
static size_t path_length(const char *at)
{
        return *at == '/' ? strcspn(at, " '\"`,;:)\n") : 0;
}

/* Whether there is such a file on this machine is not said: users choose the path. */
const char *plugin_hint_files(const struct op *op, const struct runtime *rt,
                              const struct plugin_target *target, const char *said)
{
        static const char *const signs[] = { "ENOENT", "EACCES", "o such file",
                                             "ermission denied" };
        bool about_file = false;
        size_t n;

        for (size_t i = 0; i < ARRAY_LEN(signs); i++)
                about_file = about_file || strstr(said, signs[i]);
        if (!about_file || !rt->settings.plugin_confine)
                return NULL;
        for (const char *at = said; *at; at++) {
                n = path_length(at);
                if (n > 1 && (at == said || strchr(" '\"`(", at[-1])))
                        return arena_printf(op->arena,
                                            "The worker is confined; give it a file of this "
                                            "machine with the setting plugin_paths, here "
                                            "\"%s:%.*s\"",
                                            target->plugin_key, (int)n, at);
        }
        return NULL;
}

int plugin_explain(const struct op *op, const struct runtime *rt,
                   const struct plugin_target *target, int r, struct err *err)
{
        const char *hint = r < 0 && err ? plugin_hint_files(op, rt, target, err->msg) : NULL;

        return hint ? err_wrap(err, r, "%s", hint) : r;
}

/* Calling */

static json_t *base_params(const struct plugin_request *q)
{
        json_t *params =
                json_pack("{s:s, s:s, s:s}", "driverKey", q->target->driver_key, "companyId",
                          q->scope->company_id, "environmentId", q->scope->environment_id);

        if (!streq(q->method, "environmentProbe"))
                json_object_set_new(params, "issueId", json_string_or_null(q->scope->issue_id));
        return params;
}

static void redact_member(json_t *answer, const char *name, const char *const *values)
{
        CLEAN(buf_wipe) struct buf shown = BUF_INIT;
        const json_t *text = json_object_get(answer, name);
        struct redactor *redactor;
        bool too_much = false;
        size_t n = 0;

        while (values && values[n])
                n++;
        if (n == 0 || !json_is_string(text))
                return;
        redactor = redactor_new(values, n, &too_much);
        if (redactor)
                redact_text(redactor, json_string_value(text), json_string_length(text), &shown);
        if (redactor || too_much)
                json_object_set_new(answer, name, json_stringn_nocheck(buf_str(&shown), shown.len));
        redactor_free(redactor);
}

int plugin_request(struct op *op, struct runtime *rt, const struct plugin_request *q, json_t **ret,
                   struct err *err)
{
        json_t *params = base_params(q), *config = NULL;
        struct plugin_call call = {
                .plugin_id = q->target->plugin_id,
                .method = q->method,
                .params = params,
                .company_id = q->scope->company_id,
                .timeout_ms = q->limit_ms,
                .late = q->late,
                .ctx = q->ctx,
        };
        int r = plugin_resolve_config(op, rt, q->target, q->scope, q->config, &config, &call.redact,
                                      err);

        if (r >= 0) {
                json_object_set_new(params, "config", config);
                json_object_update(params, q->take_params);
                log_debug("plugin call", LOG_S("plugin", q->target->plugin_key),
                          LOG_S("method", q->method), LOG_I("limit_ms", q->limit_ms));
                r = plugin_call(op, plugin_registry_host(rt->plugins), &call, ret, err);
        }
        if (r >= 0)
                (void)json_keep(op->arena, *ret);
        if (r >= 0 && q->redact_member)
                redact_member(*ret, q->redact_member, call.redact);
        json_decref(params);
        json_decref(q->take_params);
        return r;
}
