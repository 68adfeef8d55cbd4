/* `berth serve`: only the command line is read here; the daemon is a hook (cli.h). */
#include "cli/command.h"

const struct cli_option serve_options[] = {
        { "listen", "ADDR:PORT", "where to listen (127.0.0.1:3100)" },
        { "database", "URL", "postgres://... instead of SQLite in the data directory" },
        { "mode", "MODE", "local_trusted (default) or authenticated" },
        { "log-level", "LEVEL", "debug, info (default), warn or error" },
        { "log-format", "FORMAT", "text (default) or json" },
        { "new-identity", NULL,
          "start a copied or moved data directory as an instance of its own" },
        { "private", NULL, NULL }, /* for `berth run`: cli/private.h */
        { 0 },
};

static int check_words(const struct cli_serve_options *o, struct err *err)
{
        static const char *const modes[] = { "local_trusted", "authenticated", NULL };
        static const char *const levels[] = { "debug", "info", "warn", "error", NULL };
        static const char *const formats[] = { "text", "json", NULL };
        int r = 0;

        if (o->mode)
                r = cli_one_of("--mode", o->mode, modes, err);
        if (r >= 0 && o->log_level)
                r = cli_one_of("--log-level", o->log_level, levels, err);
        if (r >= 0 && o->log_format)
                r = cli_one_of("--log-format", o->log_format, formats, err);
        if (r >= 0 && o->listen && !strrchr(o->listen, ':'))
                r = err_set(err, ERR_USAGE, "--listen: '%s' is not ADDR:PORT", o->listen);
        return r;
}

int cmd_serve(struct cli *c, const struct args *a, struct err *err)
{
        struct cli_serve_options o = {
                .listen = args_value(a, "listen"),
                .data = c->data_flag,
                .database = args_value(a, "database"),
                .log_level = args_value(a, "log-level"),
                .log_format = args_value(a, "log-format"),
                .mode = args_value(a, "mode"),
                .new_identity = args_flag(a, "new-identity"),
                .is_private = args_flag(a, "private"),
        };
        int r = check_words(&o, err);

        if (r < 0)
                return r;
        if (!c->hooks || !c->hooks->serve)
                return err_set(err, ERR_NOT_IMPLEMENTED, "this program has no daemon in it");
        return c->hooks->serve(&o);
}
