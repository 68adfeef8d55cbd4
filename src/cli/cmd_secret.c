/* `berth secret`: the secrets of a company. Reading is here, changing them in cmd_secret_write.c.
 * Values can be given, never shown. */
#include "cli/cmd_secret.h"
#include "base/uuid.h"
#include "cli/output.h"

int secret_find(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        const char *company;
        json_t *list;
        int r;

        if (uuid_is_valid(given))
                return cli_call(c, "GET", cli_printf(c, "/api/secrets/%s", given), NULL, ret, err);
        r = cli_company(c, false, &company, err);
        if (r >= 0)
                r = cli_call_list(c, cli_printf(c, "/api/companies/%s/secrets", company), &list,
                                  err);
        return r < 0 ? r : cli_pick("secret", list, given, "name", "key", ret, err);
}

void secret_print(struct cli *c, const json_t *secret)
{
        CLEAN(cleanup_free) char *version = NULL;
        CLEAN(cleanup_free) char *uses = NULL;

        if (c->json) {
                out_json(secret);
                return;
        }
        version = out_scalar(json_object_get(secret, "latestVersion"));
        uses = out_scalar(json_object_get(secret, "referenceCount"));
        out_label("Id", COLUMN_ID, cli_text(secret, "id"));
        out_label("Name", COLUMN_TEXT, cli_text(secret, "name"));
        out_label("Key", COLUMN_TEXT, cli_text(secret, "key"));
        out_label("Description", COLUMN_TEXT, cli_text(secret, "description"));
        out_label("Status", COLUMN_STATE, cli_text(secret, "status"));
        out_label("Provider", COLUMN_TEXT, cli_text(secret, "provider"));
        out_label("Mode", COLUMN_TEXT, cli_text(secret, "managedMode"));
        out_label("Vault", COLUMN_ID, cli_text(secret, "providerConfigId"));
        out_label("Reference", COLUMN_TEXT, cli_text(secret, "externalRef"));
        out_label("Version", COLUMN_TEXT, version);
        out_label("Bindings", COLUMN_TEXT, uses);
        out_label("Rotated", COLUMN_TIME, cli_text(secret, "lastRotatedAt"));
        out_label("Last used", COLUMN_TIME, cli_text(secret, "lastResolvedAt"));
        out_label("Created", COLUMN_TIME, cli_text(secret, "createdAt"));
}

static int run_list(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = {
                { "ID", COLUMN_ID },         { "NAME", COLUMN_TEXT },    { "STATUS", COLUMN_STATE },
                { "PROVIDER", COLUMN_TEXT }, { "VERSION", COLUMN_TEXT }, { "USES", COLUMN_TEXT },
                { "ROTATED", COLUMN_TIME },
        };
        CLEAN(table_done) struct table t;
        json_t *list, *item;
        const char *company;
        size_t i;
        int r = cli_company(c, false, &company, err);

        table_init(&t, columns, ARRAY_LEN(columns));
        if (r >= 0)
                r = cli_call_list(c, cli_printf(c, "/api/companies/%s/secrets", company), &list,
                                  err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item)
        {
                CLEAN(cleanup_free) char *version = NULL;
                CLEAN(cleanup_free) char *uses = NULL;

                version = out_scalar(json_object_get(item, "latestVersion"));
                uses = out_scalar(json_object_get(item, "referenceCount"));
                table_row(&t,
                          (const char *[]){ cli_text(item, "id"), cli_text(item, "name"),
                                            cli_text(item, "status"), cli_text(item, "provider"),
                                            version, uses, cli_text(item, "lastRotatedAt") });
        }
        table_print(&t, "no secrets");
        return 0;
}

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        json_t *secret;
        int r = secret_find(c, a->words[0], &secret, err);

        if (r < 0)
                return r;
        secret_print(c, secret);
        return 0;
}

/* What hangs on one secret. An id is enough for events, which outlive it. */
static int get_part(struct cli *c, const char *given, const char *part, json_t **ret,
                    struct err *err)
{
        const char *id = given;
        json_t *secret;
        int r = 0;

        if (!uuid_is_valid(given)) {
                r = secret_find(c, given, &secret, err);
                if (r >= 0)
                        id = cli_text(secret, "id");
        }
        return r < 0 ? r
                     : cli_call(c, "GET", cli_printf(c, "/api/secrets/%s/%s", id, part), NULL, ret,
                                err);
}

static int run_usage(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = {
                { "TYPE", COLUMN_TEXT },    { "TARGET", COLUMN_TEXT }, { "ID", COLUMN_ID },
                { "STATUS", COLUMN_STATE }, { "PATH", COLUMN_TEXT },   { "VERSION", COLUMN_TEXT },
        };
        CLEAN(table_done) struct table t;
        json_t *usage, *item;
        size_t i;
        int r = get_part(c, a->words[0], "usage", &usage, err);

        table_init(&t, columns, ARRAY_LEN(columns));
        if (r < 0)
                return r;
        if (c->json) {
                out_json(usage);
                return 0;
        }
        json_array_foreach(json_object_get(usage, "bindings"), i, item)
        {
                const json_t *target = json_object_get(item, "target");

                table_row(&t,
                          (const char *[]){ cli_text(item, "targetType"), cli_text(target, "label"),
                                            cli_text(item, "targetId"), cli_text(target, "status"),
                                            cli_text(item, "configPath"),
                                            cli_text(item, "versionSelector") });
        }
        table_print(&t, "nobody uses it");
        return 0;
}

static int run_events(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = {
                { "TIME", COLUMN_TIME },    { "OUTCOME", COLUMN_STATE },
                { "VERSION", COLUMN_TEXT }, { "CONSUMER", COLUMN_TEXT },
                { "PATH", COLUMN_TEXT },    { "RUN", COLUMN_ID },
                { "ERROR", COLUMN_TEXT },
        };
        CLEAN(table_done) struct table t;
        json_t *list, *item;
        size_t i;
        int r = get_part(c, a->words[0], "access-events", &list, err);

        table_init(&t, columns, ARRAY_LEN(columns));
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item)
        {
                CLEAN(cleanup_free) char *version = out_scalar(json_object_get(item, "version"));

                table_row(&t,
                          (const char *[]){
                                  cli_text(item, "createdAt"), cli_text(item, "outcome"), version,
                                  cli_printf(c, "%s:%s", cli_text(item, "consumerType"),
                                             cli_text(item, "consumerId")),
                                  cli_text(item, "configPath"), cli_text(item, "heartbeatRunId"),
                                  cli_text(item, "errorCode") });
        }
        table_print(&t, "it was never used");
        return 0;
}

static int run_versions(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = {
                { "VERSION", COLUMN_TEXT },
                { "STATUS", COLUMN_STATE },
                { "REFERENCE", COLUMN_TEXT },
                { "CREATED", COLUMN_TIME },
        };
        CLEAN(table_done) struct table t;
        json_t *list, *item;
        size_t i;
        int r = get_part(c, a->words[0], "versions", &list, err);

        table_init(&t, columns, ARRAY_LEN(columns));
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item)
        {
                CLEAN(cleanup_free) char *version = out_scalar(json_object_get(item, "version"));

                table_row(&t, (const char *[]){ version, cli_text(item, "status"),
                                                cli_text(item, "providerVersionRef"),
                                                cli_text(item, "createdAt") });
        }
        table_print(&t, "no versions");
        return 0;
}

static const struct cli_command list = {
        .name = "list",
        .synopsis = "",
        .summary = "List secrets",
        .example = "berth secret list",
        .run = run_list,
};

static const struct cli_command show = {
        .name = "show",
        .synopsis = "SECRET",
        .summary = "Show one secret, without its value",
        .example = "berth secret show OPENAI_API_KEY",
        .run = run_show,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command usage = {
        .name = "usage",
        .synopsis = "SECRET",
        .summary = "Show who may use it, and where",
        .example = "berth secret usage OPENAI_API_KEY",
        .run = run_usage,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command events = {
        .name = "events",
        .synopsis = "SECRET",
        .summary = "Show who used it, and when",
        .notes = "Events outlive the secret: for one that is gone, give its whole id.",
        .example = "berth secret events OPENAI_API_KEY",
        .run = run_events,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command versions = {
        .name = "versions",
        .synopsis = "SECRET",
        .summary = "List its versions",
        .example = "berth secret versions OPENAI_API_KEY",
        .run = run_versions,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_secret = {
        .name = "secret",
        .synopsis = "",
        .summary = "Keep, rotate and remove secrets; see who uses them",
        .notes = "SECRET is a name, a key, an id, or at least four characters with which exactly "
                 "one id\nbegins or ends. Values are read from standard input or a file, never "
                 "from the command\nline, and are never shown.",
        .example = "berth secret create OPENAI_API_KEY --file key.txt",
        .sub = (const struct cli_command *const[]){ &list, &cmd_secret_create, &cmd_secret_link,
                                                    &show, &cmd_secret_rotate, &cmd_secret_update,
                                                    &cmd_secret_disable, &cmd_secret_enable,
                                                    &cmd_secret_delete, &usage, &events, &versions,
                                                    &cmd_secret_rekey, &cmd_secret_import, NULL },
};
