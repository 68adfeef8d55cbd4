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

static int set_key_expiry(json_t *body, const char *days, struct err *err)
{
        char iso[ISO_TIME_LEN + 1];
        char *end;

        if (!days)
                return 0;
        long n = strtol(days, &end, 10);
        if (*days == '\0' || *end != '\0' || n < 1 || n > 36500)
                return err_set(err, ERR_USAGE, "--ttl: '%s' is not a number of days", days);
        clock_iso(clock_wall_us() + n * US_PER_DAY, iso);
        json_object_set_new(body, "expiresAt", json_string(iso));
        return 0;
}

/* Role and grants are rights in a company, so they need one; the key of an administrator does
 * not. */
static int fill_board_key(struct cli *c, const struct args *a, json_t *body, struct err *err)
{
        json_t *grants = cli_keep(c, json_array());
        const char *company, *key;
        int r = cli_fill(c, a,
                         MEMBERS({ "name", "name", .otherwise = "cli" }, { "user", "user" },
                                 { "instanceAdmin", "admin", MEMBER_TRUE },
                                 { "membershipRole", "role" }),
                         body, err);

        for (size_t i = 0; (key = args_item(a, "grant", i)) != NULL; i++)
                json_array_append_new(grants,
                                      json_pack("{s:s, s:n}", "permissionKey", key, "scope"));
        if (r >= 0 && (args_value(a, "role") || json_array_size(grants) > 0 || c->company)) {
                r = cli_company(c, false, &company, err);
                if (r >= 0)
                        r = body_set(body, "requestedCompanyId", company, err);
        }
        if (json_array_size(grants) > 0)
                json_object_set(body, "grants", grants);
        return r < 0 ? r : set_key_expiry(body, args_value(a, "ttl"), err);
}

static int cmd_key_create(struct cli *c, const struct args *a, struct err *err)
{
        const char *given = args_value(a, "agent"), *path = "/api/board-api-keys";
        json_t *agent, *key, *body = cli_keep(c, json_object());
        int r;

        if (args_flag(a, "board") == (given != NULL))
                return err_set(err, ERR_USAGE, "say for whom: --board or --agent AGENT");
        if (given && (args_flag(a, "admin") || args_value(a, "user") || args_value(a, "role") ||
                      args_value(a, "ttl") || args_item(a, "grant", 0)))
                return err_set(err, ERR_USAGE,
                               "--user, --admin, --role, --grant and --ttl go with --board");
        if (given) {
                r = cli_find(c, &kind_agent, given, &agent, err);
                if (r >= 0)
                        r = body_set(body, "name", args_value(a, "name"), err);
                path = cli_printf(c, "/api/agents/%s/keys", r < 0 ? "" : cli_text(agent, "id"));
        } else {
                r = fill_board_key(c, a, body, err);
        }
        if (r >= 0)
                r = cli_call(c, "POST", path, json_incref(body), &key, err);
        if (r < 0)
                return r;
        if (!c->json)
                out_note("key %s (%s); the token is shown this once and cannot be shown again:",
                         cli_text(key, "id"), cli_text(key, "name"));
        cli_answer(c, key, "%s", cli_text(key, "token"));
        return 0;
}

/* -- list and revoke -------------------------------------------------------------------------- */

static const struct cli_kind kind_key = { .what = "key", .command = "key", .name = "name" };

/* The keys of an agent, or the caller's own board keys. *ret_path is where they live. */
static int find_keys(struct cli *c, const struct args *a, const char **ret_path, json_t **ret,
                     struct err *err)
{
        const char *given = args_value(a, "agent");
        json_t *agent;
        int r;

        *ret_path = "/api/board-api-keys";
        if (given) {
                r = cli_find(c, &kind_agent, given, &agent, err);
                if (r < 0)
                        return r;
                *ret_path = cli_printf(c, "/api/agents/%s/keys", cli_text(agent, "id"));
        }
        return cli_call_list(c, *ret_path, ret, err);
}

static const char *state_text(struct cli *c UNUSED, const json_t *key)
{
        return *cli_text(key, "revokedAt") ? "revoked" : "active";
}

static int cmd_key_list(struct cli *c, const struct args *a, struct err *err)
{
        const char *path;
        json_t *list;
        int r = find_keys(c, a, &path, &list, err);

        if (r < 0)
                return r;
        if (c->json)
                out_json(list);
        else
                list_print(c, list,
                           FIELDS({ "ID", "id", COLUMN_ID }, { "NAME", "name" },
                                  { "STATE", .kind = COLUMN_STATE, .text = state_text },
                                  { "CREATED", "createdAt", COLUMN_TIME },
                                  { "EXPIRES", "expiresAt", COLUMN_TIME }),
                           "no keys");
        return 0;
}

static int cmd_key_revoke(struct cli *c, const struct args *a, struct err *err)
{
        json_t *list, *key, *answer;
        const char *path;

        int r = find_keys(c, a, &path, &list, err);
        if (r >= 0)
                r = cli_pick(&kind_key, list, a->words[0], &key, err);
        if (r >= 0)
                r = cli_call(c, "DELETE",
                             cli_printf(c, "%s/%s", path, cli_escape(c, cli_text(key, "id"))), NULL,
                             &answer, err);
        if (r >= 0)
                cli_answer(c, answer, "revoked %s (%s)", cli_text(key, "id"),
                           cli_text(key, "name"));
        return r;
}

#define AGENT_OPTION OPTION("agent", "AGENT", "keys of this agent instead of board keys")

const struct cli_command key_commands[] = {
        { "create", "--board|--agent AGENT [OPTION]...", "Create a key; its token is shown once",
          "berth key create --board --name laptop --ttl 30",
          .options = OPTIONS(
                  { "board", NULL, "for a person" },
                  { "agent", "AGENT", "for this agent (id or name)" },
                  { "name", "NAME", "what to call the key" },
                  { "user", "NAME", "board: whose key (default: yours)" },
                  { "admin", NULL, "board: instance administrator" },
                  { "role", "ROLE", "board: owner, admin, operator or viewer in the company" },
                  { "grant", "KEY", "board: a permission, for example environments:manage",
                    .is_list = true },
                  { "ttl", "DAYS", "board: days until it expires" }),
          .run = cmd_key_create },
        { "list", "[--agent AGENT]", "List keys, without their tokens", "berth key list",
          .options = OPTIONS(AGENT_OPTION), .run = cmd_key_list },
        { "revoke", "ID|NAME [--agent AGENT]", "Revoke a key at once", "berth key revoke laptop",
          .words = 1,
          .notes =
                  "At least four characters with which exactly one id begins or ends will do, too.",
          .options = OPTIONS(AGENT_OPTION), .run = cmd_key_revoke },
        { 0 },
};
