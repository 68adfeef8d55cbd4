/* `berth adapter`: the kinds of agent programs, and trying one in an environment. */
#include "cli/action.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/output.h"

#define HOSTS_AT       36 /* the column where they begin */
#define TERMINAL_WIDTH 80

/* The hosts, as many in a line as a terminal of 80 columns has room for. */
static void print_adapter(struct cli *c, const json_t *adapter)
{
        const char *command = cli_text(adapter, "command");
        const char *line = cli_printf(
                c, "%-*s%s", HOSTS_AT,
                cli_printf(c, "%-18s%s", cli_text(adapter, "type"), *command ? command : "-"),
                json_is_true(json_object_get(adapter, "loaded")) ? "" : "cannot run here");
        size_t i;
        json_t *host;

        json_array_foreach(json_object_get(adapter, "hosts"), i, host)
        {
                const char *name = json_string_value(host);

                if (i > 0 && strlen(line) + 1 + strlen(name) > TERMINAL_WIDTH) {
                        out_line("%s", line);
                        line = cli_printf(c, "%*s%s", HOSTS_AT, "", name);
                } else {
                        line = cli_printf(c, "%s%s%s", line, i > 0 ? " " : "", name);
                }
        }
        out_line("%s", line);
}

static void print_adapters(struct cli *c, const json_t *list)
{
        size_t i;
        json_t *adapter;

        out_line("%-18s%-18s%s", "TYPE", "COMMAND", "HOSTS");
        json_array_foreach((json_t *)list, i, adapter) print_adapter(c, adapter);
}

static void print_checks(struct cli *c UNUSED, const json_t *answer)
{
        size_t i;
        json_t *check;

        out_label("Result", COLUMN_STATE, json_get_string(answer, "status"));
        json_array_foreach(json_object_get(answer, "checks"), i, check)
        {
                out_line("%-6s %s", cli_text(check, "level"), cli_text(check, "message"));
                text_print("       ", cli_text(check, "detail"));
        }
}

static int checks_status(const json_t *answer)
{
        const char *status = json_get_string(answer, "status");

        return status && streq(status, "fail") ? 1 : 0;
}

static int cmd_adapter_test(struct cli *c, const struct args *a, struct err *err)
{
        const struct cli_action act = {
                .method = "POST",
                .path = cli_printf(c, "/api/companies/{company}/adapters/%s/test-environment",
                                   a->words[0]),
                .makes_company = true,
                .members = MEMBERS(
                        { "environmentId", "environment", MEMBER_ID, .kind = &kind_environment },
                        { "adapterConfig", "option", MEMBER_CONFIG }),
                .print = print_checks,
                .status = checks_status,
        };

        json_t *known;
        /* Before a first company is made for it. Agents may test, and not ask for this. */
        int r = cli_call(c, "GET", cli_printf(c, "/api/adapters/%s", cli_escape(c, a->words[0])),
                         NULL, &known, err);

        if (r == ERR_NOT_FOUND)
                return r;
        err_clear(err);
        return cli_act(c, a, &act, err);
}

const struct cli_command adapter_commands[] = {
        { "list", "", "List the kinds of agent programs", "berth adapter list",
          .act = { .method = "GET", .path = "/api/adapters", .print = print_adapters } },
        { "test", "TYPE [--environment ENV] [-o KEY=VALUE]...",
          "Try whether an agent program works in an environment",
          "berth adapter test claude_local --environment Sandbox", .words = 1,
          .notes = "Looks for the program, installs it where the adapter says how, and asks it to "
                   "say hello.\nExit status 1 when a check failed.",
          .options = OPTIONS({ "environment", "ENV", "where (the default of the company)" },
                             { "option", "KEY=VALUE", "a member of the adapterConfig", 'o', true },
                             { "config", "JSON|@FILE", "the adapterConfig" }),
          .run = cmd_adapter_test },
        { 0 },
};
