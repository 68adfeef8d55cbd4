/* One call to the worker behind a place, with everything that every call carries. */
#include <math.h>

#include "base/log.h"
#include "core/plugin_place.h"
#include "core/plugin_registry.h"

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
        json_object_del(config, "$lease");
        return config;
}

int plugin_resolve_config(struct op *op, struct runtime *rt, const struct plugin_target *target,
                          const struct plugin_scope *scope, const json_t *config, json_t **ret,
                          const char *const **ret_secrets, struct err *err)
{
        static const char *const none[] = { NULL };

        *ret = json_deep_copy(config);
        *ret_secrets = none;
        return 0;
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

static void unref(void *v)
{
        json_decref(v);
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
                arena_defer(op->arena, unref, *ret);
        json_decref(params);
        json_decref(q->take_params);
        return r;
}
