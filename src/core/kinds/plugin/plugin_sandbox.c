/* The kind of the driver `sandbox` whose provider is a plugin's: every provider that is not built
 * in. */
#include "codec/check.h"
#include "core/kinds/plugin/plugin_box.h"
#include "core/kinds/plugin/plugin_place.h"
#include "core/kinds/plugin/plugin_transfer.h"
#include "core/kinds/sandbox.h"
#include "core/workspaces/workspace.h"

#define TIMEOUT_MAX 86400000

/* Every member that the provider reads stays as it was sent. */
static int provider_normalize(const struct kind *kind, json_t *config, enum config_form form,
                              json_t **ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *provider, *key;
        int64_t timeout;
        bool has_timeout, reuse;
        json_t *result, *value;

        check_init(&c, config);
        check_text(&c, "Sandbox provider is required.");
        provider = check_string(&c, "provider", CHECK_REQUIRED | CHECK_TRIM, 1, 0);
        if (provider && !kind_is_key(provider))
                check_invalid_string(
                        &c, "provider", "regex",
                        "Sandbox provider key must start with a lowercase alphanumeric and "
                        "contain only lowercase letters, digits, dots, hyphens, or "
                        "underscores");
        timeout = check_int(&c, "timeoutMs", CHECK_COERCE, 1, TIMEOUT_MAX, &has_timeout);
        reuse = check_bool(&c, "reuseLease", CHECK_OPTIONAL, false);
        if (check_failed(&c))
                return check_end_config(&c, err);

        result = json_pack("{s:s}", "provider", provider);
        if (has_timeout)
                json_object_set_new(result, "timeoutMs", json_integer(timeout));
        json_object_set_new(result, "reuseLease", json_boolean(reuse));
        json_object_foreach(config, key, value)
        {
                if (!json_object_get(result, key) && !streq(key, "timeoutMs"))
                        json_object_set(result, key, value);
        }
        *ret = result;
        return 0;
}

/* The plugin is chosen here, once, for the whole life of the place. */
static int provider_plan(struct op *op, struct runtime *rt, const struct environment *env,
                         const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        struct plugin_target target;
        json_t *config = NULL;
        const char *key;
        bool reuse;
        int r = kind_config(op, &kind_plugin_sandbox, env, &config, err);

        if (r < 0)
                return r;
        key = json_get_string(config, "provider");
        r = plugin_await_provider(op, rt, key, &target, err);
        if (r < 0)
                return r;
        reuse = sandbox_reuses(config, req);
        *ret = (struct lease_plan){
                .provider = key,
                .policy = reuse ? POLICY_REUSE_ENVIRONMENT : POLICY_EPHEMERAL,
                .config = plugin_place_config(op, &target, config, req->adapter_type),
                .has_world = true,
                .reuse = reuse,
                .open_ms = plugin_limit_lease(&target, config),
        };
        return 0;
}

static int provider_park(struct op *op, struct runtime *rt, const struct place *place,
                         struct err *err)
{
        return plugin_place_give_up(op, rt, place, false, err);
}

/* To a provider a release means: pause what may be used again. */
static int provider_close(struct op *op, struct runtime *rt, const struct place *place,
                          struct err *err)
{
        return plugin_place_give_up(
                op, rt, place,
                place->attempts > 0 || streq(place->policy, POLICY_REUSE_ENVIRONMENT), err);
}

static const struct workspace_way *const synced[] = { &workspace_sync, &workspace_archive, NULL };

const struct kind kind_plugin_sandbox = {
        .driver = "sandbox",
        .label = "sandbox",
        .isolated = true,
        .isolation = "isolated from this machine and from other places",
        .is_elsewhere = true,
        .closes_by_id = true,
        .is_disposable = true,
        .takes_runs = true,
        .writes_cleanup_status = true,
        .release_failure_reason = "adapter_or_run_failure",
        .reaches_host = sandbox_reaches_host,
        .normalize = provider_normalize,
        .has_secrets_by_schema = true,
        .validate = plugin_validate_provider,
        .probe = plugin_probe_provider,
        .plan = provider_plan,
        .open = plugin_place_open,
        .resume = plugin_place_resume,
        .park = provider_park,
        .close = provider_close,
        .matches = sandbox_matches,
        .list = plugin_sandbox_list,
        .can_list = plugin_place_can_list,
        .describe = plugin_place_describe,
        .realize = plugin_lease_realize,
        .admit_exec = plugin_lease_admit_exec,
        .prepare_exec = plugin_lease_prepare_exec,
        .route = plugin_box_route_of,
        .bring_box = plugin_box_bring,
        .transfer = plugin_transfer_of,
        .end_commands = plugin_place_end_commands,
        .ways = synced,
        .ways_copy = synced,
        .realization = &sandbox_realization,
};
