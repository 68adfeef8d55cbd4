/* `berth agent create|update`: builds the agent from the options, and the variables that its
 * commands get. Values of secrets are never read here, only their names. */
#include "cli/cmd_agent.h"

static const struct cli_member shared_members[] = {
        { "adapterType", "adapter" },
        { "role", "role" },
        { "title", "title" },
        { "reportsTo", "reports-to", MEMBER_ID, .kind = &kind_agent },
        { "defaultEnvironmentId", "environment", MEMBER_PLACE },
        { 0 },
};

/* -- variables -------------------------------------------------------------------------------- */

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
                r = cli_find(c, &kind_secret, split_version(c, value, &version), &secret, err);
        if (r >= 0)
                json_object_set_new(
                        env, name,
                        json_pack("{s:s, s:s, s:o}", "type", "secret_ref", "secretId",
                                  cli_text(secret, "id"), "version",
                                  version ? json_integer(version) : json_string("latest")));
        return r;
}

static int set_variables(struct cli *c, const struct args *a, json_t *env, struct err *err)
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

/* -- commands --------------------------------------------------------------------------------- */

int cmd_agent_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent, *env = cli_keep(c, json_object());
        json_t *config = NULL, *body = cli_keep(c, json_object());
        const char *company;
        int r = cli_company(c, true, &company, err);

        if (r >= 0)
                r = body_set(body, "name", a->words[0], err);
        if (r >= 0)
                r = cli_fill(c, a, shared_members, body, err);
        if (r >= 0)
                r = agent_timer(c, a, NULL, body, err);
        if (r >= 0)
                r = set_variables(c, a, env, err);
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
                r = set_variables(c, a, env, err);
        *ret = env;
        return r;
}

static int fill_update(struct cli *c, const struct args *a, const json_t *agent, json_t *body,
                       struct err *err)
{
        json_t *env, *config = NULL;
        int r = body_set(body, "name", args_value(a, "name"), err);

        if (r >= 0)
                r = cli_fill(c, a, shared_members, body, err);
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

int cmd_agent_update(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent, *body = cli_keep(c, json_object());
        int r = cli_find(c, &kind_agent, a->words[0], &agent, err);

        if (r >= 0)
                r = fill_update(c, a, agent, body, err);
        if (r >= 0 && json_object_size(body) == 0)
                return err_set(err, ERR_USAGE,
                               "say what to change; see: berth agent update --help");
        if (r >= 0)
                r = cli_call(c, "PATCH", cli_printf(c, "/api/agents/%s", cli_text(agent, "id")),
                             json_incref(body), &agent, err);
        if (r >= 0)
                cli_show(c, &kind_agent, agent);
        return r < 0 ? r : 0;
}
