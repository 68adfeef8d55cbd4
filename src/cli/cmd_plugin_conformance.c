/* `berth plugin conformance`: only the command line is read here; the tests are a hook (cli.h). */
#include "cli/cmd_plugin.h"

int cmd_plugin_conformance(struct cli *c, const struct args *a, struct err *err)
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
