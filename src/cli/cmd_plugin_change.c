/* `berth plugin install|upgrade|uninstall`. Fetching takes a while: it runs
 * in the daemon, and its progress is asked for and shown on standard error. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>

#include "base/clock.h"
#include "cli/cmd_plugin.h"

#define ASK_AGAIN_MS 100

/* -- Progress --------------------------------------------------------------------------------- */

static void print_lines(const json_t *progress, bool quiet)
{
        json_t *line;
        size_t i;

        json_array_foreach(json_object_get(progress, "lines"), i, line) if (!quiet)
                out_note("%s", json_string_value(line));
}

static int judge(const json_t *progress, struct err *err)
{
        const char *error = json_get_string(progress, "error");
        json_int_t status = json_integer_value(json_object_get(progress, "status"));

        if (!error)
                return 0;
        return err_set(err, status == 409 ? ERR_CONFLICT : ERR_INVALID, "%s", error);
}

/* Until the operation has ended; then the plugin as it is. */
static int follow(struct cli *c, const char *operation, bool quiet, json_t **ret, struct err *err)
{
        json_t *progress = NULL;
        json_int_t next = 0;
        int r;

        for (;;) {
                r = cli_call(c, "GET",
                             cli_printf(c, "/api/plugins/operations/%s?after=%lld", operation,
                                        (long long)next),
                             NULL, &progress, err);
                if (r < 0)
                        return r;
                print_lines(progress, quiet);
                next = json_integer_value(json_object_get(progress, "next"));
                if (json_is_true(json_object_get(progress, "done")))
                        break;
                (void)poll(NULL, 0, ASK_AGAIN_MS);
        }
        r = judge(progress, err);
        if (r < 0)
                return r;
        return cli_call(c, "GET", plugin_path(c, cli_text(progress, "pluginId"), ""), NULL, ret,
                        err);
}

/* Begin with the body given, and see it through. A plugin that does not run is a failure. */
static int perform(struct cli *c, const struct args *a, const char *path, json_t *take_body,
                   struct err *err)
{
        json_t *begun, *plugin;
        int r;

        json_object_set_new(take_body, "wait", json_false());
        r = cli_call(c, "POST", path, take_body, &begun, err);
        if (r >= 0)
                r = follow(c, cli_text(begun, "operationId"), args_flag(a, "quiet"), &plugin, err);
        if (r < 0)
                return r;
        cli_show(c, &kind_plugin, plugin);
        return plugin_exit_status(plugin);
}

/* -- install ---------------------------------------------------------------------------------- */

/* A name from npm has a slash only after its scope; `-l` says that any other word is a path, too.
 */
static bool is_path(const char *given)
{
        return *given == '.' || (*given != '@' && strchr(given, '/'));
}

static int read_package(struct cli *c, const struct args *a, json_t **ret, struct err *err)
{
        const char *given = a->words[0], *version = args_value(a, "version");
        const char *at = strchr(given + 1, '@');
        char real[PATH_MAX];

        if (args_flag(a, "local") || is_path(given)) {
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

int cmd_plugin_install(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body;
        int r;

        if (!*a->words[0])
                return err_set(err, ERR_USAGE, "the name of the package is empty");
        r = read_package(c, a, &body, err);
        return r < 0 ? r : perform(c, a, "/api/plugins/install", body, err);
}

/* -- upgrade ---------------------------------------------------------------------------------- */

int cmd_plugin_upgrade(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = json_pack("{s:s*}", "version", args_value(a, "version"));

        if (args_flag(a, "approve"))
                json_object_set_new(body, "approve", json_true());
        return perform(c, a, plugin_path(c, a->words[0], "/upgrade"), body, err);
}

/* -- uninstall -------------------------------------------------------------------------------- */

int cmd_plugin_uninstall(struct cli *c, const struct args *a, struct err *err)
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
        if (r < 0)
                return r;
        if (c->json)
                out_json(plugin);
        else
                out_line("uninstalled %s", cli_text(plugin, "pluginKey"));
        return 0;
}
