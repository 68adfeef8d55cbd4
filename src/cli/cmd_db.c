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

static const struct cli_option backup_options[] = {
        { "replace", 0, OPTION_FLAG, NULL, "overwrite FILE when it exists" },
        { 0 },
};

static const struct cli_option restore_options[] = {
        { "replace", 0, OPTION_FLAG, NULL, "put the database that is there aside" },
        { 0 },
};

static const struct cli_command backup = {
        .name = "backup",
        .synopsis = "FILE|DIR [--replace]",
        .summary = "Copy the database as it is now, beside a running daemon",
        .notes = "The copy is checked, and there only when it is complete. Secrets are in it as\n"
                 "they are sealed: the master key is not, nor are files beside the database.",
        .example = "berth db backup /var/backups",
        .options = backup_options,
        .run = run_backup,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command restore = {
        .name = "restore",
        .synopsis = "FILE [--replace]",
        .summary = "Make a backup the database of a data directory that no daemon uses",
        .notes = "It becomes an instance of its own: what the backup had under way is ended in\n"
                 "the record, and nothing in the world is touched. See berth leaks.",
        .example = "berth db restore /var/backups/berth.db --data /var/lib/berth",
        .options = restore_options,
        .run = run_restore,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command check = {
        .name = "check",
        .synopsis = "[FILE]",
        .summary = "Look for damage in the database, or in a backup",
        .notes = "Also beside a running daemon. Exit status 0 and 'no findings', or 1.",
        .example = "berth db check",
        .run = run_check,
        .max_words = 1,
};

const struct cli_command cmd_db = {
        .name = "db",
        .synopsis = "backup|restore|check",
        .summary = "Back the database up, restore and check it",
        .example = "berth db backup /var/backups",
        .sub = (const struct cli_command *const[]){ &backup, &restore, &check, NULL },
};
