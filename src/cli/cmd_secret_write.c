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

static int send_secret(struct cli *c, const char *path, json_t *body, struct err *err)
{
        json_t *secret;
        int r = cli_call(c, "POST", path, json_incref(body), &secret, err);

        if (r >= 0)
                cli_show(c, &kind_secret, secret);
        return r;
}

int cmd_secret_create(struct cli *c, const struct args *a, struct err *err)
{
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
        if (r >= 0)
                r = read_value(args_value(a, "file"), body, err);
        return r < 0 ? r : send_secret(c, path, body, err);
}

int cmd_secret_link(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = cli_keep(c, json_object());
        const char *path;
        int r = cli_path(c, kind_secret.list, NULL, true, &path, err);

        if (r >= 0)
                r = set_vault(c, a, body, err);
        if (r >= 0)
                r = cli_fill(c, a,
                             MEMBERS({ "name", .word = 1 }, { "externalRef", .word = 2 },
                                     { "managedMode", .otherwise = "external_reference" },
                                     { "key", "key" }, { "description", "description" },
                                     { "providerVersionRef", "ref-version" }),
                             body, err);
        return r < 0 ? r : send_secret(c, path, body, err);
}

int cmd_secret_rotate(struct cli *c, const struct args *a, struct err *err)
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
                     : send_secret(c,
                                   cli_printf(c, "/api/secrets/%s/rotate", cli_text(secret, "id")),
                                   body, err);
}

int cmd_secret_delete(struct cli *c, const struct args *a, struct err *err)
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

int cmd_secret_import(struct cli *c, const struct args *a, struct err *err)
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
