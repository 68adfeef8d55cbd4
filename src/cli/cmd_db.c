/* `berth db`: only the command line is read here; the database is the daemon's (cli.h). */
#include "cli/command.h"

static int run_database(struct cli *c, const struct args *a, int action, struct err *err)
{
        struct cli_database_options o = {
                .action = action,
                .data = c->data,
                .file = a->n_words > 0 ? a->words[0] : NULL,
                .replace = action != DATABASE_CHECK && args_flag(a, "replace"),
                .json = c->json,
        };

        if (!c->hooks || !c->hooks->database)
                return err_set(err, ERR_NOT_IMPLEMENTED, "this program has no daemon in it");
        return c->hooks->database(&o);
}

static int run_backup(struct cli *c, const struct args *a, struct err *err)
{
        return run_database(c, a, DATABASE_BACKUP, err);
}

static int run_restore(struct cli *c, const struct args *a, struct err *err)
{
        return run_database(c, a, DATABASE_RESTORE, err);
}

static int run_check(struct cli *c, const struct args *a, struct err *err)
{
        return run_database(c, a, DATABASE_CHECK, err);
}

const struct cli_command db_commands[] = {
        { "backup", "FILE|DIR [--replace]",
          "Copy the database as it is now, beside a running daemon", "berth db backup /var/backups",
          .words = 1,
          .notes = "The copy is checked, and there only when it is complete. Secrets are in it as\n"
                   "they are sealed: the master key is not, nor are files beside the database.",
          .options = OPTIONS({ "replace", NULL, "overwrite FILE when it exists" }),
          .run = run_backup },
        { "restore", "FILE [--replace]",
          "Make a backup the database of a data directory that no daemon uses",
          "berth db restore /var/backups/berth.db --data /var/lib/berth", .words = 1,
          .notes = "It becomes an instance of its own: what the backup had under way is ended in\n"
                   "the record, and nothing in the world is touched. See berth leaks.",
          .options = OPTIONS({ "replace", NULL, "put the database that is there aside" }),
          .run = run_restore },
        { "check", "[FILE]", "Look for damage in the database, or in a backup", "berth db check",
          .max_words = 1,
          .notes = "Also beside a running daemon. Exit status 0 and 'no findings', or 1.",
          .run = run_check },
        { 0 },
};
