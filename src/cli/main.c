/* One command line: find the command, run it, say what went wrong.
 *
 * The words of a command are read level by level, because the options that are known depend on the
 * level; `--help` therefore belongs to the level it was typed at. */
#include <stdio.h>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/signals.h"

#define ISSUES_SHOWN 5

static const struct cli_option top_options[] = {
        { "version", NULL, "print the version" },
        { 0 },
};

const struct cli_command cli_top = {
        .name = "berth",
        .synopsis = "[OPTION]...",
        .summary = "Places for agents to work in: lease, run, give up",
        .notes = "Exit status: 0 done, 1 failed, 2 wrong usage, 3 daemon not reachable,\n"
                 "4 not allowed, 5 not found.",
        .example = "berth run -- uname -a",
        .options = top_options,
        .sub = cli_commands,
};

/* One issue of a failed validation: where, and what. Both shapes of the API are read: zod's {path,
 * message} and the plugin configuration's {field, message}. A text that was printed already is
 * repeated only to say where it applies. */
static void print_issue(const json_t *issue, const char *said)
{
        struct buf where = BUF_INIT;
        const char *field = json_get_string(issue, "field");
        const char *message = json_get_string(issue, "message");
        json_t *part;
        size_t i;

        if (json_is_string(issue))
                message = json_string_value(issue);
        if (field)
                buf_puts(&where, field);
        json_array_foreach(json_object_get(issue, "path"), i, part)
        {
                if (json_is_integer(part))
                        buf_appendf(&where, "[%lld]", (long long)json_integer_value(part));
                else if (json_is_string(part))
                        buf_appendf(&where, "%s%s", where.len ? "." : "", json_string_value(part));
        }
        if (message && (where.len || !streq(message, said)))
                out_note("  %s%s%s", buf_str(&where), where.len ? ": " : "", message);
        buf_done(&where);
}

static void print_details(const char *text, const char *said)
{
        json_t *details = NULL;

        if (!text || json_parse(text, strlen(text), &details, NULL) < 0)
                return;
        const json_t *list = details;
        for (size_t i = 0; json_is_object(list) && i < 3; i++) {
                static const char *const keys[] = { "issues", "errors", "deleteBlockedReasons" };
                json_t *inner = json_object_get(details, keys[i]);

                if (json_is_array(inner))
                        list = inner;
        }
        for (size_t i = 0; json_is_array(list) && i < json_array_size(list); i++) {
                if (i == ISSUES_SHOWN) {
                        out_note("  and %zu more", json_array_size(list) - i);
                        break;
                }
                print_issue(json_array_get(list, i), said);
        }
        json_decref(details);
}

/* Walk down the groups. *path is the name of the level reached. */
static int find_command(struct args *a, const struct cli_command **ret, struct buf *path,
                        struct err *err)
{
        const struct cli_command *command = &cli_top;

        while (command->sub) {
                const struct cli_command *next;
                const char *word;
                int r = args_next_word(a, &word, err);

                if (r < 0)
                        return r;
                if (!word)
                        break;
                next = cli_find_command(command->sub, word);
                if (!next)
                        return cli_unknown_command(command->sub, buf_str(path), word, err);
                command = next;
                buf_appendf(path, " %s", command->name);
                args_add_table(a, command->options);
        }
        *ret = command;
        return 0;
}

static int run_command(struct args *a, const struct cli_hooks *hooks, struct buf *path,
                       int *ret_signal, struct err *err)
{
        const struct cli_command *command = &cli_top;
        struct cli c;
        int r = find_command(a, &command, path, err);

        if (r >= 0)
                r = args_rest(a, command->takes_command ? MAX(command->words, 1) - 1 : SIZE_MAX,
                              err);
        if (r < 0)
                return r;
        if (args_flag(a, "version")) {
                puts("berth " BERTH_VERSION);
                return 0;
        }
        if (args_flag(a, "help")) {
                cli_print_help(buf_str(path), command);
                return 0;
        }
        if (command->sub && !command->run) {
                cli_print_help(buf_str(path), command);
                return err_set(err, ERR_USAGE, "a command is missing");
        }
        size_t most = MAX(command->words, command->max_words);
        if (a->n_words > most)
                return err_set(err, ERR_USAGE, "too many words: '%s'; usage: %s %s", a->words[most],
                               buf_str(path), command->synopsis);
        if (a->n_words < command->words)
                return err_set(err, ERR_USAGE, "usage: %s %s", buf_str(path), command->synopsis);
        r = cli_init(&c, hooks, a, err);
        if (r >= 0)
                r = command->run ? command->run(&c, a, err) : cli_act(&c, a, &command->act, err);
        *ret_signal = c.end_by_signal;
        cli_done(&c);
        return r;
}

int cli_main(int argc, char **argv, const struct cli_hooks *hooks)
{
        CLEAN(err_done) struct err err = { 0 };
        CLEAN(buf_done) struct buf path = BUF_INIT;
        CLEAN(args_done) struct args a;
        int end_by_signal = 0, r;

        buf_puts(&path, "berth");
        args_init(&a, argc - 1, argv + 1);
        args_add_table(&a, cli_global_options);
        args_add_table(&a, top_options);
        r = run_command(&a, hooks, &path, &end_by_signal, &err);
        if (r < 0) {
                out_error(err.msg);
                print_details(err.details, err.msg);
                r = err_info(r)->exit_status;
        }
        /* A full disk or a closed pipe behind standard output must not look like success. */
        if ((fflush(stdout) != 0 || ferror(stdout)) && r == 0) {
                out_error("could not write the output");
                r = 1;
        }
        if (end_by_signal)
                signals_die_of(end_by_signal);
        return r;
}
