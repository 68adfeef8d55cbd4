/* Using a lease whose place a plugin keeps. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/exec/exec_request.h"
#include "core/kinds/plugin/plugin_box.h"
#include "core/kinds/plugin/plugin_place.h"
#include "core/places/place.h"
#include "core/plugins/plugin_registry.h"

int plugin_lease_load(struct op *op, struct runtime *rt, const struct lease *lease,
                      struct plugin_lease *ret, struct err *err)
{
        const json_t *plugin;
        json_t *recorded;
        int r = place_load(op, rt, lease->place_id, &ret->place, err);

        if (r < 0)
                return r;
        recorded = plugin_object(op, ret->place.config);
        plugin = json_get_object(recorded, "$plugin");
        if (!plugin)
                return err_set(err, ERR_CORRUPT, "The place does not say which plugin keeps it.");
        r = plugin_ready_driver(op, rt, json_get_string(plugin, "id"),
                                json_get_string(plugin, "key"),
                                json_get_string(plugin, "driverKey"), &ret->target, err);
        if (r < 0)
                return r;
        ret->target.is_sandbox = json_get_string(recorded, "provider") != NULL;
        ret->lease = lease;
        ret->scope = (struct plugin_scope){
                .company_id = lease->company_id,
                .environment_id = lease->environment_id,
                .issue_id = lease->issue_id,
                .run_id = lease->heartbeat_run_id,
        };
        ret->metadata = plugin_object(op, lease->metadata);
        if (!ret->metadata)
                ret->metadata = json_keep(op->arena, json_object());
        return plugin_config_for(op, rt, &ret->place, &ret->target, recorded, &ret->config, err);
}

/* For sandboxes it is among the lease's own members. */
const json_t *plugin_lease_said(const struct plugin_lease *l)
{
        return l->target.is_sandbox ? l->metadata
                                    : json_get_object(l->metadata, "providerMetadata");
}

json_t *plugin_lease_ref(const struct plugin_lease *l)
{
        char expires[ISO_TIME_LEN + 1];

        if (l->lease->expires_at)
                clock_iso(l->lease->expires_at, expires);
        return json_pack("{s:o, s:O, s:o}", "providerLeaseId",
                         json_string_or_null(l->lease->provider_lease_id), "metadata", l->metadata,
                         "expiresAt", json_string_or_null(l->lease->expires_at ? expires : NULL));
}

static int ask_about_lease(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                           const char *method, json_t *take_params, json_t **ret, struct err *err)
{
        struct plugin_request q = {
                .target = &l->target,
                .scope = &l->scope,
                .method = method,
                .config = l->config,
                .take_params = take_params,
                .limit_ms = plugin_limit_lease(&l->target, l->config),
        };

        return plugin_request(op, rt, &q, ret, err);
}

int plugin_lease_realize(struct op *op, struct runtime *rt, const struct environment *env,
                         const struct lease *lease, json_t *workspace, json_t **ret,
                         struct err *err)
{
        struct plugin_lease l;
        int r = plugin_lease_load(op, rt, lease, &l, err);

        if (r < 0)
                return r;
        return ask_about_lease(op, rt, &l, "environmentRealizeWorkspace",
                               json_pack("{s:o, s:o}", "lease", plugin_lease_ref(&l), "workspace",
                                         workspace ? json_incref(workspace) : json_object()),
                               ret, err);
}

int plugin_lease_resume(struct op *op, struct runtime *rt, const struct lease *lease, json_t **ret,
                        struct err *err)
{
        struct plugin_lease l;
        int r;

        if (!lease->provider_lease_id)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Plugin environment lease \"%s\" does not have a provider lease id "
                               "to resume.",
                               lease->id);
        r = plugin_lease_load(op, rt, lease, &l, err);
        if (r < 0)
                return r;
        return ask_about_lease(op, rt, &l, "environmentResumeLease",
                               json_pack("{s:s, s:O}", "providerLeaseId", lease->provider_lease_id,
                                         "leaseMetadata", l.metadata),
                               ret, err);
}

/* Commands */

static json_t *execute_params(const struct plugin_lease *l, json_t *take_config,
                              const struct exec_request *req)
{
        const char *cwd = req->cwd ? req->cwd : json_get_string(plugin_lease_said(l), "remoteCwd");
        json_t *params = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s}", "driverKey",
                                   l->target.driver_key, "companyId", l->scope.company_id,
                                   "environmentId", l->scope.environment_id, "issueId",
                                   json_string_or_null(l->scope.issue_id), "config", take_config,
                                   "lease", plugin_lease_ref(l), "command", req->command);

        if (req->args) {
                json_t *args = json_array();

                for (const char *const *arg = req->args; *arg; arg++)
                        json_array_append_new(args, json_string(*arg));
                json_object_set_new(params, "args", args);
        }
        if (cwd)
                json_object_set_new(params, "cwd", json_string(cwd));
        if (req->own_env)
                json_object_set_new(params, "env", exec_variables_sanitize(req->own_env));
        if (req->stdin_text)
                json_object_set_new(params, "stdin", json_stringn(req->stdin_text, req->stdin_len));
        if (req->timeout_ms)
                json_object_set_new(params, "timeoutMs", json_integer(req->timeout_ms));
        return params;
}

/* One call, to the command's end. */

struct execute_call {
        const char *company_id;
        json_t *params;
        int64_t limit_ms; /* 0: the default of a call */
};

/* The variables of an agent; those of the request are there already. */
static void set_env(json_t *params, const char *const *env)
{
        json_t *all = json_object();

        for (; env && *env; env++) {
                size_t n = strcspn(*env, "=");
                char *name = xstrndup(*env, n);

                json_object_set_new(all, name, json_string(*env + n + 1));
                free(name);
        }
        json_object_update(all, json_object_get(params, "env"));
        if (json_object_size(all) > 0)
                json_object_set(params, "env", all);
        json_decref(all);
}

static int execute_begin(struct runtime *rt, const struct execution *row,
                         const struct exec_request *req, exec_output_fn output, exec_done_fn done,
                         void *ctx, int64_t *ret_call, struct err *err)
{
        const struct execute_call *execute = req->remote->call;
        struct plugin_call call = {
                .plugin_id = req->remote->who,
                .method = "environmentExecute",
                .params = execute->params,
                .company_id = execute->company_id,
                .timeout_ms = execute->limit_ms,
                .redact = req->redact,
                .output = output,
                .ctx = ctx,
        };

        set_env(execute->params, req->env);
        if (req->is_helper)
                json_object_set_new(execute->params, "bypassSession", json_true());
        log_debug("plugin call", LOG_S("plugin", call.plugin_id), LOG_S("method", call.method),
                  LOG_I("limit_ms", execute->limit_ms));
        return plugin_call_begin(plugin_registry_host(rt->plugins), &call, done, ctx, ret_call,
                                 err);
}

static void execute_abandon(struct runtime *rt, const char *who, int64_t call)
{
        plugin_call_abandon(plugin_registry_host(rt->plugins), who, call, ERR_CANCELLED);
}

static const struct exec_runner worker_runner = { .begin = execute_begin,
                                                  .abandon = execute_abandon };

int plugin_lease_admit_exec(struct op *op, struct runtime *rt, const struct lease_record *record,
                            const struct exec_request *req, struct err *err)
{
        return plugin_box_admit(op, rt, record, req->terminal || req->acp, err);
}

int plugin_lease_prepare_exec(struct op *op, struct runtime *rt, const struct lease_record *record,
                              struct exec_request *req, struct err *err)
{
        struct exec_remote *remote;
        struct execute_call *call;
        struct plugin_lease l;
        json_t *config = NULL;
        int r = plugin_lease_load(op, rt, &record->lease, &l, err);

        if (r >= 0 && !req->is_single)
                return plugin_box_prepare_exec(op, &l, req, err);
        if (r >= 0)
                r = plugin_resolve_config(op, rt, &l.target, &l.scope, l.config, &config,
                                          &req->redact, err);
        if (r < 0)
                return r;
        call = arena_new(op->arena, struct execute_call);
        *call = (struct execute_call){
                .company_id = l.scope.company_id,
                .limit_ms = plugin_limit_execute(req->timeout_ms, l.config),
                .params = json_keep(op->arena, execute_params(&l, config, req)),
        };
        remote = arena_new(op->arena, struct exec_remote);
        *remote = (struct exec_remote){ .runner = &worker_runner,
                                        .who = l.target.plugin_id,
                                        .call = call };
        req->remote = remote;
        return 0;
}
