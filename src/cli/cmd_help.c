#include "cli/command.h"

static int run_help(struct cli *c, const struct args *a, struct err *err);

const struct cli_command cmd_help = {
        .name = "help",
        .synopsis = "[COMMAND]...",
        .summary = "Show help for a command",
        .example = "berth help env create",
        .run = run_help,
        .max_words = 3,
};

static int run_help(struct cli *c, const struct args *a, struct err *err)
{
        const struct cli_command *command = &cli_top;
        const char *path = "berth";

        for (size_t i = 0; i < a->n_words; i++) {
                const struct cli_command *next =
                        command->sub ? cli_find_command(command->sub, a->words[i]) : NULL;

                if (!next && !command->sub)
                        return err_set(err, ERR_USAGE, "'%s' has no subcommands", path);
                if (!next)
                        return cli_unknown_command(command->sub, path, a->words[i], err);
                command = next;
                path = cli_printf(c, "%s %s", path, command->name);
        }
        cli_print_help(path, command);
        return 0;
}
