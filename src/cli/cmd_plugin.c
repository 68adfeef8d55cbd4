/* `berth plugin`. Fetching a package takes a while: it runs in the daemon, and its progress is
 * asked for and shown on standard error. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "cli/command.h"

static const char *plugin_path(struct cli *c, const char *given, const char *rest)
{
        return cli_printf(c, "/api/plugins/%s%s", cli_escape(c, given), rest);
}

/* `key`: the member to print of each; NULL: they are strings. */
static void print_strings(const char *label, const json_t *list, const char *key)
{
        json_t *item;
        size_t i;

        json_array_foreach(list, i, item) out_label(
                i ? "" : label, COLUMN_TEXT, key ? cli_text(item, key) : json_string_value(item));
}

static void print_plugin(struct cli *c, const json_t *plugin)
{
        const json_t *manifest = json_object_get(plugin, "manifestJson");
        const json_t *pending = json_object_get(plugin, "pendingUpgrade");

        fields_print(c, plugin,
                     FIELDS({ "Key", "pluginKey" }, { "Id", "id", COLUMN_ID },
                            { "Name", "manifestJson.displayName" },
                            { "Status", "status", COLUMN_STATE }, { "Version", "version" },
                            { "Package", "packageName" }, { "Npm version", "packageVersion" },
                            { "Path", "packagePath", .optional = true },
                            { "Checksum", "checksum", COLUMN_ID }));
        print_strings("Drivers", json_object_get(manifest, "environmentDrivers"), "driverKey");
        print_strings("Capabilities", json_object_get(manifest, "capabilities"), NULL);
        fields_print(c, plugin, FIELDS({ "Error", "lastError", COLUMN_ID, .optional = true }));
        if (pending) {
                out_label("Waiting", COLUMN_TEXT, cli_text(pending, "version"));
                print_strings("  wants", json_object_get(pending, "addedCapabilities"), NULL);
        }
        out_label("Installed", COLUMN_TIME, cli_text(plugin, "installedAt"));
}

static const struct cli_kind kind_plugin = {
        .what = "plugin",
        .path = "/api/plugins",
        .print = print_plugin,
};

static int plugin_exit_status(const json_t *plugin)
{
        return streq(cli_text(plugin, "status"), "error") ? 1 : 0;
}

/* -- health ----------------------------------------------------------------------------------- */

static const char *passed_text(struct cli *c UNUSED, const json_t *check)
{
        return json_is_true(json_object_get(check, "passed")) ? "ok" : "failed";
}

static void print_health(struct cli *c, const json_t *board)
{
        list_print(c, json_object_get(json_object_get(board, "health"), "checks"),
                   FIELDS({ "CHECK", "name" },
                          { "RESULT", .kind = COLUMN_STATE, .text = passed_text },
                          { "MESSAGE", "message" }),
                   "no checks");
        if (json_is_object(json_object_get(board, "worker")))
                fields_print(c, json_object_get(board, "worker"),
                             FIELDS({ "Worker", "status", COLUMN_STATE }, { "Process", "pid" },
                                    { "Crashes", "totalCrashes" }, { "Calls", "pendingRequests" }));
}

static int plugin_health_status(const json_t *board)
{
        const json_t *health = json_object_get(board, "health");

        return json_is_true(json_object_get(health, "healthy")) ? 0 : 1;
}

/* -- sandbox-check ---------------------------------------------------------------------------- */

static const char *check_result(struct cli *c UNUSED, const json_t *check)
{
        if (!json_is_true(json_object_get(check, "reached")))
                return "closed";
        return json_is_true(json_object_get(check, "allowed")) ? "open" : "failed";
}

static int reach_status(const json_t *report)
{
        return json_is_true(json_object_get(report, "ok")) ? 0 : 1;
}

static void print_reach(struct cli *c, const json_t *report)
{
        const char *why = cli_text(report, "viewReason");

        list_print(c, json_object_get(report, "checks"),
                   FIELDS({ "CHECK", "name" },
                          { "RESULT", .kind = COLUMN_STATE, .text = check_result },
                          { "WHAT", "what" }, { "", "detail" }),
                   "no checks");
        out_label("User", COLUMN_TEXT, cli_text(report, "user"));
        out_label("View", COLUMN_TEXT, *why ? cli_printf(c, "none: %s", why) : "its own");
        out_label("Landlock", COLUMN_TEXT,
                  cli_printf(c, "version %lld",
                             (long long)json_integer_value(json_object_get(report, "landlock"))));
        if (reach_status(report) != 0)
                out_error("the worker can reach what it should not: see the lines that failed");
}

/* -- logs ------------------------------------------------------------------------------------- */

/* The API gives the newest first; people read downwards. */
static void print_logs(struct cli *c UNUSED, const json_t *list)
{
        for (size_t i = json_array_size(list); i-- > 0;) {
                const json_t *line = json_array_get(list, i);

                out_line("%s %-5s %s", cli_text(line, "createdAt"), cli_text(line, "level"),
                         cli_text(line, "message"));
        }
}

#define ASK_AGAIN_MS 100

/* -- Progress --------------------------------------------------------------------------------- */

/* Until the operation has ended; then the plugin as it is. */
static int follow_operation(struct cli *c, const char *operation, bool quiet, json_t **ret,
                            struct err *err)
{
        json_t *progress = NULL, *line;
        json_int_t next = 0;
        size_t i;
        int r;

        for (;;) {
                r = cli_call(c, "GET",
                             cli_printf(c, "/api/plugins/operations/%s?after=%lld", operation,
                                        (long long)next),
                             NULL, &progress, err);
                if (r < 0)
                        return r;
                json_array_foreach(json_object_get(progress, "lines"), i, line)
                {
                        if (!quiet)
                                out_note("%s", json_string_value(line));
                }
                next = json_integer_value(json_object_get(progress, "next"));
                if (json_is_true(json_object_get(progress, "done")))
                        break;
                (void)poll(NULL, 0, ASK_AGAIN_MS);
        }
        const char *error = json_get_string(progress, "error");
        if (error)
                return err_set(err,
                               json_integer_value(json_object_get(progress, "status")) == 409
                                       ? ERR_CONFLICT
                                       : ERR_INVALID,
                               "%s", error);
        return cli_call(c, "GET", plugin_path(c, cli_text(progress, "pluginId"), ""), NULL, ret,
                        err);
}

/* Begin with the body given, and see it through. A plugin that does not run is a failure. */
static int perform_operation(struct cli *c, const struct args *a, const char *path,
                             json_t *take_body, struct err *err)
{
        json_t *begun, *plugin;

        json_object_set_new(take_body, "wait", json_false());
        int r = cli_call(c, "POST", path, take_body, &begun, err);
        if (r >= 0)
                r = follow_operation(c, cli_text(begun, "operationId"), args_flag(a, "quiet"),
                                     &plugin, err);
        if (r < 0)
                return r;
        cli_show(c, &kind_plugin, plugin);
        return plugin_exit_status(plugin);
}

/* -- install ---------------------------------------------------------------------------------- */

static int read_package(struct cli *c, const struct args *a, json_t **ret, struct err *err)
{
        const char *given = a->words[0], *version = args_value(a, "version");
        const char *at = strchr(given + 1, '@');
        char real[PATH_MAX];

        /* A name from npm has a slash only after its scope. */
        if (args_flag(a, "local") || *given == '.' || (*given != '@' && strchr(given, '/'))) {
                if (version)
                        return err_set(err, ERR_USAGE, "--version goes with a package from npm");
                if (!realpath(given, real))
                        return err_sys(err, ERR_USAGE, errno, "%s", given);
                *ret = json_pack("{s:s, s:b}", "packageName", real, "isLocalPath", 1);
                return 0;
        }
        if (at && version)
                return err_set(err, ERR_USAGE, "the version is given twice: '%s' and '%s'", at + 1,
                               version);
        *ret = json_pack("{s:s, s:b, s:s*}", "packageName",
                         at ? cli_printf(c, "%.*s", (int)(at - given), given) : given,
                         "isLocalPath", 0, "version", at ? at + 1 : version);
        return 0;
}

static int cmd_plugin_install(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body;

        if (!*a->words[0])
                return err_set(err, ERR_USAGE, "the name of the package is empty");
        int r = read_package(c, a, &body, err);
        return r < 0 ? r : perform_operation(c, a, "/api/plugins/install", body, err);
}

/* -- upgrade ---------------------------------------------------------------------------------- */

static int cmd_plugin_upgrade(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = json_pack("{s:s*}", "version", args_value(a, "version"));

        if (args_flag(a, "approve"))
                json_object_set_new(body, "approve", json_true());
        return perform_operation(c, a, plugin_path(c, a->words[0], "/upgrade"), body, err);
}

/* -- uninstall -------------------------------------------------------------------------------- */

static int cmd_plugin_uninstall(struct cli *c, const struct args *a, struct err *err)
{
        bool purge = args_flag(a, "purge") || args_flag(a, "force");
        json_t *plugin;
        int r = 0;

        if (!args_flag(a, "yes"))
                r = cli_confirm(cli_printf(c, "Uninstall plugin '%s'%s?", a->words[0],
                                           purge ? " and forget all about it" : ""),
                                err);
        if (r >= 0)
                r = cli_call(c, "DELETE", plugin_path(c, a->words[0], purge ? "?purge=true" : ""),
                             NULL, &plugin, err);
        if (r >= 0)
                cli_answer(c, plugin, "uninstalled %s", cli_text(plugin, "pluginKey"));
        return r;
}

/* -- config ----------------------------------------------------------------------------------- */

/* Status 1 when the plugin refuses it. */
static int try_plugin_config(struct cli *c, const char *given, json_t *take_body, struct err *err)
{
        json_t *verdict;
        int r = cli_call(c, "POST", plugin_path(c, given, "/config/test"), take_body, &verdict,
                         err);

        if (r < 0)
                return r;
        bool valid = json_is_true(json_object_get(verdict, "valid"));
        const char *message = cli_text(verdict, "message");
        cli_answer(c, verdict, "%s%s%s", valid ? "valid" : "not valid", *message ? ": " : "",
                   message);
        return valid ? 0 : 1;
}

static int cmd_plugin_config(struct cli *c, const struct args *a, struct err *err)
{
        const char *path = plugin_path(c, a->words[0], "/config");
        json_t *config, *saved;
        int r = cli_config(a, &config, err);

        if (r < 0)
                return r;
        if (!config && args_flag(a, "test"))
                return err_set(err, ERR_USAGE, "--test needs --config or -o");
        if (config && args_flag(a, "test"))
                return try_plugin_config(c, a->words[0], json_pack("{s:o}", "configJson", config),
                                         err);
        r = config ? cli_call(c, "POST", path, json_pack("{s:o}", "configJson", config), &saved,
                              err)
                   : cli_call(c, "GET", path, NULL, &saved, err);
        if (r < 0)
                return r;
        if (!config && !c->json && json_is_null(saved))
                out_note("no configuration was saved");
        else
                out_json(c->json ? saved : json_object_get(saved, "configJson"));
        return 0;
}

/* -- conformance ------------------------------------------------------------------------------ */

static int cmd_plugin_conformance(struct cli *c, const struct args *a, struct err *err)
{
        CLEAN(json_decrefp) json_t *config = NULL;
        CLEAN(cleanup_free) char *text = NULL;
        struct cli_conformance_options o = {
                .path = a->words[0],
                .driver = args_value(a, "driver"),
                .only = args_value(a, "only"),
                .json = c->json,
                .colour = out_is_terminal(),
        };
        int r = cli_config(a, &config, err);

        if (r < 0)
                return r;
        text = config ? json_to_text(config) : NULL;
        o.config = text;
        if (!c->hooks || !c->hooks->conformance)
                return err_set(err, ERR_NOT_IMPLEMENTED, "this program has no plugin host in it");
        return c->hooks->conformance(&o);
}

/* -- the table -------------------------------------------------------------------------------- */

#define QUIET_OPTION OPTION("quiet", NULL, "do not show the progress", 'q')

#define CONFIG_OPTION                                                                              \
        OPTION("option", "KEY=VALUE", "one value of it; KEY=@FILE, KEY:=JSON", 'o', true)

const struct cli_command plugin_commands[] = {
        { "list", "[--status STATUS]", "List plugins", "berth plugin list",
          .options =
                  OPTIONS({ "status", "STATUS",
                            "installed, ready, disabled, error, upgrade_pending or uninstalled" }),
          .act = { NULL, "GET", "/api/plugins", .members = MEMBERS({ "status", "status" }),
                   .columns = FIELDS({ "KEY", "pluginKey", COLUMN_ID },
                                     { "STATUS", "status", COLUMN_STATE }, { "VERSION", "version" },
                                     { "PACKAGE", "packageName" }, { "ID", "id", COLUMN_ID },
                                     { "ERROR", "lastError" }),
                   .none = "no plugins" } },
        { "show", "KEY|ID", "Show one plugin", "berth plugin show acme.sandbox", .words = 1,
          .act = { &kind_plugin } },
        { "install", "PACKAGE[@VERSION]|PATH|berth:NAME [OPTION]...",
          "Fetch a plugin with npm, or take one from a directory, and start it",
          "berth plugin install acme-sandbox@1.2.0", .words = 1,
          .notes =
                  "Packages are fetched without running their scripts. A word with a slash,\n"
                  "unless it begins with @, is a directory, which is used where it is. berth:NAME is\n"
                  "a provider that comes with Berth: cloudflare, daytona, e2b (docs/providers.md).\n"
                  "Exit status 1 when the plugin does not start.",
          .options = OPTIONS({ "local", NULL, "a directory of the daemon's machine", 'l' },
                             { "version", "VERSION", "version or range; also PACKAGE@VERSION" },
                             QUIET_OPTION),
          .run = cmd_plugin_install },
        { "enable", "KEY|ID", "Start a plugin that was disabled or failed",
          "berth plugin enable acme.sandbox", .words = 1,
          .act = { &kind_plugin, "POST", "/enable", .status = plugin_exit_status } },
        { "disable", "KEY|ID [--reason TEXT]", "Stop a plugin until it is enabled again",
          "berth plugin disable acme.sandbox --reason 'costs too much'", .words = 1,
          .options = OPTIONS({ "reason", "TEXT", "why; shown with the plugin" }),
          .act = { &kind_plugin, "POST", "/disable", .members = MEMBERS({ "reason", "reason" }),
                   .status = plugin_exit_status } },
        { "upgrade", "KEY|ID [--version VERSION] [--approve]",
          "Fetch a newer version and switch to it", "berth plugin upgrade acme.sandbox", .words = 1,
          .notes =
                  "The old version runs until the new one has started, and again when it does "
                  "not.\n"
                  "A version that wants more rights waits: see berth plugin approve. For a plugin\n"
                  "from a directory, take over what is in it now.",
          .options = OPTIONS({ "version", "VERSION", "version or range (the newest)" },
                             { "approve", NULL, "take it even when it wants more rights" },
                             QUIET_OPTION),
          .run = cmd_plugin_upgrade },
        { "approve", "KEY|ID [--reject]", "Approve a version that asks for more rights",
          "berth plugin approve acme.sandbox", .words = 1,
          .options = OPTIONS({ "reject", NULL, "throw the waiting version away instead" }),
          .act = { &kind_plugin, "POST", "/approve",
                   .members = MEMBERS({ "reject", "reject", MEMBER_BOOL }),
                   .status = plugin_exit_status } },
        { "uninstall", "KEY|ID [--purge] [--yes]", "Stop a plugin and remove its files",
          "berth plugin uninstall acme.sandbox --yes", .words = 1,
          .notes = "Its row stays, so that it can be installed again and give up what it still "
                   "holds.",
          .options = OPTIONS(
                  { "purge", NULL, "remove its row, configuration and files of its own, too" },
                  { "force", NULL, NULL }, /* Paperclip's name for it */
                  { "yes", NULL, "do not ask", 'y' }),
          .run = cmd_plugin_uninstall },
        { "config", "KEY|ID [--config JSON|@FILE] [-o KEY=VALUE]... [--test]",
          "Show or save the configuration of a plugin",
          "berth plugin config acme.sandbox -o region=eu", .words = 1,
          .notes = "This is the plugin's own; what a sandbox needs is in its environment.",
          .options = OPTIONS({ "config", "JSON|@FILE", "save this" }, CONFIG_OPTION,
                             { "test", NULL, "ask the plugin instead of saving" }),
          .run = cmd_plugin_config },
        { "logs", "KEY|ID [--limit N] [--level LEVEL]",
          "Show the last log lines of a plugin's worker",
          "berth plugin logs acme.sandbox --level warn", .words = 1,
          .notes = "They are kept in memory, so a restart of the daemon forgets them.",
          .options = OPTIONS({ "limit", "N", "how many lines (100, at most 500)" },
                             { "level", "LEVEL", "debug, info, warn or error" }),
          .act = { &kind_plugin, "GET", "/logs",
                   .members =
                           MEMBERS({ "limit", "limit", .otherwise = "100" }, { "level", "level" }),
                   .print = print_logs } },
        { "health", "KEY|ID", "Show the health of a plugin and its worker",
          "berth plugin health acme.sandbox", .words = 1,
          .notes = "Exit status 1 when it is not healthy.",
          .act = { &kind_plugin, "GET", "/dashboard", .print = print_health,
                   .status = plugin_health_status } },
        { "sandbox-check", "KEY|ID", "Try what the worker of a plugin could reach",
          "berth plugin sandbox-check acme.sandbox", .words = 1,
          .notes =
                  "The probes run in the place of the worker, confined as it is: files of the "
                  "daemon and of\n"
                  "others, its process, namespaces, sockets, the kernel. `open` may be reached: the\n"
                  "network, and what plugin_paths names. Exit status 1 when anything else can be.",
          .act = { &kind_plugin, "POST", "/sandbox-check", .print = print_reach,
                   .status = reach_status } },
        { "conformance", "PATH [--driver KEY] [-o KEY=VALUE]... [--only TEXT]",
          "Test a provider in a directory; needs no daemon",
          "berth plugin conformance ./my-provider", .words = 1,
          .notes = "Starts its worker and makes real calls: a provider of real sandboxes needs a\n"
                   "configuration that works, and makes and destroys a few. Exit status 1 when a\n"
                   "check fails.",
          .options =
                  OPTIONS({ "driver", "KEY", "the driver to test (the first)" },
                          { "config", "JSON|@FILE", "configuration of the environment" },
                          CONFIG_OPTION, { "only", "TEXT", "only checks with this in their name" }),
          .run = cmd_plugin_conformance },
        { 0 },
};
