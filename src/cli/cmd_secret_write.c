/* Changing secrets. A value comes from a file, from standard input, or is asked for without an
 * echo; it never stands in argv, where every process of the machine can read it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <termios.h>

#include "base/fd.h"
#include "cli/cmd_secret.h"
#include "cli/output.h"

#define VALUE_MAX  ((size_t)64 << 10)
#define IMPORT_MAX ((size_t)8 << 20)

/* -- values ----------------------------------------------------------------------------------- */

static void set_echo(bool on)
{
        struct termios t;

        if (tcgetattr(STDIN_FILENO, &t) < 0)
                return;
        if (on)
                t.c_lflag |= ECHO;
        else
                t.c_lflag &= ~(tcflag_t)ECHO;
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &t);
}

/* One line, typed blindly. */
static int ask(struct buf *ret, struct err *err)
{
        int c;

        (void)buf_reserve(ret, 4096);
        fputs("value (not shown): ", stderr);
        set_echo(false);
        while ((c = getchar()) != EOF && c != '\n')
                buf_putc(ret, (char)c);
        set_echo(true);
        fputc('\n', stderr);
        return ret->len > 0 ? 0 : err_set(err, ERR_CANCELLED, "nothing was done");
}

/* The final newline of a one-line text is the editor's; a private key, which has many, keeps it. */
static int read_value(const char *file, json_t *body, struct err *err)
{
        CLEAN(buf_wipe) struct buf b = BUF_INIT;
        bool is_asked = !file && isatty(STDIN_FILENO);
        json_t *value;
        int r;

        buf_init(&b, VALUE_MAX + 2);
        (void)buf_reserve(&b, VALUE_MAX + 1); /* a buffer that grows leaves copies */
        r = is_asked ? ask(&b, err)
                     : file_read_at(AT_FDCWD, file && !streq(file, "-") ? file : "/dev/stdin",
                                    VALUE_MAX + 1, &b, err);
        if (r < 0)
                return r;
        if (b.len > 0 && memchr(b.data, '\n', b.len) == b.data + b.len - 1)
                b.len--;
        if (b.len == 0)
                return err_set(err, ERR_USAGE,
                               "the value is empty; give it on standard input, or with --file");
        value = json_stringn(buf_str(&b), b.len);
        if (!value)
                return err_set(err, ERR_USAGE, "the value is not UTF-8 text");
        json_object_set_new(body, "value", value);
        return 0;
}

static void set_text(json_t *body, const char *member, const char *text)
{
        if (text)
                json_object_set_new(body, member, json_string(text));
}

/* The vault decides the provider too. */
static int set_vault(struct cli *c, const struct args *a, json_t *body, struct err *err)
{
        const char *given = args_value(a, "vault");
        json_t *vault;
        int r;

        set_text(body, "provider", args_value(a, "provider"));
        if (!given)
                return 0;
        r = vault_find(c, given, &vault, err);
        if (r < 0)
                return r;
        set_text(body, "providerConfigId", cli_text(vault, "id"));
        set_text(body, "provider", cli_text(vault, "provider"));
        return 0;
}

static int post_new(struct cli *c, const char *company, json_t *take_body, struct err *err)
{
        json_t *secret;
        int r;

        r = cli_call(c, "POST", cli_printf(c, "/api/companies/%s/secrets", company), take_body,
                     &secret, err);
        if (r >= 0)
                secret_print(c, secret);
        return r;
}

static int run_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = json_pack("{s:s}", "name", a->words[0]);
        const char *company;
        int r = cli_company(c, true, &company, err);

        if (r >= 0)
                r = set_vault(c, a, body, err);
        set_text(body, "key", args_value(a, "key"));
        set_text(body, "description", args_value(a, "description"));
        if (r >= 0)
                r = read_value(args_value(a, "file"), body, err);
        if (r < 0) {
                json_decref(body);
                return r;
        }
        return post_new(c, company, body, err);
}

static int run_link(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = json_pack("{s:s, s:s, s:s}", "name", a->words[0], "managedMode",
                                 "external_reference", "externalRef", a->words[1]);
        const char *company;
        int r = cli_company(c, true, &company, err);

        if (r >= 0)
                r = set_vault(c, a, body, err);

        set_text(body, "key", args_value(a, "key"));
        set_text(body, "description", args_value(a, "description"));
        set_text(body, "providerVersionRef", args_value(a, "ref-version"));
        if (r < 0) {
                json_decref(body);
                return r;
        }
        return post_new(c, company, body, err);
}

/* -- one secret ------------------------------------------------------------------------------- */

static int send(struct cli *c, const char *given, const char *method, const char *suffix,
                json_t *take_body, struct err *err)
{
        json_t *secret, *answer;
        int r = secret_find(c, given, &secret, err);

        if (r < 0) {
                json_decref(take_body);
                return r;
        }
        r = cli_call(c, method, cli_printf(c, "/api/secrets/%s%s", cli_text(secret, "id"), suffix),
                     take_body, &answer, err);
        if (r >= 0)
                secret_print(c, answer);
        return r;
}

static int run_rotate(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = json_object(), *secret, *vault;
        const char *given = args_value(a, "vault");
        int r = secret_find(c, a->words[0], &secret, err);

        if (r >= 0 && given) {
                r = vault_find(c, given, &vault, err);
                if (r >= 0)
                        set_text(body, "providerConfigId", cli_text(vault, "id"));
        }
        set_text(body, "externalRef", args_value(a, "ref"));
        set_text(body, "providerVersionRef", args_value(a, "ref-version"));
        if (r >= 0 && streq(cli_text(secret, "managedMode"), "paperclip_managed"))
                r = read_value(args_value(a, "file"), body, err);
        if (r < 0) {
                json_decref(body);
                return r;
        }
        return send(c, cli_text(secret, "id"), "POST", "/rotate", body, err);
}

static int run_update(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = json_object();

        set_text(body, "name", args_value(a, "name"));
        set_text(body, "key", args_value(a, "key"));
        set_text(body, "description", args_value(a, "description"));
        if (json_object_size(body) == 0) {
                json_decref(body);
                return err_set(err, ERR_USAGE, "say what to change: --name, --key, --description");
        }
        return send(c, a->words[0], "PATCH", "", body, err);
}

static int run_enable(struct cli *c, const struct args *a, struct err *err)
{
        return send(c, a->words[0], "PATCH", "", json_pack("{s:s}", "status", "active"), err);
}

static int run_disable(struct cli *c, const struct args *a, struct err *err)
{
        return send(c, a->words[0], "PATCH", "", json_pack("{s:s}", "status", "disabled"), err);
}

static int run_delete(struct cli *c, const struct args *a, struct err *err)
{
        json_t *secret;
        int r = secret_find(c, a->words[0], &secret, err);

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

/* -- the master key, and secrets of Paperclip -------------------------------------------------- */

static int run_rekey(struct cli *c, const struct args *a, struct err *err)
{
        json_t *answer;
        int r = cli_call(c, "POST", "/api/instance/secrets/rekey", json_object(), &answer, err);

        if (r < 0)
                return r;
        if (c->json)
                out_json(answer);
        else
                out_note("the master key is new; %lld versions were sealed with it. Back it up.",
                         (long long)json_integer_value(json_object_get(answer, "resealedCount")));
        return 0;
}

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

static int run_import(struct cli *c, const struct args *a, struct err *err)
{
        json_t *list = NULL, *answer, *item;
        const char *company;
        size_t i;
        int r = cli_company(c, false, &company, err);

        if (r >= 0)
                r = read_sealed(a->words[0], &list, err);
        if (r >= 0)
                r = cli_call(c, "POST",
                             cli_printf(c, "/api/companies/%s/secrets/import-sealed", company),
                             json_pack("{s:o}", "secrets", list), &answer, err);
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

#define PLACE_OPTIONS                                                                              \
        { "key", 0, OPTION_VALUE, "KEY", "short name for programs; default: from NAME" },          \
                { "description", 0, OPTION_VALUE, "TEXT", "what it is for" },                      \
                { "provider", 0, OPTION_VALUE, "PROVIDER",                                         \
                  "local_encrypted, aws_secrets_manager, gcp_secret_manager or vault" },           \
        {                                                                                          \
                "vault", 0, OPTION_VALUE, "VAULT", "the vault to keep it in (berth vault list)"    \
        }

#define VALUE_NOTES                                                                                \
        "The value is read from FILE, from standard input, or asked for on a terminal. The last\n" \
        "newline of a single line does not belong to it."

static const struct cli_option create_options[] = {
        { "file", 'f', OPTION_VALUE, "FILE", "read the value from there" },
        PLACE_OPTIONS,
        { 0 },
};
static const struct cli_option link_options[] = {
        { "ref-version", 0, OPTION_VALUE, "VERSION",
          "the vault's own version, default its current" },
        PLACE_OPTIONS,
        { 0 },
};
static const struct cli_option rotate_options[] = {
        { "file", 'f', OPTION_VALUE, "FILE", "read the value from there" },
        { "vault", 0, OPTION_VALUE, "VAULT", "move it to this vault" },
        { "ref", 0, OPTION_VALUE, "REF", "the new reference of a linked secret" },
        { "ref-version", 0, OPTION_VALUE, "VERSION", "the vault's own version" },
        { 0 },
};
static const struct cli_option update_options[] = {
        { "name", 0, OPTION_VALUE, "NAME", "a new name" },
        { "key", 0, OPTION_VALUE, "KEY", "a new key" },
        { "description", 0, OPTION_VALUE, "TEXT", "a new description" },
        { 0 },
};
static const struct cli_option delete_options[] = {
        { "force", 0, OPTION_FLAG, NULL, "also when somebody has a binding to it" },
        { "yes", 'y', OPTION_FLAG, NULL, "do not ask" },
        { 0 },
};

const struct cli_command cmd_secret_create = {
        .name = "create",
        .synopsis = "NAME [--file FILE] [OPTION]...",
        .summary = "Keep a new secret",
        .notes = VALUE_NOTES,
        .example = "berth secret create OPENAI_API_KEY --file key.txt",
        .options = create_options,
        .run = run_create,
        .min_words = 1,
        .max_words = 1,
};
const struct cli_command cmd_secret_link = {
        .name = "link",
        .synopsis = "NAME REF [--vault VAULT] [OPTION]...",
        .summary = "Refer to a secret that a vault holds already",
        .notes = "Its value is read when it is used, and not before.",
        .example = "berth secret link DB_PASSWORD arn:aws:secretsmanager:… --vault prod",
        .options = link_options,
        .run = run_link,
        .min_words = 2,
        .max_words = 2,
};
const struct cli_command cmd_secret_rotate = {
        .name = "rotate",
        .synopsis = "SECRET [--file FILE]",
        .summary = "Give it a new value; the old one becomes a previous version",
        .notes = VALUE_NOTES,
        .example = "berth secret rotate OPENAI_API_KEY --file key.txt",
        .options = rotate_options,
        .run = run_rotate,
        .min_words = 1,
        .max_words = 1,
};
const struct cli_command cmd_secret_update = {
        .name = "update",
        .synopsis = "SECRET [--name NAME] [--key KEY] [--description TEXT]",
        .summary = "Change what is said about it",
        .example = "berth secret update OPENAI_API_KEY --description 'team account'",
        .options = update_options,
        .run = run_update,
        .min_words = 1,
        .max_words = 1,
};
const struct cli_command cmd_secret_enable = {
        .name = "enable",
        .synopsis = "SECRET",
        .summary = "Let it be used again",
        .example = "berth secret enable OPENAI_API_KEY",
        .run = run_enable,
        .min_words = 1,
        .max_words = 1,
};
const struct cli_command cmd_secret_disable = {
        .name = "disable",
        .synopsis = "SECRET",
        .summary = "Refuse its use until it is enabled",
        .example = "berth secret disable OPENAI_API_KEY",
        .run = run_disable,
        .min_words = 1,
        .max_words = 1,
};
const struct cli_command cmd_secret_delete = {
        .name = "delete",
        .synopsis = "SECRET [--force] [--yes]",
        .summary = "Remove it with all its versions",
        .notes = "Refused while somebody has a binding to it (berth secret usage), unless --force.",
        .example = "berth secret delete OPENAI_API_KEY",
        .options = delete_options,
        .run = run_delete,
        .min_words = 1,
        .max_words = 1,
};
const struct cli_command cmd_secret_rekey = {
        .name = "rekey",
        .synopsis = "",
        .summary = "Make a new master key and seal everything with it",
        .notes = "Everything goes on meanwhile. The old key is dropped when nothing needs it; a "
                 "crash\non the way is made good by the next start.",
        .example = "berth secret rekey",
        .run = run_rekey,
};
const struct cli_command cmd_secret_import = {
        .name = "import",
        .synopsis = "FILE|-",
        .summary = "Bring over secrets that Paperclip sealed",
        .notes = "FILE holds a JSON array, or one object a line: {\"name\", \"key\", "
                 "\"description\", \"material\"}.\nThe daemon needs Paperclip's master key; see "
                 "berth-secret(1).",
        .example = "berth secret import paperclip-secrets.json",
        .run = run_import,
        .min_words = 1,
        .max_words = 1,
};
