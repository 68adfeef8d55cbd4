/* The plugin driver: environments whose whole driver comes from a plugin. Nothing is reused, and no
 * member of the configuration is secret to us: it is handed on as it was saved. */
#include "core/environments/env_config.h"
#include "core/exec/exec.h"
#include "core/kinds/plugin/plugin_box.h"
#include "core/kinds/plugin/plugin_place.h"

static void unref(void *v)
{
        json_decref(v);
}

static int parse_config(struct op *op, const struct environment *env, json_t **ret, struct err *err)
{
        json_t *raw = NULL, *config = NULL;
        int r = json_parse(env->config, strlen(env->config), &raw, err);

        if (r < 0)
                return err_wrap(err, ERR_CORRUPT, "configuration of environment %s", env->id);
        if (!streq(env->driver, "plugin"))
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Expected plugin environment config for driver \"%s\".", env->driver);
        else
                r = env_config_normalize("plugin", raw, CONFIG_STORED, &config, err);
        json_decref(raw);
        if (r < 0)
                return r;
        arena_defer(op->arena, unref, config);
        *ret = config;
        return 0;
}

static int plugin_plan(struct op *op, struct runtime *rt, const struct environment *env,
                       const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        struct plugin_target target;
        const char *plugin, *driver;
        json_t *config = NULL;
        int r = parse_config(op, env, &config, err);

        if (r < 0)
                return r;
        plugin = json_get_string(config, "pluginKey");
        driver = json_get_string(config, "driverKey");
        r = plugin_ready_driver(op, rt, plugin, plugin, driver, &target, err);
        if (r < 0)
                return r;
        *ret = (struct lease_plan){
                .provider = arena_printf(op->arena, "plugin:%s:%s", plugin, driver),
                .policy = POLICY_EPHEMERAL,
                .config = plugin_place_config(op, &target, json_get_object(config, "driverConfig")),
                .has_world = true,
        };
        return 0;
}

static int plugin_open(struct op *op, struct runtime *rt, const struct place *place,
                       const struct lease_request *req, struct provider_lease *ret, struct err *err)
{
        return plugin_place_open(op, rt, place, req, ret, err);
}

static int plugin_close(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err)
{
        int r;

        plugin_box_leave(op, rt, place);
        r = exec_remote_end_place(op, rt, place->id, err);
        return r < 0 ? r : plugin_place_give_up(op, rt, place, place->attempts > 0, err);
}

static bool plugin_matches(const char *recorded, const char *wanted)
{
        return false;
}

static void plugin_describe(const struct place *place, const struct provider_lease *opened,
                            bool resumed, json_t *metadata)
{
        plugin_place_describe(place, opened, metadata);
}

static int plugin_resume_lease(struct op *op, struct runtime *rt, const struct environment *env,
                               const struct lease *lease, struct buf *ret_json, struct err *err)
{
        return plugin_lease_resume(op, rt, lease, ret_json, err);
}

static int plugin_realize(struct op *op, struct runtime *rt, const struct environment *env,
                          const struct lease *lease, json_t *workspace, struct buf *ret_json,
                          json_t **ret_realization, struct err *err)
{
        return plugin_lease_realize(op, rt, lease, workspace, ret_json, ret_realization, err);
}

static bool plugin_can_destroy(const struct lease *lease)
{
        return true;
}

const struct driver driver_plugin = {
        .key = "plugin",
        .isolation = "as its plugin makes it, not isolated",
        .plan = plugin_plan,
        .open = plugin_open,
        .close = plugin_close,
        .matches = plugin_matches,
        .describe = plugin_describe,
        .resume_lease = plugin_resume_lease,
        .can_destroy = plugin_can_destroy,
        .realize = plugin_realize,
        .prepare_exec = plugin_lease_prepare_exec,
        .route = plugin_box_route_of,
};
