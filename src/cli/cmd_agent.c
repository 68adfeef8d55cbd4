/* `berth agent`: enough to have one, to give it a key, and variables (cmd_agent_env.c). */
#include "cli/cmd_agent.h"
#include "cli/output.h"

static int run_list(struct cli *c, const struct args *a UNUSED, struct err *err)
{
        static const struct column columns[] = {
                { "ID", COLUMN_ID },        { "NAME", COLUMN_TEXT },    { "ROLE", COLUMN_TEXT },
                { "ADAPTER", COLUMN_TEXT }, { "STATUS", COLUMN_STATE },
        };
        CLEAN(table_done) struct table t;
        const char *company;
        json_t *list, *item;
        size_t i;
        int r;

        table_init(&t, columns, ARRAY_LEN(columns));
        r = cli_company(c, false, &company, err);
        if (r >= 0)
                r = cli_call_list(c, cli_printf(c, "/api/companies/%s/agents", company), &list,
                                  err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item) table_row(
                &t, (const char *[]){ cli_text(item, "id"), cli_text(item, "name"),
                                      cli_text(item, "role"), cli_text(item, "adapterType"),
                                      cli_text(item, "status") });
        table_print(&t, "no agents");
        return 0;
}

static int run_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent, *env = cli_keep(c, json_object());
        const char *company;
        int r = cli_company(c, false, &company, err);

        if (r >= 0)
                r = agent_env_options(c, a, env, err);
        if (r >= 0)
                r = cli_call(c, "POST", cli_printf(c, "/api/companies/%s/agents", company),
                             json_pack("{s:s, s:s*, s:{s:O}}", "name", a->words[0], "adapterType",
                                       args_value(a, "adapter"), "adapterConfig", "env", env),
                             &agent, err);
        if (r >= 0)
                agent_print(c, agent);
        return r < 0 ? r : 0;
}

static const struct cli_option create_options[] = {
        { "adapter", 0, OPTION_VALUE, "TYPE", "how it is run (default: process)" },
        AGENT_ENV_OPTIONS,
        { 0 },
};

static const struct cli_command list = {
        .name = "list",
        .synopsis = "",
        .summary = "List the agents of the company",
        .example = "berth agent list",
        .run = run_list,
};

static const struct cli_command create = {
        .name = "create",
        .synopsis = "NAME [--adapter TYPE] [--env K=V]... [--secret-env K=SECRET[@VERSION]]...",
        .summary = "Make an agent",
        .example = "berth agent create Ada --env LANG=C.UTF-8",
        .options = create_options,
        .run = run_create,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_agent = {
        .name = "agent",
        .synopsis = "",
        .summary = "List, make and change agents",
        .example = "berth agent list",
        .sub = (const struct cli_command *const[]){ &list, &create, &cmd_agent_show,
                                                    &cmd_agent_update, &cmd_agent_delete, NULL },
};
