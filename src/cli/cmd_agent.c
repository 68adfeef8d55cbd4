/* `berth agent`: enough to have one and to give it a key. */
#include "cli/command.h"
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
        const char *company;
        json_t *agent;
        int r = cli_company(c, false, &company, err);

        if (r >= 0)
                r = cli_call(c, "POST", cli_printf(c, "/api/companies/%s/agents", company),
                             json_pack("{s:s, s:s*}", "name", a->words[0], "adapterType",
                                       args_value(a, "adapter")),
                             &agent, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(agent);
                return 0;
        }
        out_label("Id", COLUMN_ID, cli_text(agent, "id"));
        out_label("Name", COLUMN_TEXT, cli_text(agent, "name"));
        out_label("Adapter", COLUMN_TEXT, cli_text(agent, "adapterType"));
        out_label("Status", COLUMN_STATE, cli_text(agent, "status"));
        return 0;
}

static const struct cli_option create_options[] = {
        { "adapter", 0, OPTION_VALUE, "TYPE", "how it is run (default: process)" },
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
        .synopsis = "NAME [--adapter TYPE]",
        .summary = "Make an agent",
        .example = "berth agent create Ada",
        .options = create_options,
        .run = run_create,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_agent = {
        .name = "agent",
        .synopsis = "",
        .summary = "List and make agents",
        .example = "berth agent list",
        .sub = (const struct cli_command *const[]){ &list, &create, NULL },
};
