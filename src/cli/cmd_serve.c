/* `berth serve` and `berth db`: only the command line is read here; the daemon and its database are
 * hooks (cli.h). */
#include "cli/command.h"
#include "cli/private.h"

/* -- serve ------------------------------------------------------------------------------------ */

const struct cli_option serve_options[] = {
        { "listen", "ADDR:PORT", "where to listen (127.0.0.1:3100)" },
        { "database", "URL", "postgres://... instead of SQLite in the data directory" },
        { "mode", "MODE", "local_trusted (default) or authenticated" },
        { "log-level", "LEVEL", "debug, info (default), warn or error" },
        { "log-format", "FORMAT", "text (default) or json" },
        { "new-identity", NULL,
          "start a copied or moved data directory as an instance of its own" },
        { "background", NULL,
          "return when it listens; messages go to berth.log in the data "
          "directory" },
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

/* The same command line, without --background. */
static int serve_in_background(struct cli *c, const struct args *a, struct err *err)
{
        const char *argv[4 + 2 * ARRAY_LEN(serve_options)] = { "berth", "serve", "--data" };
        CLEAN(cleanup_free) char *cwd = c->data[0] == '/' ? NULL : getcwd(NULL, 0);
        size_t n = 4;

        if (cwd)
                c->data = cli_printf(c, "%s/%s", cwd, c->data);
        argv[3] = c->data;
        for (const struct cli_option *o = serve_options; o->name; o++) {
                if (streq(o->name, "background"))
                        continue;
                if (o->value ? args_value(a, o->name) != NULL : args_flag(a, o->name))
                        argv[n++] = cli_printf(c, "--%s", o->name);
                if (o->value && args_value(a, o->name))
                        argv[n++] = args_value(a, o->name);
        }
        return private_background(c, argv, err);
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
        return args_flag(a, "background") ? serve_in_background(c, a, err) : c->hooks->serve(&o);
}

/* -- db --------------------------------------------------------------------------------------- */

static int run_database(struct cli *c, const struct args *a, int action, struct err *err)
{
        struct cli_database_options o = {
                .action = action,
                .data = c->data,
                .file = a->n_words > 0 ? a->words[0] : NULL,
                .to = a->n_words > 1 ? a->words[1] : NULL,
                .replace = (action == DATABASE_BACKUP || action == DATABASE_RESTORE) &&
                           args_flag(a, "replace"),
                .json = c->json,
        };

        if (!c->hooks || !c->hooks->database)
                return err_set(err, ERR_NOT_IMPLEMENTED, "this program has no daemon in it");
        return c->hooks->database(&o);
}

static int cmd_db_backup(struct cli *c, const struct args *a, struct err *err)
{
        return run_database(c, a, DATABASE_BACKUP, err);
}

static int cmd_db_restore(struct cli *c, const struct args *a, struct err *err)
{
        return run_database(c, a, DATABASE_RESTORE, err);
}

static int cmd_db_check(struct cli *c, const struct args *a, struct err *err)
{
        return run_database(c, a, DATABASE_CHECK, err);
}

static int cmd_db_migrate(struct cli *c, const struct args *a, struct err *err)
{
        return run_database(c, a, DATABASE_MIGRATE, err);
}

static int cmd_db_copy(struct cli *c, const struct args *a, struct err *err)
{
        return run_database(c, a, DATABASE_COPY, err);
}

const struct cli_command db_commands[] = {
        { "backup", "FILE|DIR [--replace]",
          "Copy the database as it is now, beside a running daemon", "berth db backup /var/backups",
          .words = 1,
          .notes = "The copy is checked, and there only when it is complete. Secrets are in it as\n"
                   "they are sealed: the master key is not, nor are files beside the database.",
          .options = OPTIONS({ "replace", NULL, "overwrite FILE when it exists" }),
          .run = cmd_db_backup },
        { "restore", "FILE [--replace]",
          "Make a backup the database of a data directory that no daemon uses",
          "berth db restore /var/backups/berth.db --data /var/lib/berth", .words = 1,
          .notes = "It becomes an instance of its own: what the backup had under way is ended in\n"
                   "the record, and nothing in the world is touched. See berth leaks.",
          .options = OPTIONS({ "replace", NULL, "put the database that is there aside" }),
          .run = cmd_db_restore },
        { "check", "[FILE]", "Look for damage in the database, or in a backup", "berth db check",
          .max_words = 1,
          .notes = "Also beside a running daemon. Exit status 0 and 'no findings', or 1.",
          .run = cmd_db_check },
        { "migrate", "", "Bring the tables of the database up to date, without a daemon",
          "berth db migrate",
          .notes = "A daemon does the same when it starts. No daemon may use the database.",
          .run = cmd_db_migrate },
        { "copy", "FROM TO", "Move the record from SQLite to PostgreSQL, or back",
          "berth db copy /var/lib/berth postgres://berth@db/berth", .words = 2,
          .notes =
                  "FROM and TO are a data directory or the URL of a database, which must be empty.\n"
                  "Every row is compared. No daemon may use either; FROM is put aside afterwards.",
          .run = cmd_db_copy },
        { 0 },
};
