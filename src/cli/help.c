/* Help, made from the table of commands so that it cannot differ from what is understood. */
#include <stdio.h>

#include "cli/command.h"
#include "cli/suggest.h"

static int option_width(const struct cli_option *o)
{
        return (int)(strlen(o->name) + (o->value ? strlen(o->value) + 1 : 0));
}

static void print_options(const char *title, const struct cli_option *options)
{
        int width = 0;

        if (!options || !options->name)
                return;
        for (const struct cli_option *o = options; o->name; o++)
                width = MAX(width, o->help ? option_width(o) : 0);
        printf("\n%s:\n", title);
        for (const struct cli_option *o = options; o->name; o++) {
                if (!o->help)
                        continue;
                if (o->letter)
                        printf("  -%c, --%s%s%s", o->letter, o->name, o->value ? " " : "",
                               o->value ? o->value : "");
                else
                        printf("      --%s%s%s", o->name, o->value ? " " : "",
                               o->value ? o->value : "");
                printf("%*s%s\n", width - option_width(o) + 2, "", o->help);
        }
}

static void print_commands(const struct cli_command *table)
{
        int width = 0;

        for (const struct cli_command *i = table; i->name; i++)
                width = MAX(width, (int)strlen(i->name));
        printf("\nCommands:\n");
        for (const struct cli_command *i = table; i->name; i++)
                printf("  %-*s  %s\n", width, i->name, i->summary);
}

static void print_usage(const char *path, const struct cli_command *command)
{
        if (command->run || !command->sub)
                printf("Usage: %s%s%s\n", path, *command->synopsis ? " " : "", command->synopsis);
        if (command->sub)
                printf("%s%s COMMAND ...\n", command->run ? "       " : "Usage: ", path);
}

void cli_print_help(const char *path, const struct cli_command *command)
{
        print_usage(path, command);
        printf("\n%s.\n", command->summary);
        if (command->notes)
                printf("\n%s\n", command->notes);
        if (command->sub)
                print_commands(command->sub);
        print_options("Options", command->options);
        print_options("Everywhere", cli_global_options);
        if (command->example)
                printf("\nExample:\n  %s\n", command->example);
        if (command->sub)
                printf("\n'%s COMMAND --help' says more about one.\n", path);
}

const struct cli_command *cli_find_command(const struct cli_command *table, const char *name)
{
        for (const struct cli_command *i = table; i->name; i++)
                if (streq(i->name, name))
                        return i;
        return NULL;
}

int cli_unknown_command(const struct cli_command *table, const char *path, const char *typed,
                        struct err *err)
{
        struct suggest s;

        suggest_init(&s, typed);
        for (const struct cli_command *i = table; i->name; i++)
                suggest_offer(&s, i->name);
        if (s.best)
                return err_set(err, ERR_USAGE, "unknown command '%s'; did you mean '%s %s'?", typed,
                               path, s.best);
        return err_set(err, ERR_USAGE, "unknown command '%s'; see '%s --help'", typed, path);
}

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
