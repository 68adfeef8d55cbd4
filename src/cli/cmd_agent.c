/* `berth agent`. Making and changing them is in cmd_agent_write.c, waking in cmd_agent_wake.c, keys
 * in cmd_key.c. */
#include "cli/cmd_agent.h"
#include "cli/duration.h"

static const char *variable_text(struct cli *c, const json_t *variable)
{
        CLEAN(cleanup_free) char *version = NULL;

        if (json_is_string(variable))
                return json_string_value(variable);
        if (!streq(cli_text(variable, "type"), "secret_ref"))
                return cli_text(variable, "value");
        version = out_scalar(json_object_get(variable, "version"));
        return cli_printf(c, "secret %s, version %s", cli_text(variable, "secretId"), version);
}

static void print_command(struct cli *c, const json_t *config)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        json_t *word;
        size_t i;

        buf_puts(&b, cli_text(config, "command"));
        json_array_foreach(json_object_get(config, "args"), i, word)
                buf_appendf(&b, " %s", json_is_string(word) ? json_string_value(word) : "?");
        if (b.len > 0)
                out_label("Command", COLUMN_TEXT, cli_printf(c, "%s", buf_str(&b)));
}

static void print_timer(struct cli *c, const json_t *heartbeat)
{
        char span[DURATION_TEXT_LEN];

        if (!json_is_true(json_object_get(heartbeat, "enabled")))
                return;
        if (*cli_text(heartbeat, "cron")) {
                out_label("Woken", COLUMN_TEXT,
                          cli_printf(c, "at %s (UTC)", cli_text(heartbeat, "cron")));
                return;
        }
        duration_format(json_integer_value(json_object_get(heartbeat, "intervalSec")) * 1000, span);
        out_label("Woken", COLUMN_TEXT, cli_printf(c, "every %s", span));
}

static const char *environment_text(struct cli *c, const json_t *agent)
{
        const char *id = cli_text(agent, "defaultEnvironmentId");

        return *id ? cli_named(c, "/api/environments", id) : "the default of its company";
}

static void print_agent(struct cli *c, const json_t *agent)
{
        const json_t *config = json_get_object(agent, "adapterConfig");
        const char *name;
        json_t *variable;

        fields_print(c, agent,
                     FIELDS({ "Id", "id", COLUMN_ID }, { "Name", "name" }, { "Role", "role" },
                            { "Adapter", "adapterType" }, { "Status", "status", COLUMN_STATE },
                            { "Environment", .text = environment_text }));
        print_command(c, config);
        print_timer(c, json_get_object(json_get_object(agent, "runtimeConfig"), "heartbeat"));
        fields_print(c, agent,
                     FIELDS({ "Last run", "lastHeartbeatAt", COLUMN_TIME, .optional = true }));
        json_object_foreach(json_get_object(config, "env"), name, variable)
                out_label(name, COLUMN_TEXT, variable_text(c, variable));
}

const struct cli_kind kind_agent = {
        .what = "agent",
        .command = "agent",
        .path = "/api/agents",
        .list = "/api/companies/{company}/agents",
        .name = "name",
        .other = "urlKey",
        .print = print_agent,
};

/* Says nothing, also with --json. */
static int run_delete(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent;
        int r = cli_find(c, &kind_agent, a->words[0], &agent, err);

        return r < 0 ? r
                     : cli_call(c, "DELETE", cli_printf(c, "/api/agents/%s", cli_text(agent, "id")),
                                NULL, NULL, err);
}

static const struct cli_action terminate = {
        &kind_agent,
        "POST",
        "/terminate",
};

static int run_terminate(struct cli *c, const struct args *a, struct err *err)
{
        int r = cli_confirm(cli_printf(c, "Terminate %s for ever?", a->words[0]), err);

        return r < 0 ? r : cli_act(c, a, &terminate, err);
}

#define AGENT_OPTIONS                                                                              \
        OPTION("adapter", "TYPE", "how it is run (default: process)"),                             \
                OPTION("role", "ROLE", "engineer, qa, ceo and others (general)"),                  \
                OPTION("title", "TEXT", "what it calls itself"),                                   \
                OPTION("reports-to", "AGENT", "its manager"),                                      \
                OPTION("environment", "ENV", "where it works (the default of its company)"),       \
                OPTION("every", "TIME", "wake it so often: 30s, 15m, 2h"),                         \
                OPTION("cron", "LINE", "wake it at these times, in UTC"),                          \
                OPTION("no-timer", NULL, "do not wake it by the clock"),                           \
                OPTION("option", "KEY=VALUE", "a member of its adapterConfig", 'o', true),         \
                OPTION("config", "JSON|@FILE", "its adapterConfig")

#define AGENT_ENV_OPTIONS                                                                          \
        OPTION("env", "K=V", "a variable of its commands", 'e', true),                             \
                OPTION("secret-env", "K=SECRET[@VERSION]", "a variable from a secret",             \
                       .is_list = true)

const struct cli_command agent_commands[] = {
        { "list", "", "List the agents of the company", "berth agent list",
          .act = { NULL, "GET", "/api/companies/{company}/agents",
                   .columns = FIELDS({ "ID", "id", COLUMN_ID }, { "NAME", "name" },
                                     { "ROLE", "role" }, { "ADAPTER", "adapterType" },
                                     { "STATUS", "status", COLUMN_STATE }),
                   .none = "no agents" } },
        { "create", "NAME [OPTION]...", "Make an agent",
          "berth agent create Ada -o command=./agent --env LANG=C.UTF-8", .words = 1,
          .notes = "-o sets a member of its adapterConfig: -o command=sh is text, and\n"
                   "-o args:='[\"-c\",\"echo hello\"]' is JSON.",
          .options = OPTIONS(AGENT_OPTIONS, AGENT_ENV_OPTIONS), .run = cmd_agent_create },
        { "show", "AGENT", "Show an agent and its variables", "berth agent show Ada", .words = 1,
          .act = { &kind_agent } },
        { "update", "AGENT [OPTION]...", "Change an agent and its variables",
          "berth agent update Ada --secret-env OPENAI_API_KEY=openai", .words = 1,
          .notes = "A secret's value is read when a command is run for the agent, and not before.\n"
                   "Do not pass secrets with --env: other processes can read the command line.",
          .options = OPTIONS({ "name", "NAME", "a new name" }, AGENT_OPTIONS, AGENT_ENV_OPTIONS,
                             { "unset", "K", "remove a variable", .is_list = true }),
          .run = cmd_agent_update },
        { "wake", "AGENT [--issue ISSUE] [--reason TEXT] [--follow]", "Let an agent run now",
          "berth agent wake Ada --issue ACM-1 --follow", .words = 1,
          .notes =
                  "Prints the id of the run. A run of the same task that has not begun yet takes\n"
                  "this along; while the issue is being worked on, the agent is woken afterwards.\n"
                  "With --follow the exit status is 0 when the run succeeded and 1 when it did "
                  "not.",
          .options = OPTIONS(
                  { "issue", "ISSUE", "what it is to work on" }, { "reason", "TEXT", "why" },
                  { "follow", NULL, "print its log until it is done", 'f' },
                  { "fresh", NULL, "forget the session of the last run" },
                  { "task", "KEY", "a name for what it is to do, when there is no issue" },
                  { "key", "KEY", "the same key again is the same run" }),
          .run = cmd_agent_wake },
        { "pause", "AGENT [--reason TEXT]", "Let an agent do nothing until it is resumed",
          "berth agent pause Ada --reason 'over budget'", .words = 1,
          .options = OPTIONS({ "reason", "TEXT", "why (manual)" }),
          .act = { &kind_agent, "POST", "/pause", .members = MEMBERS({ "reason", "reason" }) } },
        { "resume", "AGENT", "Let a paused agent work again", "berth agent resume Ada", .words = 1,
          .act = { &kind_agent, "POST", "/resume" } },
        { "terminate", "AGENT", "End an agent for ever: its keys and its secrets go",
          "berth agent terminate Ada", .words = 1, .run = run_terminate },
        { "delete", "AGENT", "Delete an agent, with its keys and bindings",
          "berth agent delete Ada", .words = 1, .run = run_delete },
        { 0 },
};
