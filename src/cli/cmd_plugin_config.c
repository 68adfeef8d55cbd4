/* `berth plugin config`: show, save or try the configuration of a plugin as a whole. */
#include "cli/cmd_plugin.h"

static int show(struct cli *c, const char *given, struct err *err)
{
        json_t *config;
        int r = cli_call(c, "GET", plugin_path(c, given, "/config"), NULL, &config, err);

        if (r < 0)
                return r;
        if (!c->json && json_is_null(config))
                out_note("no configuration was saved");
        else
                out_json(c->json ? config : json_object_get(config, "configJson"));
        return 0;
}

/* Status 1 when the plugin refuses it. */
static int try_config(struct cli *c, const char *given, json_t *take_body, struct err *err)
{
        json_t *verdict;
        bool valid;
        int r = cli_call(c, "POST", plugin_path(c, given, "/config/test"), take_body, &verdict,
                         err);

        if (r < 0)
                return r;
        valid = json_is_true(json_object_get(verdict, "valid"));
        if (c->json)
                out_json(verdict);
        else
                out_line("%s%s%s", valid ? "valid" : "not valid",
                         *cli_text(verdict, "message") ? ": " : "", cli_text(verdict, "message"));
        return valid ? 0 : 1;
}

int cmd_plugin_config(struct cli *c, const struct args *a, struct err *err)
{
        json_t *config, *body, *saved;
        int r = cli_config(a, &config, err);

        if (r < 0)
                return r;
        if (!config && args_flag(a, "test"))
                return err_set(err, ERR_USAGE, "--test needs --config or -o");
        if (!config)
                return show(c, a->words[0], err);
        body = json_pack("{s:o}", "configJson", config);
        if (args_flag(a, "test"))
                return try_config(c, a->words[0], body, err);
        r = cli_call(c, "POST", plugin_path(c, a->words[0], "/config"), body, &saved, err);
        if (r < 0)
                return r;
        out_json(c->json ? saved : json_object_get(saved, "configJson"));
        return 0;
}
