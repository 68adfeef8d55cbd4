/* `berth agent`: listing and making them. Variables are in cmd_agent_env.c, the rest of their life
 * in cmd_agent_life.c, keys in cmd_key.c. */
#include "cli/cmd_agent.h"
#include "cli/listing.h"

static int run_list(struct cli *c, const struct args *a UNUSED, struct err *err)
{
        static const struct field columns[] = {
                { "ID", COLUMN_ID, "id" },
                { "NAME", COLUMN_TEXT, "name" },
                { "ROLE", COLUMN_TEXT, "role" },
                { "ADAPTER", COLUMN_TEXT, "adapterType" },
                { "STATUS", COLUMN_STATE, "status" },
        };
        const char *company;
        int r = cli_company(c, false, &company, err);

        return r < 0 ? r
                     : list_print(c, cli_printf(c, "/api/companies/%s/agents", company), columns,
                                  ARRAY_LEN(columns), "no agents", err);
}

int agent_fill(struct cli *c, const struct args *a, json_t *body, struct err *err)
{
        static const struct {
                const char *option, *member;
        } texts[] = { { "adapter", "adapterType" }, { "role", "role" }, { "title", "title" } };
        const char *manager = args_value(a, "reports-to"), *place = args_value(a, "environment");
        json_t *found;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(texts); i++)
                r = body_set(body, texts[i].member, args_value(a, texts[i].option), err);
        if (r >= 0 && manager) {
                r = cli_agent(c, manager, &found, err);
                if (r >= 0)
                        r = body_set(body, "reportsTo", cli_text(found, "id"), err);
        }
        if (r >= 0 && place) {
                r = cli_place(c, place, &found, err);
                if (r >= 0)
                        r = body_set(body, "defaultEnvironmentId", cli_text(found, "id"), err);
        }
        return r;
}

static int run_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent, *env = cli_keep(c, json_object());
        json_t *config = NULL, *body = cli_keep(c, json_object());
        const char *company;
        int r = cli_company(c, true, &company, err);

        if (r >= 0)
                r = body_set(body, "name", a->words[0], err);
        if (r >= 0)
                r = agent_fill(c, a, body, err);
        if (r >= 0)
                r = agent_timer(c, a, NULL, body, err);
        if (r >= 0)
                r = agent_env_options(c, a, env, err);
        if (r >= 0)
                r = cli_config(a, &config, err);
        if (r < 0)
                return r;
        config = config ? config : json_object();
        if (json_object_size(env) > 0)
                json_object_set(config, "env", env);
        json_object_set_new(body, "adapterConfig", config);
        r = cli_call(c, "POST", cli_printf(c, "/api/companies/%s/agents", company),
                     json_incref(body), &agent, err);
        if (r < 0)
                return r;
        agent_print(c, agent);
        if (streq(cli_text(agent, "adapterType"), "process") && !json_object_get(config, "command"))
                out_note(
                        "it has no command yet; give it one with: berth agent update %s -o command=...",
                        cli_text(agent, "name"));
        return 0;
}

static const struct cli_option create_options[] = {
        AGENT_OPTIONS,
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
        .synopsis = "NAME [OPTION]...",
        .summary = "Make an agent",
        .notes = "-o sets a member of its adapterConfig: -o command=sh is text, and\n"
                 "-o args:='[\"-c\",\"echo hello\"]' is JSON.",
        .example = "berth agent create Ada -o command=./agent --env LANG=C.UTF-8",
        .options = create_options,
        .run = run_create,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_agent = {
        .name = "agent",
        .synopsis = "",
        .summary = "List, make, change and wake agents",
        .notes = "`berth key create --agent AGENT` makes a key for one.",
        .example = "berth agent list",
        .sub = (const struct cli_command *const[]){ &list, &create, &cmd_agent_show,
                                                    &cmd_agent_update, &cmd_agent_wake,
                                                    &cmd_agent_pause, &cmd_agent_resume,
                                                    &cmd_agent_terminate, &cmd_agent_delete, NULL },
};
