/* `berth vault`: where secrets are kept besides Berth's own database. */
#include "base/uuid.h"
#include "cli/cmd_secret.h"
#include "cli/output.h"

int vault_find(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        const char *company;
        json_t *list;
        int r;

        if (uuid_is_valid(given))
                return cli_call(c, "GET", cli_printf(c, "/api/secret-provider-configs/%s", given),
                                NULL, ret, err);
        r = cli_company(c, false, &company, err);
        if (r >= 0)
                r = cli_call_list(
                        c, cli_printf(c, "/api/companies/%s/secret-provider-configs", company),
                        &list, err);
        return r < 0 ? r : cli_pick("vault", list, given, "displayName", NULL, ret, err);
}

static void print(struct cli *c, const json_t *vault)
{
        if (c->json) {
                out_json(vault);
                return;
        }
        out_label("Id", COLUMN_ID, cli_text(vault, "id"));
        out_label("Name", COLUMN_TEXT, cli_text(vault, "displayName"));
        out_label("Provider", COLUMN_TEXT, cli_text(vault, "provider"));
        out_label("Status", COLUMN_STATE, cli_text(vault, "status"));
        out_label("Default", COLUMN_TEXT,
                  json_is_true(json_object_get(vault, "isDefault")) ? "yes" : "no");
        out_label("Health", COLUMN_STATE, cli_text(vault, "healthStatus"));
        out_label("Checked", COLUMN_TIME, cli_text(vault, "healthCheckedAt"));
        out_label_json("Config", json_object_get(vault, "config"));
}

static int run_list(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = {
                { "ID", COLUMN_ID },        { "NAME", COLUMN_TEXT },    { "PROVIDER", COLUMN_TEXT },
                { "STATUS", COLUMN_STATE }, { "DEFAULT", COLUMN_TEXT }, { "HEALTH", COLUMN_STATE },
        };
        CLEAN(table_done) struct table t;
        json_t *list, *item;
        const char *company;
        size_t i;
        int r = cli_company(c, false, &company, err);

        table_init(&t, columns, ARRAY_LEN(columns));
        if (r >= 0)
                r = cli_call_list(
                        c, cli_printf(c, "/api/companies/%s/secret-provider-configs", company),
                        &list, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item) table_row(
                &t, (const char *[]){ cli_text(item, "id"), cli_text(item, "displayName"),
                                      cli_text(item, "provider"), cli_text(item, "status"),
                                      json_is_true(json_object_get(item, "isDefault")) ? "yes" : "",
                                      cli_text(item, "healthStatus") });
        table_print(&t, "no vaults; secrets are sealed in Berth's own database");
        return 0;
}

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        json_t *vault;
        int r = vault_find(c, a->words[0], &vault, err);

        if (r >= 0)
                print(c, vault);
        return r;
}

static int run_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body, *config = NULL, *vault;
        const char *company;
        int r = cli_company(c, true, &company, err);

        if (r >= 0)
                r = cli_config(a, &config, err);
        if (r < 0)
                return r;
        body = json_pack("{s:s, s:s, s:o}", "provider", a->words[0], "displayName", a->words[1],
                         "config", config ? config : json_object());
        if (args_flag(a, "default"))
                json_object_set_new(body, "isDefault", json_true());
        r = cli_call(c, "POST", cli_printf(c, "/api/companies/%s/secret-provider-configs", company),
                     body, &vault, err);
        if (r >= 0)
                print(c, vault);
        return r;
}

static int act(struct cli *c, const char *given, const char *method, const char *suffix,
               json_t *take_body, json_t **ret, struct err *err)
{
        json_t *vault;
        int r = vault_find(c, given, &vault, err);

        if (r < 0) {
                json_decref(take_body);
                return r;
        }
        return cli_call(
                c, method,
                cli_printf(c, "/api/secret-provider-configs/%s%s", cli_text(vault, "id"), suffix),
                take_body, ret, err);
}

static int run_update(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body, *config = NULL, *vault;
        const char *name = args_value(a, "name"), *status = args_value(a, "status");
        int r = cli_config(a, &config, err);

        if (r < 0)
                return r;
        body = json_pack("{s:s*, s:s*, s:o*}", "displayName", name, "status", status, "config",
                         config);
        if (json_object_size(body) == 0) {
                json_decref(body);
                return err_set(err, ERR_USAGE,
                               "say what to change: --name, --status, --config or -o");
        }
        r = act(c, a->words[0], "PATCH", "", body, &vault, err);
        if (r >= 0)
                print(c, vault);
        return r;
}

static int run_disable(struct cli *c, const struct args *a, struct err *err)
{
        json_t *vault;
        int r = act(c, a->words[0], "DELETE", "", NULL, &vault, err);

        if (r >= 0)
                print(c, vault);
        return r;
}

static int run_default(struct cli *c, const struct args *a, struct err *err)
{
        json_t *vault;
        int r = act(c, a->words[0], "POST", "/default", json_object(), &vault, err);

        if (r >= 0)
                print(c, vault);
        return r;
}

/* -- health ----------------------------------------------------------------------------------- */

static int all_health(struct cli *c, struct err *err)
{
        static const struct column columns[] = { { "PROVIDER", COLUMN_TEXT },
                                                 { "STATUS", COLUMN_STATE },
                                                 { "MESSAGE", COLUMN_TEXT } };
        CLEAN(table_done) struct table t;
        json_t *answer, *item;
        const char *company;
        bool bad = false;
        size_t i;
        int r = cli_company(c, false, &company, err);

        table_init(&t, columns, ARRAY_LEN(columns));
        if (r >= 0)
                r = cli_call(c, "GET",
                             cli_printf(c, "/api/companies/%s/secret-providers/health", company),
                             NULL, &answer, err);
        if (r < 0)
                return r;
        json_array_foreach(json_object_get(answer, "providers"), i, item)
        {
                bad = bad || streq(cli_text(item, "status"), "error");
                table_row(&t,
                          (const char *[]){ cli_text(item, "provider"), cli_text(item, "status"),
                                            cli_text(item, "message") });
        }
        if (c->json)
                out_json(answer);
        else
                table_print(&t, "no providers");
        return bad ? 1 : 0;
}

static int run_health(struct cli *c, const struct args *a, struct err *err)
{
        json_t *health, *line;
        size_t i;
        int r;

        if (a->n_words == 0)
                return all_health(c, err);
        r = act(c, a->words[0], "POST", "/health", json_object(), &health, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(health);
        } else {
                out_label("Status", COLUMN_STATE, cli_text(health, "status"));
                out_label("Message", COLUMN_TEXT, cli_text(health, "message"));
                json_array_foreach(json_object_get(json_object_get(health, "details"), "guidance"),
                                   i, line) out_line("- %s", json_string_value(line));
        }
        return streq(cli_text(health, "status"), "error") ? 1 : 0;
}

/* -- taking up what it holds ------------------------------------------------------------------ */

static int run_preview(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = { { "NAME", COLUMN_TEXT },
                                                 { "STATUS", COLUMN_STATE },
                                                 { "REFERENCE", COLUMN_TEXT } };
        CLEAN(table_done) struct table t;
        json_t *vault, *answer, *item;
        const char *company;
        size_t i;
        int r = vault_find(c, a->words[0], &vault, err);

        table_init(&t, columns, ARRAY_LEN(columns));
        if (r < 0)
                return r;
        company = cli_text(vault, "companyId");
        r = cli_call(c, "POST",
                     cli_printf(c, "/api/companies/%s/secrets/remote-import/preview", company),
                     json_pack("{s:s, s:s*, s:s*}", "providerConfigId", cli_text(vault, "id"),
                               "query", args_value(a, "query"), "nextToken", args_value(a, "next")),
                     &answer, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(answer);
                return 0;
        }
        json_array_foreach(json_object_get(answer, "candidates"), i, item)
                table_row(&t, (const char *[]){ cli_text(item, "name"), cli_text(item, "status"),
                                                cli_text(item, "externalRef") });
        table_print(&t, "nothing to take up");
        if (*cli_text(answer, "nextToken"))
                out_note("there is more: --next %s", cli_text(answer, "nextToken"));
        return 0;
}

static int run_import(struct cli *c, const struct args *a, struct err *err)
{
        json_t *vault, *answer, *item, *rows = json_array();
        size_t i;
        int r = vault_find(c, a->words[0], &vault, err);

        for (i = 1; i < a->n_words; i++)
                json_array_append_new(rows, json_pack("{s:s}", "externalRef", a->words[i]));
        if (r < 0) {
                json_decref(rows);
                return r;
        }
        r = cli_call(
                c, "POST",
                cli_printf(c, "/api/companies/%s/secrets/remote-import",
                           cli_text(vault, "companyId")),
                json_pack("{s:s, s:o}", "providerConfigId", cli_text(vault, "id"), "secrets", rows),
                &answer, err);
        if (r < 0)
                return r;
        if (c->json)
                out_json(answer);
        else
                json_array_foreach(json_object_get(answer, "results"), i, item)
                        out_line("%s: %s%s%s", cli_text(item, "name"), cli_text(item, "status"),
                                 *cli_text(item, "reason") ? ": " : "", cli_text(item, "reason"));
        return json_integer_value(json_object_get(answer, "errorCount")) > 0 ? 1 : 0;
}

/* -- the table -------------------------------------------------------------------------------- */

#define CONFIG_OPTIONS                                                                             \
        { "config", 0, OPTION_VALUE, "JSON", "its configuration" },                                \
        {                                                                                          \
                "option", 'o', OPTION_LIST, "KEY=VALUE", "one setting of it"                       \
        }

static const struct cli_option create_options[] = {
        CONFIG_OPTIONS,
        { "default", 0, OPTION_FLAG, NULL, "the first choice for its provider" },
        { 0 },
};
static const struct cli_option update_options[] = {
        { "name", 0, OPTION_VALUE, "NAME", "a new name" },
        { "status", 0, OPTION_VALUE, "STATUS", "ready, warning, coming_soon or disabled" },
        CONFIG_OPTIONS,
        { 0 },
};
static const struct cli_option preview_options[] = {
        { "query", 'q', OPTION_VALUE, "TEXT", "only those that match" },
        { "next", 0, OPTION_VALUE, "TOKEN", "go on where the last page ended" },
        { 0 },
};

static const struct cli_command list = {
        .name = "list",
        .synopsis = "",
        .summary = "List vaults",
        .example = "berth vault list",
        .run = run_list,
};
static const struct cli_command create = {
        .name = "create",
        .synopsis = "PROVIDER NAME [-o KEY=VALUE]... [--default]",
        .summary = "Make a vault known",
        .notes = "PROVIDER is local_encrypted, aws_secrets_manager, gcp_secret_manager or vault. "
                 "The\nconfiguration says where it is; credentials do not belong there.",
        .example = "berth vault create aws_secrets_manager prod -o region=eu-central-1",
        .options = create_options,
        .run = run_create,
        .min_words = 2,
        .max_words = 2,
};
static const struct cli_command show = {
        .name = "show",
        .synopsis = "VAULT",
        .summary = "Show one vault",
        .example = "berth vault show prod",
        .run = run_show,
        .min_words = 1,
        .max_words = 1,
};
static const struct cli_command update = {
        .name = "update",
        .synopsis = "VAULT [OPTION]...",
        .summary = "Change a vault",
        .notes = "A configuration that is given replaces the one that is there.",
        .example = "berth vault update prod --name production",
        .options = update_options,
        .run = run_update,
        .min_words = 1,
        .max_words = 1,
};
static const struct cli_command disable = {
        .name = "disable",
        .synopsis = "VAULT",
        .summary = "Stop using a vault",
        .notes = "Its secrets stay known and cannot be used until it is ready again.",
        .example = "berth vault disable prod",
        .run = run_disable,
        .min_words = 1,
        .max_words = 1,
};
static const struct cli_command set_default = {
        .name = "default",
        .synopsis = "VAULT",
        .summary = "Make it the first choice for its provider",
        .example = "berth vault default prod",
        .run = run_default,
        .min_words = 1,
        .max_words = 1,
};
static const struct cli_command health = {
        .name = "health",
        .synopsis = "[VAULT]",
        .summary = "Check a vault, or all providers",
        .notes = "Exit status 1 when something is broken.",
        .example = "berth vault health",
        .run = run_health,
        .max_words = 1,
};
static const struct cli_command preview = {
        .name = "preview",
        .synopsis = "VAULT [--query TEXT] [--next TOKEN]",
        .summary = "Show what a vault holds and could be taken up",
        .example = "berth vault preview prod --query billing",
        .options = preview_options,
        .run = run_preview,
        .min_words = 1,
        .max_words = 1,
};
static const struct cli_command import = {
        .name = "import",
        .synopsis = "VAULT REF...",
        .summary = "Take up references to what a vault holds",
        .notes = "REF is a reference as preview shows it. No value is read.",
        .example = "berth vault import prod arn:aws:secretsmanager:…",
        .run = run_import,
        .min_words = 2,
        .max_words = 101,
};

const struct cli_command cmd_vault = {
        .name = "vault",
        .synopsis = "",
        .summary = "Say where secrets are kept, and check it",
        .notes = "VAULT is a name, an id, or at least four characters with which exactly one id "
                 "begins or\nends.",
        .example = "berth vault health",
        .sub = (const struct cli_command *const[]){ &list, &create, &show, &update, &disable,
                                                    &set_default, &health, &preview, &import,
                                                    NULL },
};
