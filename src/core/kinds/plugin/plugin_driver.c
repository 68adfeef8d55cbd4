/* The kind of the driver `plugin`: environments whose whole driver comes from a plugin. Nothing is
 * reused. Of its configuration only {type: "secret_ref"} where the schema says secret-ref is
 * resolved; texts and ids are handed on as they were saved. */
#include "codec/check.h"
#include "core/kinds/plugin/plugin_box.h"
#include "core/kinds/plugin/plugin_place.h"
#include "core/kinds/plugin/plugin_transfer.h"
#include "core/workspaces/workspace.h"

static int driver_normalize(const struct kind *kind, json_t *config, enum config_form form,
                            json_t **ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *plugin, *driver;
        json_t *inner;

        check_init(&c, config);
        plugin = check_string(&c, "pluginKey", CHECK_REQUIRED, 1, 0);
        driver = check_string(&c, "driverKey", CHECK_REQUIRED, 1, 0);
        if (driver && !kind_is_key(driver))
                check_invalid_string(
                        &c, "driverKey", "regex",
                        "Environment driver key must start with a lowercase alphanumeric "
                        "and contain only lowercase letters, digits, dots, hyphens, or "
                        "underscores");
        inner = check_record(&c, "driverConfig", CHECK_OPTIONAL);
        check_unknown(&c, (const char *[]){ "pluginKey", "driverKey", "driverConfig", NULL });
        if (check_failed(&c))
                return check_end_config(&c, err);
        *ret = json_pack("{s:s, s:s, s:o}", "pluginKey", plugin, "driverKey", driver,
                         "driverConfig", inner ? json_copy(inner) : json_object());
        return 0;
}

static int driver_plan(struct op *op, struct runtime *rt, const struct environment *env,
                       const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        struct plugin_target target;
        const char *plugin, *driver;
        json_t *config = NULL;
        int r = kind_config(op, &kind_plugin_driver, env, &config, err);

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
                .config = plugin_place_config(op, &target, json_get_object(config, "driverConfig"),
                                              NULL),
                .has_world = true,
        };
        return 0;
}

static int driver_close(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err)
{
        return plugin_place_give_up(op, rt, place, place->attempts > 0, err);
}

static json_t *driver_summary(const json_t *metadata, const char *local, const char *remote,
                              const char *cwd)
{
        return json_sprintf("Plugin workspace realized at %s.", cwd      ? cwd
                                                                : remote ? remote
                                                                         : local);
}

static const struct workspace_way *const synced[] = { &workspace_sync, &workspace_archive, NULL };

static const struct kind_realization driver_realization = {
        .strategy = "provider_defined",
        .prepare = "The provider prepares the workspace.",
        .sync_back = "The provider brings changes back.",
        .summary = driver_summary,
};

const struct kind kind_plugin_driver = {
        .driver = "plugin",
        .label = "sandbox",
        .isolation = "as its plugin makes it, not isolated",
        .is_elsewhere = true,
        .closes_by_id = true,
        .can_destroy = true,
        .normalize = driver_normalize,
        .has_secrets_by_schema = true,
        .keeps_references = true,
        .validate = plugin_validate_driver,
        .probe = plugin_probe_driver,
        .plan = driver_plan,
        .open = plugin_place_open,
        .close = driver_close,
        .describe = plugin_place_describe,
        .resume_lease = plugin_lease_resume,
        .realize = plugin_lease_realize,
        .admit_exec = plugin_lease_admit_exec,
        .prepare_exec = plugin_lease_prepare_exec,
        .route = plugin_box_route_of,
        .bring_box = plugin_box_bring,
        .transfer = plugin_transfer_of,
        .end_commands = plugin_place_end_commands,
        .ways = synced,
        .ways_copy = synced,
        .realization = &driver_realization,
};
