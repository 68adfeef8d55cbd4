/* `berth plugin`: looking at plugins. Changing them is in cmd_plugin_change.c. */
#include "cli/cmd_plugin.h"

#include "cli/output.h"

const char *plugin_path(struct cli *c, const char *given, const char *rest)
{
        return cli_printf(c, "/api/plugins/%s%s", cli_escape(c, given), rest);
}

static void print_drivers(const json_t *manifest)
{
        json_t *driver;
        size_t i;

        json_array_foreach(json_object_get(manifest, "environmentDrivers"), i, driver)
                out_label(i ? "" : "Drivers", COLUMN_TEXT, cli_text(driver, "driverKey"));
}

static void print_strings(const char *label, const json_t *list)
{
        json_t *item;
        size_t i;

        json_array_foreach(list, i, item)
                out_label(i ? "" : label, COLUMN_TEXT, json_string_value(item));
}

void plugin_print(struct cli *c, const json_t *plugin)
{
        const json_t *manifest = json_object_get(plugin, "manifestJson");
        const json_t *pending = json_object_get(plugin, "pendingUpgrade");

        if (c->json) {
                out_json(plugin);
                return;
        }
        out_label("Key", COLUMN_TEXT, cli_text(plugin, "pluginKey"));
        out_label("Id", COLUMN_ID, cli_text(plugin, "id"));
        out_label("Name", COLUMN_TEXT, cli_text(manifest, "displayName"));
        out_label("Status", COLUMN_STATE, cli_text(plugin, "status"));
        out_label("Version", COLUMN_TEXT, cli_text(plugin, "version"));
        out_label("Package", COLUMN_TEXT, cli_text(plugin, "packageName"));
        out_label("Npm version", COLUMN_TEXT, cli_text(plugin, "packageVersion"));
        if (*cli_text(plugin, "packagePath"))
                out_label("Path", COLUMN_TEXT, cli_text(plugin, "packagePath"));
        out_label("Checksum", COLUMN_ID, cli_text(plugin, "checksum"));
        print_drivers(manifest);
        print_strings("Capabilities", json_object_get(manifest, "capabilities"));
        if (*cli_text(plugin, "lastError"))
                out_label("Error", COLUMN_ID, cli_text(plugin, "lastError"));
        if (pending) {
                out_label("Waiting", COLUMN_TEXT, cli_text(pending, "version"));
                print_strings("  wants", json_object_get(pending, "addedCapabilities"));
        }
        out_label("Installed", COLUMN_TIME, cli_text(plugin, "installedAt"));
}

/* -- list ------------------------------------------------------------------------------------- */

static int run_list(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = {
                { "KEY", COLUMN_ID },       { "STATUS", COLUMN_STATE }, { "VERSION", COLUMN_TEXT },
                { "PACKAGE", COLUMN_TEXT }, { "ID", COLUMN_ID },        { "ERROR", COLUMN_TEXT },
        };
        const char *status = args_value(a, "status");
        CLEAN(table_done) struct table t;
        json_t *list, *item;
        size_t i;
        int r;

        table_init(&t, columns, ARRAY_LEN(columns));
        r = cli_call_list(c,
                          cli_printf(c, "/api/plugins%s%s", status ? "?status=" : "",
                                     status ? cli_escape(c, status) : ""),
                          &list, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item) table_row(
                &t, (const char *[]){ cli_text(item, "pluginKey"), cli_text(item, "status"),
                                      cli_text(item, "version"), cli_text(item, "packageName"),
                                      cli_text(item, "id"), cli_text(item, "lastError") });
        table_print(&t, "no plugins");
        return 0;
}

/* -- show ------------------------------------------------------------------------------------- */

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        json_t *plugin;
        int r = cli_call(c, "GET", plugin_path(c, a->words[0], ""), NULL, &plugin, err);

        if (r < 0)
                return r;
        plugin_print(c, plugin);
        return 0;
}

/* -- health ----------------------------------------------------------------------------------- */

static void print_worker(const json_t *worker)
{
        CLEAN(cleanup_free) char *pid = out_scalar(json_object_get(worker, "pid"));
        CLEAN(cleanup_free) char *crashes = out_scalar(json_object_get(worker, "totalCrashes"));
        CLEAN(cleanup_free) char *calls = out_scalar(json_object_get(worker, "pendingRequests"));

        out_label("Worker", COLUMN_STATE, cli_text(worker, "status"));
        out_label("Process", COLUMN_TEXT, pid);
        out_label("Crashes", COLUMN_TEXT, crashes);
        out_label("Calls", COLUMN_TEXT, calls);
}

/* Status 1 when it is not healthy, so that scripts can ask. */
static int run_health(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = { { "CHECK", COLUMN_TEXT },
                                                 { "RESULT", COLUMN_STATE },
                                                 { "MESSAGE", COLUMN_TEXT } };
        CLEAN(table_done) struct table t;
        json_t *board, *health, *check;
        bool healthy;
        size_t i;
        int r;

        table_init(&t, columns, ARRAY_LEN(columns));
        r = cli_call(c, "GET", plugin_path(c, a->words[0], "/dashboard"), NULL, &board, err);
        if (r < 0)
                return r;
        health = json_object_get(board, "health");
        healthy = json_is_true(json_object_get(health, "healthy"));
        if (c->json) {
                out_json(board);
                return healthy ? 0 : 1;
        }
        json_array_foreach(json_object_get(health, "checks"), i, check) table_row(
                &t,
                (const char *[]){ cli_text(check, "name"),
                                  json_is_true(json_object_get(check, "passed")) ? "ok" : "failed",
                                  cli_text(check, "message") });
        table_print(&t, "no checks");
        if (json_is_object(json_object_get(board, "worker")))
                print_worker(json_object_get(board, "worker"));
        return healthy ? 0 : 1;
}

/* -- sandbox-check ------------------------------------------------------------------------------
 */

static const char *check_result(const json_t *check)
{
        if (!json_is_true(json_object_get(check, "reached")))
                return "closed";
        return json_is_true(json_object_get(check, "allowed")) ? "open" : "failed";
}

/* Status 1 when something can be reached that should not be. */
static int run_sandbox_check(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = { { "CHECK", COLUMN_TEXT },
                                                 { "RESULT", COLUMN_STATE },
                                                 { "WHAT", COLUMN_TEXT },
                                                 { "", COLUMN_TEXT } };
        CLEAN(table_done) struct table t;
        json_t *report, *check;
        const char *why;
        bool ok;
        size_t i;
        int r;

        table_init(&t, columns, ARRAY_LEN(columns));
        r = cli_call(c, "POST", plugin_path(c, a->words[0], "/sandbox-check"), NULL, &report, err);
        if (r < 0)
                return r;
        ok = json_is_true(json_object_get(report, "ok"));
        if (c->json) {
                out_json(report);
                return ok ? 0 : 1;
        }
        json_array_foreach(json_object_get(report, "checks"), i, check) table_row(
                &t, (const char *[]){ cli_text(check, "name"), check_result(check),
                                      cli_text(check, "what"), cli_text(check, "detail") });
        table_print(&t, "no checks");
        why = cli_text(report, "viewReason");
        out_label("User", COLUMN_TEXT, cli_text(report, "user"));
        out_label("View", COLUMN_TEXT, *why ? cli_printf(c, "none: %s", why) : "its own");
        out_label("Landlock", COLUMN_TEXT,
                  cli_printf(c, "version %lld",
                             (long long)json_integer_value(json_object_get(report, "landlock"))));
        if (!ok)
                out_error("the worker can reach what it should not: see the lines that failed");
        return ok ? 0 : 1;
}

/* -- logs ------------------------------------------------------------------------------------- */

static int run_logs(struct cli *c, const struct args *a, struct err *err)
{
        const char *limit = args_value(a, "limit"), *level = args_value(a, "level");
        json_t *list;
        int r;

        r = cli_call_list(c,
                          cli_printf(c, "%s?limit=%s%s%s", plugin_path(c, a->words[0], "/logs"),
                                     cli_escape(c, limit ? limit : "100"), level ? "&level=" : "",
                                     level ? cli_escape(c, level) : ""),
                          &list, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        /* The API gives the newest first; people read downwards. */
        for (size_t i = json_array_size(list); i-- > 0;) {
                const json_t *line = json_array_get(list, i);

                out_line("%s %-5s %s", cli_text(line, "createdAt"), cli_text(line, "level"),
                         cli_text(line, "message"));
        }
        return 0;
}

static const struct cli_option list_options[] = {
        { "status", 0, OPTION_VALUE, "STATUS",
          "installed, ready, disabled, error, upgrade_pending or uninstalled" },
        { 0 },
};

static const struct cli_option log_options[] = {
        { "limit", 0, OPTION_VALUE, "N", "how many lines (100, at most 500)" },
        { "level", 0, OPTION_VALUE, "LEVEL", "debug, info, warn or error" },
        { 0 },
};

static const struct cli_command list = {
        .name = "list",
        .synopsis = "[--status STATUS]",
        .summary = "List plugins",
        .example = "berth plugin list",
        .options = list_options,
        .run = run_list,
};

static const struct cli_command show = {
        .name = "show",
        .synopsis = "KEY|ID",
        .summary = "Show one plugin",
        .example = "berth plugin show acme.sandbox",
        .run = run_show,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command health = {
        .name = "health",
        .synopsis = "KEY|ID",
        .summary = "Show how a plugin and its worker are",
        .notes = "Exit status 1 when it is not healthy.",
        .example = "berth plugin health acme.sandbox",
        .run = run_health,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command sandbox_check = {
        .name = "sandbox-check",
        .synopsis = "KEY|ID",
        .summary = "Try what the worker of a plugin could reach",
        .notes =
                "The probes run in the place of the worker, confined as it is: files of the daemon "
                "and of\n"
                "others, its process, namespaces, sockets, the kernel. `open` may be reached: the\n"
                "network, and what plugin_paths names. Exit status 1 when anything else can be.",
        .example = "berth plugin sandbox-check acme.sandbox",
        .run = run_sandbox_check,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command logs = {
        .name = "logs",
        .synopsis = "KEY|ID [--limit N] [--level LEVEL]",
        .summary = "Show what the worker said last",
        .notes = "They are kept in memory, so a restart of the daemon forgets them.",
        .example = "berth plugin logs acme.sandbox --level warn",
        .options = log_options,
        .run = run_logs,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_plugin = {
        .name = "plugin",
        .synopsis = "",
        .summary = "Install, look after and test plugins that provide sandboxes",
        .example = "berth plugin list",
        .sub = (const struct cli_command *const[]){ &list, &show, &cmd_plugin_install,
                                                    &cmd_plugin_enable, &cmd_plugin_disable,
                                                    &cmd_plugin_upgrade, &cmd_plugin_approve,
                                                    &cmd_plugin_uninstall, &cmd_plugin_config,
                                                    &logs, &health, &sandbox_check,
                                                    &cmd_plugin_conformance, NULL },
};
