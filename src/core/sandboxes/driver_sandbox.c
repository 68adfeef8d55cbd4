/* The sandbox driver: finds the provider that the configuration names and does what it says: a
 * built-in one, else that of a plugin (plugin_place.h). */
#include "core/environments/env_config.h"
#include "core/exec/exec.h"
#include "core/kinds/plugin/plugin_box.h"
#include "core/kinds/plugin/plugin_place.h"
#include "core/kinds/realization.h"
#include "core/kinds/sandbox.h"
#include "core/leases/lease.h"

/* Parse a stored configuration; the operation's arena keeps it. */
static int parse_config(struct op *op, const struct environment *env, json_t **ret, struct err *err)
{
        json_t *raw = NULL, *config = NULL;
        int r = json_parse(env->config, strlen(env->config), &raw, err);

        if (r < 0)
                return err_wrap(err, ERR_CORRUPT, "configuration of environment %s", env->id);
        if (!streq(env->driver, "sandbox"))
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Expected sandbox environment config for driver \"%s\".", env->driver);
        else
                r = env_config_normalize("sandbox", raw, CONFIG_STORED, &config, err);
        json_decref(raw);
        if (r < 0)
                return r;
        arena_defer(op->arena, (void (*)(void *))json_decref, config);
        *ret = config;
        return 0;
}

/* A plugin's provider. The plugin is chosen here, once, for the whole life of the place. */
static int plan_plugin(struct op *op, struct runtime *rt, const json_t *config,
                       const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        bool reuse = json_is_true(json_object_get(config, "reuseLease")) && req->run_id;
        const char *key = json_get_string(config, "provider");
        struct plugin_target target;
        int r = plugin_await_provider(op, rt, key, &target, err);

        if (r < 0)
                return r;
        *ret = (struct lease_plan){
                .provider = key,
                .policy = reuse ? POLICY_REUSE_ENVIRONMENT : POLICY_EPHEMERAL,
                .config = plugin_place_config(op, &target, config),
                .has_world = true,
                .reuse = reuse,
                .open_ms = plugin_limit_lease(&target, config),
        };
        return 0;
}

static int sandbox_plan(struct op *op, struct runtime *rt, const struct environment *env,
                        const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        const char *key;
        json_t *config = NULL;
        bool reuse;
        int r = parse_config(op, env, &config, err);

        if (r < 0)
                return r;
        key = json_get_string(config, "provider");
        if (!provider_lookup(key))
                return plan_plugin(op, rt, config, req, ret, err);
        if (streq(key, PROVIDER_FAKE) && !rt->settings.allow_fake_provider)
                return err_set(
                        err, ERR_UNPROCESSABLE,
                        "Built-in fake sandbox environments are reserved for internal probes "
                        "and cannot be leased.");
        /* An ad-hoc lease neither takes up what others left nor leaves anything. */
        reuse = json_is_true(json_object_get(config, "reuseLease")) && req->run_id;
        r = provider_check(rt, config, err);
        if (r < 0)
                return r;
        *ret = (struct lease_plan){
                .provider = key,
                .policy = reuse ? POLICY_REUSE_ENVIRONMENT : POLICY_EPHEMERAL,
                .config = json_to_arena(op->arena, config),
                .has_world = true,
                .reuse = reuse,
                .stock = json_integer_value(json_object_get(config, "poolSize")) > 0,
        };
        return 0;
}

static int sandbox_claim(struct db *db, struct runtime *rt, const struct place *place,
                         struct arena *arena, struct err *err)
{
        const struct provider *p;
        int r;

        if (plugin_place_is(place))
                return 0;
        r = provider_find(place->provider, &p, err);
        return r < 0 || !p->claim ? r : p->claim(db, rt, place, arena, err);
}

static int sandbox_open(struct op *op, struct runtime *rt, const struct place *place,
                        const struct lease_request *req, struct provider_lease *ret,
                        struct err *err)
{
        const struct provider *p;
        int r;

        if (plugin_place_is(place))
                return plugin_place_open(op, rt, place, req, ret, err);
        r = provider_find(place->provider, &p, err);
        return r < 0 ? r : p->open(op, rt, place, req, ret, err);
}

static int sandbox_resume(struct op *op, struct runtime *rt, const struct place *place,
                          const struct lease_request *req, struct provider_lease *ret,
                          struct err *err)
{
        const struct provider *p;
        int r;

        if (plugin_place_is(place))
                return plugin_place_resume(op, rt, place, req, ret, err);
        r = provider_find(place->provider, &p, err);
        return r < 0 ? r : p->resume(op, rt, place, req, ret, err);
}

static int give_up_plugin(struct op *op, struct runtime *rt, const struct place *place,
                          bool destroy, struct err *err)
{
        int r;

        plugin_box_leave(op, rt, place);
        r = exec_remote_end_place(op, rt, place->id, err);
        return r < 0 ? r : plugin_place_give_up(op, rt, place, destroy, err);
}

static int sandbox_park(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err)
{
        const struct provider *p;
        int r;

        if (plugin_place_is(place))
                return give_up_plugin(op, rt, place, false, err);
        r = provider_find(place->provider, &p, err);
        if (r < 0)
                return r;
        return p->park ? p->park(op, rt, place, err) : 0;
}

static int sandbox_close(struct op *op, struct runtime *rt, const struct place *place,
                         struct err *err)
{
        const struct provider *p;
        int r;

        /* To a provider a release means: pause what may be used again. */
        if (plugin_place_is(place))
                return give_up_plugin(
                        op, rt, place,
                        place->attempts > 0 || streq(place->policy, POLICY_REUSE_ENVIRONMENT), err);
        r = provider_find(place->provider, &p, err);
        return r < 0 ? r : p->close(op, rt, place, err);
}

static int sandbox_list(struct op *op, struct runtime *rt, driver_found_fn fn, void *ctx,
                        struct err *err)
{
        for (const struct provider *const *p = builtin_providers; *p; p++) {
                int r = (*p)->list ? (*p)->list(op, rt, fn, ctx, err) : 0;

                if (r < 0)
                        return r;
        }
        return 0;
}

static bool sandbox_lists(const struct place *place)
{
        const struct provider *p = place->provider ? provider_lookup(place->provider) : NULL;

        return p && p->list;
}

static bool configs_match(const json_t *have, const json_t *want)
{
        const char *key = json_get_string(have, "provider");
        const struct provider *p = key ? provider_lookup(key) : NULL;

        return p && p->matches ? p->matches(have, want) : provider_config_matches(have, want);
}

static bool sandbox_matches(const char *recorded, const char *wanted)
{
        json_t *have = NULL, *want = NULL;
        bool same = json_parse(recorded, strlen(recorded), &have, NULL) >= 0 &&
                    json_parse(wanted, strlen(wanted), &want, NULL) >= 0 &&
                    configs_match(have, want);

        json_decref(have);
        json_decref(want);
        return same;
}

static const struct provider *lease_provider(const struct lease *lease)
{
        return lease->provider ? provider_lookup(lease->provider) : NULL;
}

static enum life sandbox_is_alive(const struct runtime *rt, const struct place *place)
{
        const struct provider *p = provider_lookup(place->provider);

        return p && p->is_alive ? p->is_alive(rt, place) : LIFE_UNKNOWN;
}

static int sandbox_pause_lease(struct op *op, struct runtime *rt, const struct environment *env,
                               const struct lease *lease, struct buf *ret_json, struct err *err)
{
        const struct provider *p = lease_provider(lease);

        if (!p || !p->pause_lease)
                return driver_unsupported("sandbox", "lease pause", err);
        return p->pause_lease(op, rt, lease, ret_json, err);
}

static int sandbox_resume_lease(struct op *op, struct runtime *rt, const struct environment *env,
                                const struct lease *lease, struct buf *ret_json, struct err *err)
{
        const struct provider *p = lease_provider(lease);

        if (!p || !p->resume_lease)
                return driver_unsupported("sandbox", "lease resume", err);
        return p->resume_lease(op, rt, lease, ret_json, err);
}

static bool sandbox_can_destroy(const struct lease *lease)
{
        const struct provider *p = lease_provider(lease);

        return p && p->can_destroy;
}

static void sandbox_describe(const struct place *place, const struct provider_lease *opened,
                             bool resumed, json_t *metadata)
{
        if (plugin_place_is(place)) {
                plugin_place_describe(place, opened, metadata);
                return;
        }
        if (opened->metadata)
                json_object_update(metadata, opened->metadata);
        if (resumed)
                json_object_set_new(metadata, "resumedLease", json_true());
}

static bool is_of_plugin(const struct lease *lease)
{
        return lease->provider && !provider_lookup(lease->provider);
}

static int sandbox_realize(struct op *op, struct runtime *rt, const struct environment *env,
                           const struct lease *lease, json_t *workspace, struct buf *ret_json,
                           json_t **ret_realization, struct err *err)
{
        const char *local = json_get_string(workspace, "localPath");
        const char *remote = json_get_string(workspace, "remotePath");
        json_t *metadata = NULL;
        const char *cwd, *path;

        if (is_of_plugin(lease))
                return plugin_lease_realize(op, rt, lease, workspace, ret_json, ret_realization,
                                            err);
        if (lease->metadata)
                (void)json_parse(lease->metadata, strlen(lease->metadata), &metadata, NULL);
        cwd = arena_strtrim(op->arena, json_get_string(metadata, "remoteCwd"));
        json_decref(metadata);
        if (!cwd)
                cwd = remote ? remote : local;
        *ret_realization = realization_record(env, lease, workspace, cwd);
        path = json_get_string(json_get_object(*ret_realization, "remote"), "path");
        if (!path)
                path = json_get_string(json_get_object(*ret_realization, "local"), "path");
        realization_answer(ret_json, path, *ret_realization);
        return 0;
}

static int sandbox_prepare_exec(struct op *op, struct runtime *rt,
                                const struct lease_record *record, json_t *request,
                                struct exec_request *ret, struct err *err)
{
        const struct provider *p = lease_provider(&record->lease);

        if (is_of_plugin(&record->lease))
                return plugin_lease_prepare_exec(op, rt, record, request, ret, err);
        if (p && p->prepare_exec)
                return p->prepare_exec(op, rt, record, request, ret, err);
        return err_set(err, ERR_UNPROCESSABLE,
                       "Sandbox driver does not support direct command execution for built-in "
                       "providers.");
}

/* Loopback, and abstract Unix sockets, are those of the machine. */
static bool sandbox_reaches_host(const json_t *config)
{
        const char *network = json_get_string(config, "network");

        return network && streq(network, "host");
}

const struct driver driver_sandbox = {
        .reaches_host = sandbox_reaches_host,
        .key = "sandbox",
        .isolated = true,
        .isolation = "isolated from this machine and from other places",
        .plan = sandbox_plan,
        .claim = sandbox_claim,
        .open = sandbox_open,
        .resume = sandbox_resume,
        .park = sandbox_park,
        .close = sandbox_close,
        .matches = sandbox_matches,
        .list = sandbox_list,
        .lists = sandbox_lists,
        .is_alive = sandbox_is_alive,
        .describe = sandbox_describe,
        .pause_lease = sandbox_pause_lease,
        .resume_lease = sandbox_resume_lease,
        .can_destroy = sandbox_can_destroy,
        .realize = sandbox_realize,
        .prepare_exec = sandbox_prepare_exec,
        .route = plugin_box_route_of,
        .writes_cleanup_status = true,
        .release_failure_reason = "adapter_or_run_failure",
};
