/* `berth agent`: agents, their variables, and when they are woken. Values of secrets are never read
 * here, only their names. Keys of agents are in cmd_key.c. */
#include "cli/cmd_runs.h"
#include "cli/command.h"
#include "cli/duration.h"

const char *cli_variable_text(struct cli *c, const json_t *variable)
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
                out_label(name, COLUMN_TEXT, cli_variable_text(c, variable));
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
static int cmd_agent_delete(struct cli *c, const struct args *a, struct err *err)
{
        bool all = args_flag(a, "with-history");
        json_t *agent;
        int r = cli_find(c, &kind_agent, a->words[0], &agent, err);

        if (r >= 0 && all && !args_flag(a, "yes"))
                r = cli_confirm(cli_printf(c, "Delete %s with its runs?", a->words[0]), err);
        return r < 0 ? r
                     : cli_call(c, "DELETE",
                                cli_printf(c,
                                           all ? "/api/agents/%1$s?confirm=%1$s" : "/api/agents/%s",
                                           cli_text(agent, "id")),
                                NULL, NULL, err);
}

static const struct cli_action terminate = {
        &kind_agent,
        "POST",
        "/terminate",
};

static int cmd_agent_terminate(struct cli *c, const struct args *a, struct err *err)
{
        int r = cli_confirm(cli_printf(c, "Terminate %s for ever?", a->words[0]), err);

        return r < 0 ? r : cli_act(c, a, &terminate, err);
}

/* -- By the clock ----------------------------------------------------------------------------- */

/* Set in `body` what --every, --cron and --no-timer say; the rest of the runtimeConfig is that of
 * `agent` (NULL: a new one). */
static int set_agent_timer(struct cli *c, const struct args *a, const json_t *agent, json_t *body,
                           struct err *err)
{
        const char *every = args_value(a, "every"), *line = args_value(a, "cron");
        json_t *had = json_get_object(agent, "runtimeConfig"), *config, *heartbeat;
        int given = !!every + !!line + args_flag(a, "no-timer");
        int64_t ms = 0;
        int r = every ? duration_parse("--every", every, &ms, err) : 0;

        if (given == 0)
                return 0;
        if (given > 1)
                return err_set(err, ERR_USAGE, "--every, --cron or --no-timer: one of them");
        if (r >= 0 && every && ms < 10000)
                r = err_set(err, ERR_USAGE, "--every: at least 10s");
        if (r < 0)
                return r;
        config = cli_keep(c, had ? json_deep_copy(had) : json_object());
        if (!json_get_object(config, "heartbeat"))
                json_object_set_new(config, "heartbeat", json_object());
        heartbeat = json_get_object(config, "heartbeat");
        json_object_set(body, "runtimeConfig", config);
        json_object_del(heartbeat, "intervalSec");
        json_object_del(heartbeat, "cron");
        json_object_set_new(heartbeat, "enabled", json_boolean(every || line));
        if (every)
                json_object_set_new(heartbeat, "intervalSec", json_integer(ms / 1000));
        return body_set(heartbeat, "cron", line, err);
}

/* -- Now -------------------------------------------------------------------------------------- */

static int show_wakeup(struct cli *c, const struct args *a, const json_t *answer, struct err *err)
{
        bool is_skipped = streq(cli_text(answer, "status"), "skipped");
        const char *id = cli_text(answer, "id");

        if (is_skipped || !args_flag(a, "follow")) {
                cli_answer(c, answer, "%s", is_skipped ? cli_text(answer, "message") : id);
                return 0;
        }
        return runs_watch(c, id, err);
}

static int cmd_agent_wake(struct cli *c, const struct args *a, struct err *err)
{
        json_t *payload = cli_keep(c, json_object()), *body = cli_keep(c, json_object());
        json_t *agent, *answer;
        int r = cli_find(c, &kind_agent, a->words[0], &agent, err);

        if (r >= 0)
                r = cli_fill(c, a,
                             MEMBERS({ "reason", "reason" },
                                     { "triggerDetail", .otherwise = "manual" },
                                     { "idempotencyKey", "key" },
                                     { "forceFreshSession", "fresh", MEMBER_TRUE }),
                             body, err);
        if (r >= 0)
                r = cli_fill(c, a,
                             MEMBERS({ "taskKey", "task" },
                                     { "issueId", "issue", MEMBER_ID, .kind = &kind_issue }),
                             payload, err);
        if (r >= 0 && json_object_size(payload) > 0)
                json_object_set(body, "payload", payload);
        if (r >= 0)
                r = cli_call(c, "POST",
                             cli_printf(c, "/api/agents/%s/wakeup", cli_text(agent, "id")),
                             json_incref(body), &answer, err);
        if (r == ERR_CONFLICT && streq(cli_text(agent, "status"), "paused"))
                return err_set(err, r, "%s is paused; `berth agent resume %s` lets it work again",
                               cli_text(agent, "name"), a->words[0]);
        if (r == ERR_CONFLICT)
                return err_wrap(err, r, "%s is %s", cli_text(agent, "name"),
                                cli_text(agent, "status"));
        return r < 0 ? r : show_wakeup(c, a, answer, err);
}

static const struct cli_member agent_members[] = {
        { "adapterType", "adapter" },
        { "role", "role" },
        { "title", "title" },
        { "reportsTo", "reports-to", MEMBER_ID, .kind = &kind_agent },
        { "defaultEnvironmentId", "environment", MEMBER_PLACE },
        { 0 },
};

/* -- variables -------------------------------------------------------------------------------- */

static int split_assignment(struct cli *c, const char *text, const char **ret_name,
                            const char **ret_value, struct err *err)
{
        const char *equals = strchr(text, '=');

        if (!equals || equals == text)
                return err_set(err, ERR_USAGE, "'%s' is not NAME=VALUE", text);
        *ret_name = cli_printf(c, "%.*s", (int)(equals - text), text);
        *ret_value = equals + 1;
        return 0;
}

/* "name@3" is version 3 of name; an @ in a name is no version. */
static const char *split_version(struct cli *c, const char *text, int64_t *ret_version)
{
        const char *at = strrchr(text, '@');

        *ret_version = 0;
        if (!at || !at[1] || at[1 + strspn(at + 1, "0123456789")] || strlen(at) > 10)
                return text;
        *ret_version = atoll(at + 1);
        return cli_printf(c, "%.*s", (int)(at - text), text);
}

/* NAME=SECRET; or NAME alone, for a secret of the same name. */
static int set_secret(struct cli *c, json_t *env, const char *text, struct err *err)
{
        const char *name = text, *value = text;
        int64_t version;
        json_t *secret;
        int r = strchr(text, '=') ? split_assignment(c, text, &name, &value, err) : 0;

        if (r >= 0)
                r = cli_find(c, &kind_secret, split_version(c, value, &version), &secret, err);
        if (r >= 0)
                json_object_set_new(
                        env, name,
                        json_pack("{s:s, s:s, s:o}", "type", "secret_ref", "secretId",
                                  cli_text(secret, "id"), "version",
                                  version ? json_integer(version) : json_string("latest")));
        return r;
}

int cli_set_variables(struct cli *c, const struct args *a, json_t *env, struct err *err)
{
        const char *text, *name, *value;
        int r = 0;

        for (size_t i = 0; r >= 0 && (text = args_item(a, "env", i)); i++) {
                r = split_assignment(c, text, &name, &value, err);
                if (r >= 0 && json_object_set_new(env, name, json_string(value)) < 0)
                        r = err_set(err, ERR_USAGE, "the variable %s is not UTF-8 text", name);
        }
        for (size_t i = 0; r >= 0 && (text = args_item(a, "secret-env", i)); i++)
                r = set_secret(c, env, text, err);
        return r;
}

/* -- commands --------------------------------------------------------------------------------- */

static int cmd_agent_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent, *env = cli_keep(c, json_object());
        json_t *config = NULL, *body = cli_keep(c, json_object());
        const char *company;
        int r = cli_company(c, true, &company, err);

        if (r >= 0)
                r = cli_check_new(c, a, &kind_agent, a->words[0], err);
        if (r >= 0)
                r = body_set(body, "name", a->words[0], err);
        if (r >= 0)
                r = cli_fill(c, a, agent_members, body, err);
        if (r >= 0)
                r = set_agent_timer(c, a, NULL, body, err);
        if (r >= 0)
                r = cli_set_variables(c, a, env, err);
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
        cli_show(c, &kind_agent, agent);
        if (streq(cli_text(agent, "adapterType"), "process") && !json_object_get(config, "command"))
                out_note(
                        "it has no command yet; give it one with: berth agent update %s -o command=...",
                        cli_text(agent, "name"));
        return 0;
}

int cli_changed_env(struct cli *c, const struct args *a, const json_t *had, json_t **ret,
                    struct err *err)
{
        const char *name;
        json_t *env;
        int r = 0;

        *ret = NULL;
        if (!args_item(a, "unset", 0) && !args_item(a, "env", 0) && !args_item(a, "secret-env", 0))
                return 0;
        env = cli_keep(c, had ? json_deep_copy(had) : json_object());
        for (size_t i = 0; r >= 0 && (name = args_item(a, "unset", i)); i++)
                if (json_object_del(env, name) < 0)
                        r = err_set(err, ERR_NOT_FOUND, "there is no variable '%s'", name);
        if (r >= 0)
                r = cli_set_variables(c, a, env, err);
        *ret = env;
        return r;
}

static int cmd_agent_update(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent, *env = NULL, *config = NULL, *body = cli_keep(c, json_object());
        int r = cli_find(c, &kind_agent, a->words[0], &agent, err);

        if (r >= 0)
                r = body_set(body, "name", args_value(a, "name"), err);
        if (r >= 0)
                r = cli_fill(c, a, agent_members, body, err);
        if (r >= 0)
                r = set_agent_timer(c, a, agent, body, err);
        if (r >= 0)
                r = cli_changed_env(c, a,
                                    json_get_object(json_get_object(agent, "adapterConfig"), "env"),
                                    &env, err);
        if (r >= 0)
                r = cli_config(a, &config, err);
        if (r < 0)
                return r;
        if (env && !config)
                config = json_object();
        if (env)
                json_object_set(config, "env", env);
        if (config)
                json_object_set_new(body, "adapterConfig", config);
        if (json_object_size(body) == 0)
                return err_set(err, ERR_USAGE,
                               "say what to change; see: berth agent update --help");
        return cli_send(c, "PATCH", cli_printf(c, "/api/agents/%s", cli_text(agent, "id")),
                        json_incref(body), &kind_agent, err);
}

/* -- the table -------------------------------------------------------------------------------- */

#define AGENT_OPTIONS                                                                              \
        OPTION("adapter", "TYPE", "how it is run (default: process)"),                             \
                OPTION("role", "ROLE", "engineer, qa, ceo and others (general)"),                  \
                OPTION("title", "TEXT", "what it calls itself"),                                   \
                OPTION("reports-to", "AGENT", "the agent that it reports to"),                     \
                OPTION("environment", "ENV", "where it works (the default of its company)"),       \
                OPTION("every", "TIME", "wake it so often: 30s, 15m, 2h"),                         \
                OPTION("cron", "LINE", "wake it at these times, in UTC"),                          \
                OPTION("no-timer", NULL, "do not wake it by the clock"),                           \
                OPTION("option", "KEY=VALUE", "a member of its adapterConfig", 'o', true),         \
                OPTION("config", "JSON|@FILE", "its adapterConfig")

#define AGENT_ENV_OPTIONS                                                                          \
        OPTION("env", "K=V", "a variable of its commands", 'e', true),                             \
                OPTION("secret-env", "K[=SECRET[@VERSION]]",                                       \
                       "a variable from a secret, or from the secret K", .is_list = true)

const struct cli_command agent_commands[] = {
        { "list", "", "List the agents of the company", "berth agent list",
          .act = { NULL, "GET", "/api/companies/{company}/agents",
                   .columns = FIELDS({ "ID", "id", COLUMN_ID }, { "NAME", "name" },
                                     { "ROLE", "role" }, { "ADAPTER", "adapterType" },
                                     { "STATUS", "status", COLUMN_STATE }),
                   .none = "no agents" } },
        { "create", "NAME [OPTION]...", "Create an agent",
          "berth agent create Ada -o command=./agent --env LANG=C.UTF-8", .words = 1,
          .notes = "-o sets a member of its adapterConfig: -o command=sh is text, and\n"
                   "-o args:='[\"-c\",\"echo hello\"]' is JSON.",
          .options = OPTIONS(AGENT_OPTIONS, AGENT_ENV_OPTIONS, ALLOW_DUPLICATE),
          .run = cmd_agent_create },
        { "show", "AGENT", "Show an agent and its variables", "berth agent show Ada", .words = 1,
          .act = { &kind_agent } },
        { "update", "AGENT [OPTION]...", "Change an agent and its variables",
          "berth agent update Ada --secret-env OPENAI_API_KEY=openai", .words = 1,
          .notes = "A secret's value is read when a command is run for the agent, and not before.\n"
                   "Do not pass secrets with --env: other processes can read the command line.",
          .options = OPTIONS({ "name", "NAME", "a new name" }, AGENT_OPTIONS, AGENT_ENV_OPTIONS,
                             { "unset", "K", "remove a variable", .is_list = true }),
          .run = cmd_agent_update },
        { "wake", "AGENT [--issue ISSUE] [--reason TEXT] [--follow]",
          "Wake an agent: start a run now", "berth agent wake Ada --issue ACM-1 --follow",
          .words = 1,
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
        { "pause", "AGENT [--reason TEXT]", "Pause an agent until it is resumed",
          "berth agent pause Ada --reason 'over budget'", .words = 1,
          .options = OPTIONS({ "reason", "TEXT", "why (manual)" }),
          .act = { &kind_agent, "POST", "/pause", .members = MEMBERS({ "reason", "reason" }) } },
        { "resume", "AGENT", "Resume a paused agent", "berth agent resume Ada", .words = 1,
          .act = { &kind_agent, "POST", "/resume" } },
        { "terminate", "AGENT", "Terminate an agent for good; its keys and secrets are removed",
          "berth agent terminate Ada", .words = 1, .run = cmd_agent_terminate },
        { "delete", "AGENT [--with-history] [--yes]", "Delete an agent, with its keys and bindings",
          "berth agent delete Ada", .words = 1,
          .notes = "Without --with-history it is refused once the agent has had runs.",
          .options =
                  OPTIONS({ "with-history", NULL, "its runs, logs and files too; instance admins" },
                          { "yes", NULL, "do not ask", 'y' }),
          .run = cmd_agent_delete },
        { 0 },
};
