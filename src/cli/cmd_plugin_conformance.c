/* `berth plugin conformance`: only the command line is read here; the tests are a hook (cli.h). */
#include "cli/cmd_plugin.h"
#include "cli/output.h"

static int run_conformance(struct cli *c, const struct args *a, struct err *err)
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
        if (config)
                o.config = text = json_to_text(config);
        if (!c->hooks || !c->hooks->conformance)
                return err_set(err, ERR_NOT_IMPLEMENTED, "this program has no plugin host in it");
        return c->hooks->conformance(&o);
}

static const struct cli_option options[] = {
        { "driver", 0, OPTION_VALUE, "KEY", "the driver to test (the first)" },
        { "config", 0, OPTION_VALUE, "JSON|@FILE", "configuration of the environment" },
        { "option", 'o', OPTION_LIST, "KEY=VALUE", "one value of it; KEY=@FILE, KEY:=JSON" },
        { "only", 0, OPTION_VALUE, "TEXT", "only checks with this in their name" },
        { 0 },
};

const struct cli_command cmd_plugin_conformance = {
        .name = "conformance",
        .synopsis = "PATH [--driver KEY] [-o KEY=VALUE]... [--only TEXT]",
        .summary = "Test a provider in a directory; needs no daemon",
        .notes = "Starts its worker and makes real calls: a provider of real sandboxes needs a\n"
                 "configuration that works, and makes and destroys a few. Exit status 1 when a\n"
                 "check fails.",
        .example = "berth plugin conformance ./my-provider",
        .options = options,
        .run = run_conformance,
        .min_words = 1,
        .max_words = 1,
};
