/* `berth key`: tokens of people (board keys) and of agents.
 *
 * A token is shown once, by create, on standard output alone: `berth key create ... | tail -1` or
 * --json can catch it, and the words around it go to standard error. */
#include <stdio.h>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/output.h"

#define US_PER_DAY (24 * 60 * 60 * US_PER_S)

/* -- create ----------------------------------------------------------------------------------- */

static int set_expiry(json_t *body, const char *days, struct err *err)
{
        char iso[ISO_TIME_LEN + 1];
        char *end;
        long n;

        if (!days)
                return 0;
        n = strtol(days, &end, 10);
        if (*days == '\0' || *end != '\0' || n < 1 || n > 36500)
                return err_set(err, ERR_USAGE, "--ttl: '%s' is not a number of days", days);
        clock_iso(clock_wall_us() + n * US_PER_DAY, iso);
        json_object_set_new(body, "expiresAt", json_string(iso));
        return 0;
}

static void set_grants(json_t *body, const struct args *a)
{
        json_t *grants = json_array();
        const char *key;

        for (size_t i = 0; (key = args_item(a, "grant", i)) != NULL; i++)
                json_array_append_new(grants,
                                      json_pack("{s:s, s:n}", "permissionKey", key, "scope"));
        if (json_array_size(grants) > 0)
                json_object_set(body, "grants", grants);
        json_decref(grants);
}

/* Role and grants are rights in a company, so they need one; the key of an administrator does not.
 */
static int fill_board(struct cli *c, const struct args *a, json_t *body, struct err *err)
{
        const char *role = args_value(a, "role");
        bool in_company = role || args_item(a, "grant", 0);
        const char *company;
        int r;

        if (args_value(a, "user"))
                json_object_set_new(body, "user", json_string(args_value(a, "user")));
        if (args_flag(a, "admin"))
                json_object_set_new(body, "instanceAdmin", json_true());
        if (in_company || c->company) {
                r = cli_company(c, false, &company, err);
                if (r < 0)
                        return r;
                json_object_set_new(body, "requestedCompanyId", json_string(company));
        }
        if (role)
                json_object_set_new(body, "membershipRole", json_string(role));
        set_grants(body, a);
        return set_expiry(body, args_value(a, "ttl"), err);
}

static void print_token(struct cli *c, const json_t *key)
{
        if (c->json) {
                out_json(key);
                return;
        }
        out_note("key %s (%s); the token is shown this once and cannot be shown again:",
                 cli_text(key, "id"), cli_text(key, "name"));
        out_line("%s", cli_text(key, "token"));
}

static int create_board(struct cli *c, const struct args *a, struct err *err)
{
        const char *name = args_value(a, "name");
        json_t *body = json_pack("{s:s}", "name", name ? name : "cli");
        json_t *key;
        int r;

        r = fill_board(c, a, body, err);
        if (r < 0) {
                json_decref(body);
                return r;
        }
        r = cli_call(c, "POST", "/api/board-api-keys", body, &key, err);
        if (r < 0)
                return r;
        print_token(c, key);
        return 0;
}

static int create_agent(struct cli *c, const struct args *a, const char *given, struct err *err)
{
        const char *name = args_value(a, "name");
        json_t *agent, *key;
        int r = cli_agent(c, given, &agent, err);

        if (r >= 0)
                r = cli_call(c, "POST", cli_printf(c, "/api/agents/%s/keys", cli_text(agent, "id")),
                             json_pack("{s:s*}", "name", name), &key, err);
        if (r < 0)
                return r;
        print_token(c, key);
        return 0;
}

static int run_create(struct cli *c, const struct args *a, struct err *err)
{
        const char *agent = args_value(a, "agent");
        bool board = args_flag(a, "board");

        if (board == (agent != NULL))
                return err_set(err, ERR_USAGE, "say for whom: --board or --agent AGENT");
        if (agent && (args_flag(a, "admin") || args_value(a, "user") || args_value(a, "role") ||
                      args_value(a, "ttl") || args_item(a, "grant", 0)))
                return err_set(err, ERR_USAGE,
                               "--user, --admin, --role, --grant and --ttl go with --board");
        return agent ? create_agent(c, a, agent, err) : create_board(c, a, err);
}

/* -- list and revoke -------------------------------------------------------------------------- */

/* The keys of an agent, or the caller's own board keys. *ret_path is where they live. */
static int get_keys(struct cli *c, const struct args *a, const char **ret_path, json_t **ret,
                    struct err *err)
{
        const char *given = args_value(a, "agent");
        json_t *agent;
        int r;

        *ret_path = "/api/board-api-keys";
        if (given) {
                r = cli_agent(c, given, &agent, err);
                if (r < 0)
                        return r;
                *ret_path = cli_printf(c, "/api/agents/%s/keys", cli_text(agent, "id"));
        }
        return cli_call_list(c, *ret_path, ret, err);
}

static int run_list(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = {
                { "ID", COLUMN_ID },        { "NAME", COLUMN_TEXT },    { "STATE", COLUMN_STATE },
                { "CREATED", COLUMN_TIME }, { "EXPIRES", COLUMN_TIME },
        };
        CLEAN(table_done) struct table t;
        json_t *list, *item;
        const char *path;
        size_t i;
        int r;

        table_init(&t, columns, ARRAY_LEN(columns));
        r = get_keys(c, a, &path, &list, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item) table_row(
                &t, (const char *[]){ cli_text(item, "id"), cli_text(item, "name"),
                                      *cli_text(item, "revokedAt") ? "revoked" : "active",
                                      cli_text(item, "createdAt"), cli_text(item, "expiresAt") });
        table_print(&t, "no keys");
        return 0;
}

static int run_revoke(struct cli *c, const struct args *a, struct err *err)
{
        json_t *list, *key, *answer;
        const char *path;
        int r;

        r = get_keys(c, a, &path, &list, err);
        if (r >= 0)
                r = cli_pick("key", list, a->words[0], "name", NULL, &key, err);
        if (r >= 0)
                r = cli_call(c, "DELETE",
                             cli_printf(c, "%s/%s", path, cli_escape(c, cli_text(key, "id"))), NULL,
                             &answer, err);
        if (r < 0)
                return r;
        if (c->json)
                out_json(answer);
        else
                out_line("revoked %s (%s)", cli_text(key, "id"), cli_text(key, "name"));
        return 0;
}

static const struct cli_option create_options[] = {
        { "board", 0, OPTION_FLAG, NULL, "for a person" },
        { "agent", 0, OPTION_VALUE, "AGENT", "for this agent (id or name)" },
        { "name", 0, OPTION_VALUE, "NAME", "what to call the key" },
        { "user", 0, OPTION_VALUE, "NAME", "board: whose key (default: yours)" },
        { "admin", 0, OPTION_FLAG, NULL, "board: instance administrator" },
        { "role", 0, OPTION_VALUE, "ROLE",
          "board: owner, admin, operator or viewer in the company" },
        { "grant", 0, OPTION_LIST, "KEY", "board: a permission, for example environments:manage" },
        { "ttl", 0, OPTION_VALUE, "DAYS", "board: days until it expires" },
        { 0 },
};

static const struct cli_option agent_option[] = {
        { "agent", 0, OPTION_VALUE, "AGENT", "keys of this agent instead of board keys" },
        { 0 },
};

static const struct cli_command create = {
        .name = "create",
        .synopsis = "--board|--agent AGENT [OPTION]...",
        .summary = "Make a key; its token is shown once",
        .example = "berth key create --board --name laptop --ttl 30",
        .options = create_options,
        .run = run_create,
};

static const struct cli_command list = {
        .name = "list",
        .synopsis = "[--agent AGENT]",
        .summary = "List keys, without their tokens",
        .example = "berth key list",
        .options = agent_option,
        .run = run_list,
};

static const struct cli_command revoke_key = {
        .name = "revoke",
        .synopsis = "ID|NAME [--agent AGENT]",
        .summary = "End a key at once",
        .notes = "At least four characters with which exactly one id begins or ends will do, too.",
        .example = "berth key revoke laptop",
        .options = agent_option,
        .run = run_revoke,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_key = {
        .name = "key",
        .synopsis = "",
        .summary = "Make, list and revoke API keys",
        .example = "berth key list",
        .sub = (const struct cli_command *const[]){ &create, &list, &revoke_key, NULL },
};
