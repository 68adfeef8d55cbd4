/* `berth agent show|update|delete`: the variables that an agent's commands get. Values of secrets
 * are never read here, only their names. */
#include "cli/cmd_agent.h"
#include "cli/cmd_secret.h"
#include "cli/duration.h"
#include "cli/listing.h"

/* -- options ---------------------------------------------------------------------------------- */

static int split(struct cli *c, const char *text, const char **ret_name, const char **ret_value,
                 struct err *err)
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

static int set_secret(struct cli *c, json_t *env, const char *text, struct err *err)
{
        const char *name, *value;
        int64_t version;
        json_t *secret;
        int r = split(c, text, &name, &value, err);

        if (r >= 0)
                r = secret_find(c, split_version(c, value, &version), &secret, err);
        if (r >= 0)
                json_object_set_new(
                        env, name,
                        json_pack("{s:s, s:s, s:o}", "type", "secret_ref", "secretId",
                                  cli_text(secret, "id"), "version",
                                  version ? json_integer(version) : json_string("latest")));
        return r;
}

int agent_env_options(struct cli *c, const struct args *a, json_t *env, struct err *err)
{
        const char *text, *name, *value;
        int r = 0;

        for (size_t i = 0; r >= 0 && (text = args_item(a, "env", i)); i++) {
                r = split(c, text, &name, &value, err);
                if (r >= 0 && json_object_set_new(env, name, json_string(value)) < 0)
                        r = err_set(err, ERR_USAGE, "the variable %s is not UTF-8 text", name);
        }
        for (size_t i = 0; r >= 0 && (text = args_item(a, "secret-env", i)); i++)
                r = set_secret(c, env, text, err);
        return r;
}

/* -- printing --------------------------------------------------------------------------------- */

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

void agent_print(struct cli *c, const json_t *agent)
{
        const json_t *config = json_get_object(agent, "adapterConfig");
        const char *name;
        json_t *variable;

        if (c->json) {
                out_json(agent);
                return;
        }
        out_label("Id", COLUMN_ID, cli_text(agent, "id"));
        out_label("Name", COLUMN_TEXT, cli_text(agent, "name"));
        out_label("Role", COLUMN_TEXT, cli_text(agent, "role"));
        out_label("Adapter", COLUMN_TEXT, cli_text(agent, "adapterType"));
        out_label("Status", COLUMN_STATE, cli_text(agent, "status"));
        out_label(
                "Environment", *cli_text(agent, "defaultEnvironmentId") ? COLUMN_ID : COLUMN_TEXT,
                *cli_text(agent, "defaultEnvironmentId")
                        ? cli_named(c, "/api/environments", cli_text(agent, "defaultEnvironmentId"))
                        : "the default of its company");
        print_command(c, config);
        print_timer(c, json_get_object(json_get_object(agent, "runtimeConfig"), "heartbeat"));
        if (*cli_text(agent, "lastHeartbeatAt"))
                out_label("Last run", COLUMN_TIME, cli_text(agent, "lastHeartbeatAt"));
        json_object_foreach(json_get_object(config, "env"), name, variable)
                out_label(name, COLUMN_TEXT, variable_text(c, variable));
}

/* -- commands --------------------------------------------------------------------------------- */

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent;
        int r = cli_agent(c, a->words[0], &agent, err);

        if (r >= 0)
                agent_print(c, agent);
        return r < 0 ? r : 0;
}

/* The variables as they are to be; NULL when none of the options is about them. */
static int changed_env(struct cli *c, const struct args *a, const json_t *agent, json_t **ret,
                       struct err *err)
{
        const json_t *had = json_get_object(json_get_object(agent, "adapterConfig"), "env");
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
                r = agent_env_options(c, a, env, err);
        *ret = env;
        return r;
}

static int fill_update(struct cli *c, const struct args *a, const json_t *agent, json_t *body,
                       struct err *err)
{
        json_t *env, *config = NULL;
        int r = body_set(body, "name", args_value(a, "name"), err);

        if (r >= 0)
                r = agent_fill(c, a, body, err);
        if (r >= 0)
                r = agent_timer(c, a, agent, body, err);
        if (r >= 0)
                r = changed_env(c, a, agent, &env, err);
        if (r >= 0)
                r = cli_config(a, &config, err);
        if (r < 0 || (!config && !env))
                return r;
        config = config ? config : json_object();
        if (env)
                json_object_set(config, "env", env);
        json_object_set_new(body, "adapterConfig", config);
        return 0;
}

static int run_update(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent, *body = cli_keep(c, json_object());
        int r = cli_agent(c, a->words[0], &agent, err);

        if (r >= 0)
                r = fill_update(c, a, agent, body, err);
        if (r >= 0 && json_object_size(body) == 0)
                return err_set(err, ERR_USAGE,
                               "say what to change; see: berth agent update --help");
        if (r >= 0)
                r = cli_call(c, "PATCH", cli_printf(c, "/api/agents/%s", cli_text(agent, "id")),
                             json_incref(body), &agent, err);
        if (r >= 0)
                agent_print(c, agent);
        return r < 0 ? r : 0;
}

static int run_delete(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent;
        int r = cli_agent(c, a->words[0], &agent, err);

        if (r >= 0)
                r = cli_call(c, "DELETE", cli_printf(c, "/api/agents/%s", cli_text(agent, "id")),
                             NULL, NULL, err);
        return r < 0 ? r : 0;
}

static const struct cli_option update_options[] = {
        { "name", 0, OPTION_VALUE, "NAME", "a new name" },     AGENT_OPTIONS, AGENT_ENV_OPTIONS,
        { "unset", 0, OPTION_LIST, "K", "remove a variable" }, { 0 },
};

const struct cli_command cmd_agent_show = {
        .name = "show",
        .synopsis = "AGENT",
        .summary = "Show an agent and its variables",
        .example = "berth agent show Ada",
        .run = run_show,
        .min_words = 1,
        .max_words = 1,
};
const struct cli_command cmd_agent_update = {
        .name = "update",
        .synopsis = "AGENT [OPTION]...",
        .summary = "Change an agent and its variables",
        .notes = "A secret's value is read when a command is run for the agent, and not before.\n"
                 "Do not pass secrets with --env: other processes can read the command line.",
        .example = "berth agent update Ada --secret-env OPENAI_API_KEY=openai",
        .options = update_options,
        .run = run_update,
        .min_words = 1,
        .max_words = 1,
};
const struct cli_command cmd_agent_delete = {
        .name = "delete",
        .synopsis = "AGENT",
        .summary = "Delete an agent, with its keys and bindings",
        .example = "berth agent delete Ada",
        .run = run_delete,
        .min_words = 1,
        .max_words = 1,
};
