/* `berth help COMMAND`: the same as `berth COMMAND --help`. */
#include "cli/command.h"

int cmd_help(struct cli *c, const struct args *a, struct err *err)
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
