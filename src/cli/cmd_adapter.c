/* `berth adapter`: the kinds of agent programs, and trying one in an environment. */
#include "cli/action.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/output.h"

static const char *hosts_text(struct cli *c, const json_t *adapter)
{
        const char *text = "";
        size_t i;
        json_t *host;

        json_array_foreach(json_object_get(adapter, "hosts"), i, host) text =
                cli_printf(c, "%s%s%s", text, *text ? " " : "", json_string_value(host));
        return text;
}

static void print_checks(struct cli *c, const json_t *answer)
{
        out_label("Result", COLUMN_STATE, json_get_string(answer, "status"));
        list_print(c, json_object_get(answer, "checks"),
                   FIELDS({ "LEVEL", "level", COLUMN_STATE }, { "CHECK", "message" },
                          { "DETAIL", "detail" }),
                   "no checks");
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
          .act = { .method = "GET",
                   .path = "/api/adapters",
                   .columns = FIELDS({ "TYPE", "type" }, { "NAME", "label" },
                                     { "COMMAND", "command" }, { "HOSTS", .text = hosts_text }),
                   .none = "no adapters" } },
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
