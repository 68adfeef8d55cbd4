/* `berth secret`: the secrets of a company. A value comes from a file, from standard input, or is
 * asked for without an echo. It is never in argv, where every process of the machine can read it,
 * and it is never shown. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <termios.h>

#include "base/fd.h"
#include "cli/command.h"
#include "cli/output.h"

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

#define VALUE_MAX  ((size_t)64 << 10)
#define IMPORT_MAX ((size_t)8 << 20)

/* -- values ----------------------------------------------------------------------------------- */

/* One line, typed blindly. */
static int ask_for_value(struct buf *ret, struct err *err)
{
        struct termios shown = { 0 }, hidden;
        bool is_terminal = tcgetattr(STDIN_FILENO, &shown) == 0;
        int c;

        (void)buf_reserve(ret, 4096);
        fputs("value (not shown): ", stderr);
        hidden = shown;
        hidden.c_lflag &= ~(tcflag_t)ECHO;
        if (is_terminal)
                (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
        while ((c = getchar()) != EOF && c != '\n')
                buf_putc(ret, (char)c);
        if (is_terminal)
                (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown);
        fputc('\n', stderr);
        return ret->len > 0 ? 0 : err_set(err, ERR_CANCELLED, "nothing was done");
}

/* The final newline of a one-line text is the editor's; a private key, which has many, keeps it. */
static int read_value(const char *file, json_t *body, struct err *err)
{
        CLEAN(buf_wipe) struct buf b = BUF_INIT;
        bool is_asked = !file && isatty(STDIN_FILENO);

        buf_init(&b, VALUE_MAX + 2);
        (void)buf_reserve(&b, VALUE_MAX + 1); /* a buffer that grows leaves copies */
        int r = is_asked ? ask_for_value(&b, err)
                         : file_read_at(AT_FDCWD, file && !streq(file, "-") ? file : "/dev/stdin",
                                        VALUE_MAX + 1, &b, err);
        if (r < 0)
                return r;
        if (b.len > 0 && memchr(b.data, '\n', b.len) == b.data + b.len - 1)
                b.len--;
        if (b.len == 0)
                return err_set(err, ERR_USAGE,
                               "the value is empty; give it on standard input, or with --file");
        json_t *value = json_stringn(buf_str(&b), b.len);
        if (!value)
                return err_set(err, ERR_USAGE, "the value is not UTF-8 text");
        json_object_set_new(body, "value", value);
        return 0;
}

/* The vault decides the provider too. */
static int set_vault(struct cli *c, const struct args *a, json_t *body, struct err *err)
{
        const char *given = args_value(a, "vault");
        json_t *vault;
        int r = body_set(body, "provider", args_value(a, "provider"), err);

        if (r < 0 || !given)
                return r;
        r = cli_find(c, &kind_vault, given, &vault, err);
        if (r >= 0)
                r = body_set(body, "providerConfigId", cli_text(vault, "id"), err);
        return r < 0 ? r : body_set(body, "provider", cli_text(vault, "provider"), err);
}

/* `link` names a secret that is in a vault already; `create` has its value. */
static int cmd_secret_create(struct cli *c, const struct args *a, struct err *err)
{
        bool is_link = a->n_words == 2;
        json_t *body = cli_keep(c, json_object());
        const char *path;
        int r = cli_path(c, kind_secret.list, NULL, true, &path, err);

        if (r >= 0)
                r = set_vault(c, a, body, err);
        if (r >= 0)
                r = cli_fill(c, a,
                             MEMBERS({ "name", .word = 1 }, { "key", "key" },
                                     { "description", "description" }),
                             body, err);
        if (r >= 0 && !is_link)
                r = read_value(args_value(a, "file"), body, err);
        if (r >= 0 && is_link)
                r = cli_fill(c, a,
                             MEMBERS({ "externalRef", .word = 2 },
                                     { "managedMode", .otherwise = "external_reference" },
                                     { "providerVersionRef", "ref-version" }),
                             body, err);
        return r < 0 ? r : cli_send(c, "POST", path, json_incref(body), &kind_secret, err);
}

static int cmd_secret_rotate(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = cli_keep(c, json_object()), *secret;
        int r = cli_find(c, &kind_secret, a->words[0], &secret, err);

        if (r >= 0)
                r = cli_fill(
                        c, a,
                        MEMBERS({ "providerConfigId", "vault", MEMBER_ID, .kind = &kind_vault },
                                { "externalRef", "ref" }, { "providerVersionRef", "ref-version" }),
                        body, err);
        if (r >= 0 && streq(cli_text(secret, "managedMode"), "paperclip_managed"))
                r = read_value(args_value(a, "file"), body, err);
        return r < 0 ? r
                     : cli_send(c, "POST",
                                cli_printf(c, "/api/secrets/%s/rotate", cli_text(secret, "id")),
                                json_incref(body), &kind_secret, err);
}

static int cmd_secret_delete(struct cli *c, const struct args *a, struct err *err)
{
        json_t *secret;
        int r = cli_find(c, &kind_secret, a->words[0], &secret, err);

        if (r >= 0 && !args_flag(a, "yes"))
                r = cli_confirm(cli_printf(c, "delete the secret '%s' and all its versions?",
                                           cli_text(secret, "name")),
                                err);
        if (r >= 0)
                r = cli_call(c, "DELETE",
                             cli_printf(c, "/api/secrets/%s%s", cli_text(secret, "id"),
                                        args_flag(a, "force") ? "?force=true" : ""),
                             NULL, NULL, err);
        if (r >= 0)
                out_note("deleted %s", cli_text(secret, "name"));
        return r;
}

/* -- secrets of Paperclip --------------------------------------------------------------------- */

/* A JSON array, or one object a line. */
static int read_sealed(const char *file, json_t **ret, struct err *err)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        json_t *list = NULL, *item;
        char *line, *rest;
        int r = file_read_at(AT_FDCWD, streq(file, "-") ? "/dev/stdin" : file, IMPORT_MAX, &b, err);

        if (r < 0)
                return r;
        if (b.len > 0 && b.data[strspn(b.data, " \t\r\n")] == '[')
                return json_parse(b.data, b.len, ret, err);
        list = json_array();
        rest = b.data;
        while (r >= 0 && (line = strsep(&rest, "\n")) != NULL) {
                if (line[strspn(line, " \t\r")] == '\0')
                        continue;
                r = json_parse(line, strlen(line), &item, err);
                if (r >= 0)
                        json_array_append_new(list, item);
        }
        if (r < 0)
                json_decref(list);
        else
                *ret = list;
        return r;
}

int secret_imported(struct cli *c, const json_t *answer)
{
        json_t *item;
        size_t i;

        if (c->json)
                out_json(answer);
        else
                json_array_foreach(json_object_get(answer, "results"), i, item)
                        out_line("%s: %s%s%s", cli_text(item, "name"), cli_text(item, "status"),
                                 *cli_text(item, "reason") ? ": " : "", cli_text(item, "reason"));
        return json_integer_value(json_object_get(answer, "errorCount")) > 0 ? 1 : 0;
}

static int cmd_secret_import(struct cli *c, const struct args *a, struct err *err)
{
        json_t *list = NULL, *answer;
        const char *path;
        int r = cli_path(c, "/api/companies/{company}/secrets/import-sealed", NULL, false, &path,
                         err);

        if (r >= 0)
                r = read_sealed(a->words[0], &list, err);
        if (r >= 0)
                r = cli_call(c, "POST", path, json_pack("{s:o}", "secrets", list), &answer, err);
        return r < 0 ? r : secret_imported(c, answer);
}

/* -- the table -------------------------------------------------------------------------------- */

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
        { "create", "NAME [--file FILE] [OPTION]...", "Store a new secret",
          "berth secret create OPENAI_API_KEY --file key.txt", .words = 1, .notes = VALUE_NOTES,
          .options = OPTIONS(FILE_OPTION, PLACE_OPTIONS), .run = cmd_secret_create },
        { "link", "NAME REF [--vault VAULT] [OPTION]...",
          "Refer to a secret that a vault holds already",
          "berth secret link DB_PASSWORD arn:aws:secretsmanager:… --vault prod", .words = 2,
          .notes = "Its value is read when it is used, and not before.",
          .options = OPTIONS(
                  { "ref-version", "VERSION", "the vault's own version, default its current" },
                  PLACE_OPTIONS),
          .run = cmd_secret_create },
        { "show", "SECRET", "Show one secret, without its value",
          "berth secret show OPENAI_API_KEY", .words = 1, .act = { &kind_secret } },
        { "rotate", "SECRET [--file FILE]",
          "Give a secret a new value; the old one becomes a previous version",
          "berth secret rotate OPENAI_API_KEY --file key.txt", .words = 1, .notes = VALUE_NOTES,
          .options = OPTIONS(FILE_OPTION, { "vault", "VAULT", "move it to this vault" },
                             { "ref", "REF", "the new reference of a linked secret" },
                             { "ref-version", "VERSION", "the vault's own version" }),
          .run = cmd_secret_rotate },
        { "update", "SECRET [--name NAME] [--key KEY] [--description TEXT]",
          "Change the name, key or description of a secret",
          "berth secret update OPENAI_API_KEY --description 'team account'", .words = 1,
          .options = OPTIONS({ "name", "NAME", "a new name" }, { "key", "KEY", "a new key" },
                             { "description", "TEXT", "a new description" }),
          .act = { &kind_secret, "PATCH",
                   .members = MEMBERS({ "name", "name" }, { "key", "key" },
                                      { "description", "description" }),
                   .nothing = "say what to change: --name, --key, --description" } },
        { "disable", "SECRET", "Disable a secret until it is enabled again",
          "berth secret disable OPENAI_API_KEY", .words = 1,
          .act = { &kind_secret, "PATCH",
                   .members = MEMBERS({ "status", .otherwise = "disabled" }) } },
        { "enable", "SECRET", "Enable a disabled secret", "berth secret enable OPENAI_API_KEY",
          .words = 1,
          .act = { &kind_secret, "PATCH",
                   .members = MEMBERS({ "status", .otherwise = "active" }) } },
        { "delete", "SECRET [--force] [--yes]", "Delete a secret with all its versions",
          "berth secret delete OPENAI_API_KEY", .words = 1,
          .notes = "Refused while something has a binding to it (berth secret usage), unless "
                   "--force.",
          .options = OPTIONS({ "force", NULL, "also when something has a binding to it" },
                             { "yes", NULL, "do not ask", 'y' }),
          .run = cmd_secret_delete },
        { "usage", "SECRET", "Show what may use a secret, and where",
          "berth secret usage OPENAI_API_KEY", .words = 1,
          .act = { &kind_secret, "GET", "/usage", .by_id = true, .within = "bindings",
                   .columns = FIELDS({ "TYPE", "targetType" }, { "TARGET", "target.label" },
                                     { "ID", "targetId", COLUMN_ID },
                                     { "STATUS", "target.status", COLUMN_STATE },
                                     { "PATH", "configPath" }, { "VERSION", "versionSelector" }),
                   .none = "nobody uses it" } },
        { "events", "SECRET", "Show what used a secret, and when",
          "berth secret events OPENAI_API_KEY", .words = 1,
          .notes = "Events outlive the secret: for one that is gone, give its whole id.",
          .act = { &kind_secret, "GET", "/access-events", .by_id = true,
                   .columns =
                           FIELDS({ "TIME", "createdAt", COLUMN_TIME },
                                  { "OUTCOME", "outcome", COLUMN_STATE }, { "VERSION", "version" },
                                  { "CONSUMER", .text = consumer_text }, { "PATH", "configPath" },
                                  { "RUN", "heartbeatRunId", COLUMN_ID }, { "ERROR", "errorCode" }),
                   .none = "it was never used" } },
        { "versions", "SECRET", "List the versions of a secret",
          "berth secret versions OPENAI_API_KEY", .words = 1,
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
