/* `berth secret`: the secrets of a company. What needs a value is in cmd_secret_write.c. Values can
 * be given, never shown. */
#include "cli/cmd_secret.h"

const struct cli_kind kind_secret = {
        .what = "secret",
        .command = "secret",
        .path = "/api/secrets",
        .list = "/api/companies/{company}/secrets",
        .name = "name",
        .other = "key",
        .fields = FIELDS({ "Id", "id", COLUMN_ID }, { "Name", "name" }, { "Key", "key" },
                         { "Description", "description" }, { "Status", "status", COLUMN_STATE },
                         { "Provider", "provider" }, { "Mode", "managedMode" },
                         { "Vault", "providerConfigId", COLUMN_ID }, { "Reference", "externalRef" },
                         { "Version", "latestVersion" }, { "Bindings", "referenceCount" },
                         { "Rotated", "lastRotatedAt", COLUMN_TIME },
                         { "Last used", "lastResolvedAt", COLUMN_TIME },
                         { "Created", "createdAt", COLUMN_TIME }),
};

static const char *consumer_text(struct cli *c, const json_t *event)
{
        return cli_printf(c, "%s:%s", cli_text(event, "consumerType"),
                          cli_text(event, "consumerId"));
}

static void print_rekeyed(struct cli *c UNUSED, const json_t *answer)
{
        out_note("the master key is new; %lld versions were sealed with it. Back it up.",
                 (long long)json_integer_value(json_object_get(answer, "resealedCount")));
}

#define FILE_OPTION OPTION("file", "FILE", "read the value from there", 'f')

#define PLACE_OPTIONS                                                                              \
        OPTION("key", "KEY", "short name for programs; default: from NAME"),                       \
                OPTION("description", "TEXT", "what it is for"),                                   \
                OPTION("provider", "PROVIDER",                                                     \
                       "local_encrypted, aws_secrets_manager, gcp_secret_manager or vault"),       \
                OPTION("vault", "VAULT", "the vault to keep it in (berth vault list)")

#define VALUE_NOTES                                                                                \
        "The value is read from FILE, from standard input, or asked for on a terminal. The last\n" \
        "newline of a single line does not belong to it."

const struct cli_command secret_commands[] = {
        { "list", "", "List secrets", "berth secret list",
          .act = { NULL, "GET", "/api/companies/{company}/secrets",
                   .columns =
                           FIELDS({ "ID", "id", COLUMN_ID }, { "NAME", "name" },
                                  { "STATUS", "status", COLUMN_STATE }, { "PROVIDER", "provider" },
                                  { "VERSION", "latestVersion" }, { "USES", "referenceCount" },
                                  { "ROTATED", "lastRotatedAt", COLUMN_TIME }),
                   .none = "no secrets" } },
        { "create", "NAME [--file FILE] [OPTION]...", "Keep a new secret",
          "berth secret create OPENAI_API_KEY --file key.txt", .words = 1, .notes = VALUE_NOTES,
          .options = OPTIONS(FILE_OPTION, PLACE_OPTIONS), .run = cmd_secret_create },
        { "link", "NAME REF [--vault VAULT] [OPTION]...",
          "Refer to a secret that a vault holds already",
          "berth secret link DB_PASSWORD arn:aws:secretsmanager:… --vault prod", .words = 2,
          .notes = "Its value is read when it is used, and not before.",
          .options = OPTIONS(
                  { "ref-version", "VERSION", "the vault's own version, default its current" },
                  PLACE_OPTIONS),
          .run = cmd_secret_link },
        { "show", "SECRET", "Show one secret, without its value",
          "berth secret show OPENAI_API_KEY", .words = 1, .act = { &kind_secret } },
        { "rotate", "SECRET [--file FILE]",
          "Give it a new value; the old one becomes a previous version",
          "berth secret rotate OPENAI_API_KEY --file key.txt", .words = 1, .notes = VALUE_NOTES,
          .options = OPTIONS(FILE_OPTION, { "vault", "VAULT", "move it to this vault" },
                             { "ref", "REF", "the new reference of a linked secret" },
                             { "ref-version", "VERSION", "the vault's own version" }),
          .run = cmd_secret_rotate },
        { "update", "SECRET [--name NAME] [--key KEY] [--description TEXT]",
          "Change what is said about it",
          "berth secret update OPENAI_API_KEY --description 'team account'", .words = 1,
          .options = OPTIONS({ "name", "NAME", "a new name" }, { "key", "KEY", "a new key" },
                             { "description", "TEXT", "a new description" }),
          .act = { &kind_secret, "PATCH",
                   .members = MEMBERS({ "name", "name" }, { "key", "key" },
                                      { "description", "description" }),
                   .nothing = "say what to change: --name, --key, --description" } },
        { "disable", "SECRET", "Refuse its use until it is enabled",
          "berth secret disable OPENAI_API_KEY", .words = 1,
          .act = { &kind_secret, "PATCH",
                   .members = MEMBERS({ "status", .otherwise = "disabled" }) } },
        { "enable", "SECRET", "Let it be used again", "berth secret enable OPENAI_API_KEY",
          .words = 1,
          .act = { &kind_secret, "PATCH",
                   .members = MEMBERS({ "status", .otherwise = "active" }) } },
        { "delete", "SECRET [--force] [--yes]", "Remove it with all its versions",
          "berth secret delete OPENAI_API_KEY", .words = 1,
          .notes = "Refused while somebody has a binding to it (berth secret usage), unless "
                   "--force.",
          .options = OPTIONS({ "force", NULL, "also when somebody has a binding to it" },
                             { "yes", NULL, "do not ask", 'y' }),
          .run = cmd_secret_delete },
        { "usage", "SECRET", "Show who may use it, and where", "berth secret usage OPENAI_API_KEY",
          .words = 1,
          .act = { &kind_secret, "GET", "/usage", .by_id = true, .within = "bindings",
                   .columns = FIELDS({ "TYPE", "targetType" }, { "TARGET", "target.label" },
                                     { "ID", "targetId", COLUMN_ID },
                                     { "STATUS", "target.status", COLUMN_STATE },
                                     { "PATH", "configPath" }, { "VERSION", "versionSelector" }),
                   .none = "nobody uses it" } },
        { "events", "SECRET", "Show who used it, and when", "berth secret events OPENAI_API_KEY",
          .words = 1,
          .notes = "Events outlive the secret: for one that is gone, give its whole id.",
          .act = { &kind_secret, "GET", "/access-events", .by_id = true,
                   .columns =
                           FIELDS({ "TIME", "createdAt", COLUMN_TIME },
                                  { "OUTCOME", "outcome", COLUMN_STATE }, { "VERSION", "version" },
                                  { "CONSUMER", .text = consumer_text }, { "PATH", "configPath" },
                                  { "RUN", "heartbeatRunId", COLUMN_ID }, { "ERROR", "errorCode" }),
                   .none = "it was never used" } },
        { "versions", "SECRET", "List its versions", "berth secret versions OPENAI_API_KEY",
          .words = 1,
          .act = { &kind_secret, "GET", "/versions", .by_id = true,
                   .columns = FIELDS({ "VERSION", "version" }, { "STATUS", "status", COLUMN_STATE },
                                     { "REFERENCE", "providerVersionRef" },
                                     { "CREATED", "createdAt", COLUMN_TIME }),
                   .none = "no versions" } },
        { "rekey", "", "Make a new master key and seal everything with it", "berth secret rekey",
          .notes = "Everything goes on meanwhile. The old key is dropped when nothing needs it; a "
                   "crash\non the way is made good by the next start.",
          .act = { NULL, "POST", "/api/instance/secrets/rekey", .print = print_rekeyed } },
        { "import", "FILE|-", "Bring over secrets that Paperclip sealed",
          "berth secret import paperclip-secrets.json", .words = 1,
          .notes = "FILE holds a JSON array, or one object a line: {\"name\", \"key\", "
                   "\"description\", \"material\"}.\nThe daemon needs Paperclip's master key; see "
                   "berth-secret(1).",
          .run = cmd_secret_import },
        { 0 },
};
