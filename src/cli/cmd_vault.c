/* `berth vault`: where secrets are kept besides Berth's own database. */
#include "cli/command.h"

static const char *default_text(struct cli *c UNUSED, const json_t *vault)
{
        return json_is_true(json_object_get(vault, "isDefault")) ? "yes" : "no";
}

static const char *default_mark(struct cli *c UNUSED, const json_t *vault)
{
        return json_is_true(json_object_get(vault, "isDefault")) ? "yes" : "";
}

const struct cli_kind kind_vault = {
        .what = "vault",
        .command = "vault",
        .path = "/api/secret-provider-configs",
        .list = "/api/companies/{company}/secret-provider-configs",
        .name = "displayName",
        .fields = FIELDS(
                { "Id", "id", COLUMN_ID }, { "Name", "displayName" }, { "Provider", "provider" },
                { "Status", "status", COLUMN_STATE }, { "Default", .text = default_text },
                { "Health", "healthStatus", COLUMN_STATE },
                { "Checked", "healthCheckedAt", COLUMN_TIME }, { "Config", "config", COLUMN_JSON }),
};

static int cmd_vault_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = cli_keep(c, json_object());
        const char *path;
        int r = cli_path(c, kind_vault.list, NULL, true, &path, err);

        json_object_set_new(body, "config", json_object()); /* unless one is given */
        if (r >= 0)
                r = cli_fill(c, a,
                             MEMBERS({ "provider", .word = 1 }, { "displayName", .word = 2 },
                                     { "config", .type = MEMBER_CONFIG },
                                     { "isDefault", "default", MEMBER_TRUE }),
                             body, err);
        return r < 0 ? r : cli_send(c, "POST", path, json_incref(body), &kind_vault, err);
}

/* -- health ----------------------------------------------------------------------------------- */

/* Status 1 when one of the providers is broken. */
static int providers_status(const json_t *answer)
{
        json_t *item;
        size_t i;

        json_array_foreach(json_object_get(answer, "providers"), i, item)
        {
                if (streq(cli_text(item, "status"), "error"))
                        return 1;
        }
        return 0;
}

static int vault_health_status(const json_t *health)
{
        return streq(cli_text(health, "status"), "error") ? 1 : 0;
}

static void print_health(struct cli *c, const json_t *health)
{
        json_t *line;
        size_t i;

        fields_print(c, health,
                     FIELDS({ "Status", "status", COLUMN_STATE }, { "Message", "message" }));
        json_array_foreach(json_object_get(json_object_get(health, "details"), "guidance"), i, line)
                out_line("- %s", json_string_value(line));
}

static const struct cli_action health_of_one = {
        &kind_vault, "POST", "/health", .print = print_health, .status = vault_health_status,
};

static const struct cli_action health_of_all = {
        NULL,
        "GET",
        "/api/companies/{company}/secret-providers/health",
        .columns = FIELDS({ "PROVIDER", "provider" }, { "STATUS", "status", COLUMN_STATE },
                          { "MESSAGE", "message" }),
        .within = "providers",
        .none = "no providers",
        .status = providers_status,
};

static int cmd_vault_health(struct cli *c, const struct args *a, struct err *err)
{
        return cli_act(c, a, a->n_words ? &health_of_one : &health_of_all, err);
}

/* -- taking up what it holds ------------------------------------------------------------------ */

static int cmd_vault_preview(struct cli *c, const struct args *a, struct err *err)
{
        json_t *vault, *answer;
        int r = cli_find(c, &kind_vault, a->words[0], &vault, err);

        if (r < 0)
                return r;
        r = cli_call(c, "POST",
                     cli_printf(c, "/api/companies/%s/secrets/remote-import/preview",
                                cli_text(vault, "companyId")),
                     json_pack("{s:s, s:s*, s:s*}", "providerConfigId", cli_text(vault, "id"),
                               "query", args_value(a, "query"), "nextToken", args_value(a, "next")),
                     &answer, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(answer);
                return 0;
        }
        list_print(c, json_object_get(answer, "candidates"),
                   FIELDS({ "NAME", "name" }, { "STATUS", "status", COLUMN_STATE },
                          { "REFERENCE", "externalRef" }),
                   "nothing to take up");
        if (*cli_text(answer, "nextToken"))
                out_note("there is more: --next %s", cli_text(answer, "nextToken"));
        return 0;
}

static int cmd_vault_import(struct cli *c, const struct args *a, struct err *err)
{
        json_t *vault, *answer, *rows = cli_keep(c, json_array());
        int r = cli_find(c, &kind_vault, a->words[0], &vault, err);

        for (size_t i = 1; i < a->n_words; i++)
                json_array_append_new(rows, json_pack("{s:s}", "externalRef", a->words[i]));
        if (r >= 0)
                r = cli_call(c, "POST",
                             cli_printf(c, "/api/companies/%s/secrets/remote-import",
                                        cli_text(vault, "companyId")),
                             json_pack("{s:s, s:O}", "providerConfigId", cli_text(vault, "id"),
                                       "secrets", rows),
                             &answer, err);
        return r < 0 ? r : secret_imported(c, answer);
}

#define CONFIG_OPTIONS                                                                             \
        OPTION("config", "JSON", "its configuration"),                                             \
                OPTION("option", "KEY=VALUE", "one setting of it", 'o', true)

const struct cli_command vault_commands[] = {
        { "list", "", "List vaults", "berth vault list",
          .act = { NULL, "GET", "/api/companies/{company}/secret-provider-configs",
                   .columns =
                           FIELDS({ "ID", "id", COLUMN_ID }, { "NAME", "displayName" },
                                  { "PROVIDER", "provider" }, { "STATUS", "status", COLUMN_STATE },
                                  { "DEFAULT", .text = default_mark },
                                  { "HEALTH", "healthStatus", COLUMN_STATE }),
                   .none = "no vaults; secrets are sealed in Berth's own database" } },
        { "create", "PROVIDER NAME [-o KEY=VALUE]... [--default]", "Register a vault",
          "berth vault create aws_secrets_manager prod -o region=eu-central-1", .words = 2,
          .notes = "PROVIDER is local_encrypted, aws_secrets_manager, gcp_secret_manager or vault. "
                   "The\nconfiguration says where it is; credentials do not belong there.",
          .options = OPTIONS(CONFIG_OPTIONS,
                             { "default", NULL, "use it by default for its provider" }),
          .run = cmd_vault_create },
        { "show", "VAULT", "Show one vault", "berth vault show prod", .words = 1,
          .act = { &kind_vault } },
        { "update", "VAULT [OPTION]...", "Change a vault",
          "berth vault update prod --name production", .words = 1,
          .notes = "A configuration that is given replaces the one that is there.",
          .options = OPTIONS({ "name", "NAME", "a new name" },
                             { "status", "STATUS", "ready, warning, coming_soon or disabled" },
                             CONFIG_OPTIONS),
          .act = { &kind_vault, "PATCH",
                   .members = MEMBERS({ "displayName", "name" }, { "status", "status" },
                                      { "config", .type = MEMBER_CONFIG }),
                   .nothing = "say what to change: --name, --status, --config or -o" } },
        { "disable", "VAULT", "Stop using a vault", "berth vault disable prod", .words = 1,
          .notes = "Its secrets stay known and cannot be used until it is ready again.",
          .act = { &kind_vault, "DELETE" } },
        { "default", "VAULT", "Use a vault by default for its provider", "berth vault default prod",
          .words = 1, .act = { &kind_vault, "POST", "/default" } },
        { "health", "[VAULT]", "Check a vault, or all providers", "berth vault health",
          .max_words = 1, .notes = "Exit status 1 when something is broken.",
          .run = cmd_vault_health },
        { "preview", "VAULT [--query TEXT] [--next TOKEN]",
          "Show what a vault holds and could be taken up",
          "berth vault preview prod --query billing", .words = 1,
          .options = OPTIONS({ "query", "TEXT", "only those that match", 'q' },
                             { "next", "TOKEN", "go on where the last page ended" }),
          .run = cmd_vault_preview },
        { "import", "VAULT REF...", "Take up references to what a vault holds",
          "berth vault import prod arn:aws:secretsmanager:…", .words = 2, .max_words = 101,
          .notes = "REF is a reference as preview shows it. No value is read.",
          .run = cmd_vault_import },
        { 0 },
};
