/* Values that people type: configuration given piece by piece, words from a list, yes and no. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fd.h"
#include "cli/command.h"
#include "cli/output.h"

#define FILE_MAX ((size_t)1 << 20)

const char *cli_text(const json_t *object, const char *key)
{
        const char *text = json_get_string(object, key);

        return text ? text : "";
}

int cli_one_of(const char *what, const char *text, const char *const *words, struct err *err)
{
        CLEAN(buf_done) struct buf all = BUF_INIT;

        for (size_t i = 0; words[i]; i++) {
                if (streq(words[i], text))
                        return 0;
                buf_appendf(&all, "%s%s", i ? ", " : "", words[i]);
        }
        return err_set(err, ERR_USAGE, "%s: '%s' is none of %s", what, text, buf_str(&all));
}

int cli_confirm(const char *question, struct err *err)
{
        CLEAN(cleanup_free) char *text = NULL;
        char answer[16] = "";

        if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
                return 0;
        text = out_sanitize(xstrdup(question)); /* it holds a name from elsewhere */
        fprintf(stderr, "%s [y/N] ", text);
        if (!fgets(answer, sizeof(answer), stdin))
                answer[0] = '\0';
        if (answer[0] == 'y' || answer[0] == 'Y')
                return 0;
        return err_set(err, ERR_CANCELLED, "nothing was done");
}

/* true, false, null and whole numbers mean themselves; the rest is text. */
static json_t *guess_value(const char *text)
{
        char *end;
        long long n;

        if (streq(text, "true"))
                return json_true();
        if (streq(text, "false"))
                return json_false();
        if (streq(text, "null"))
                return json_null();
        errno = 0;
        n = strtoll(text, &end, 10);
        if (errno == 0 && end != text && *end == '\0' &&
            strspn(text, "-0123456789") == strlen(text))
                return json_integer(n);
        return json_string(text);
}

/* The content as text, without the final newline of a one-line file; a private key, which has many,
 * keeps it. */
static int read_value_file(const char *path, json_t **ret, struct err *err)
{
        CLEAN(buf_wipe) struct buf b = BUF_INIT;
        int r = file_read_at(AT_FDCWD, streq(path, "-") ? "/dev/stdin" : path, FILE_MAX, &b, err);

        if (r < 0)
                return r;
        if (b.len > 0 && memchr(b.data, '\n', b.len) == b.data + b.len - 1)
                b.len--;
        *ret = json_stringn(buf_str(&b), b.len);
        return *ret ? 0 : err_set(err, ERR_USAGE, "%s is not UTF-8 text", path);
}

/* The object that the dotted `key` (cut at its last dot) lives in. */
static json_t *descend_to_leaf(json_t *object, char **key)
{
        char *dot;

        while ((dot = strchr(*key, '.')) != NULL) {
                json_t *inner;

                *dot = '\0';
                inner = json_object_get(object, *key);
                if (!json_is_object(inner)) {
                        inner = json_object();
                        json_object_set_new(object, *key, inner);
                }
                object = inner;
                *key = dot + 1;
        }
        return object;
}

static int set_option(json_t *config, const char *text, struct err *err)
{
        const char *equals = strchr(text, '=');
        CLEAN(cleanup_free) char *key = NULL;
        bool is_json = equals && equals > text && equals[-1] == ':';
        json_t *value = NULL, *meant = NULL, *object;
        int r = 0;

        if (!equals || equals == text)
                return err_set(err, ERR_USAGE, "-o '%s': use key=value, key=@file or key:=JSON",
                               text);
        key = xstrndup(text, (size_t)(equals - text) - (is_json ? 1 : 0));
        if (is_json)
                r = json_parse(equals + 1, strlen(equals + 1), &value, err);
        else if (equals[1] == '@')
                r = read_value_file(equals + 2, &value, err);
        else
                value = guess_value(equals + 1);
        if (r < 0)
                return err_wrap(err, r == ERR_INVALID ? ERR_USAGE : r, "-o %s", key);
        /* A text that is a JSON list or object was probably meant as JSON: say how to send it. */
        if (!is_json && (equals[1] == '[' || equals[1] == '{') &&
            json_parse(equals + 1, strlen(equals + 1), &meant, NULL) >= 0)
                out_note("berth: %s is taken as text; as JSON it would be: -o '%s:=...'", key, key);
        json_decref(meant);
        if (!value)
                return err_set(err, ERR_USAGE, "-o %s: the value is not UTF-8 text", key);
        char *leaf = key;
        object = descend_to_leaf(config, &leaf);
        json_object_set_new(object, leaf, value);
        return 0;
}

/* --config JSON, or --config @file so that no secret has to stand in the process list. */
static int parse_config(const char *text, json_t **ret, struct err *err)
{
        CLEAN(buf_wipe) struct buf b = BUF_INIT;
        json_t *config;
        int r;

        if (text[0] == '@') {
                const char *path = streq(text, "@-") ? "/dev/stdin" : text + 1;

                r = file_read_at(AT_FDCWD, path, FILE_MAX, &b, err);
                if (r < 0)
                        return r;
        } else {
                buf_puts(&b, text);
        }
        r = json_parse(buf_str(&b), b.len, &config, err);
        if (r < 0)
                return err_wrap(err, ERR_USAGE, "--config");
        if (!json_is_object(config)) {
                json_decref(config);
                return err_set(err, ERR_USAGE, "--config must be a JSON object");
        }
        *ret = config;
        return 0;
}

int cli_config(const struct args *a, json_t **ret, struct err *err)
{
        const char *text = args_value(a, "config");
        const char *option;
        json_t *config = NULL;
        int r = 0;

        *ret = NULL;
        if (!text && !args_item(a, "option", 0))
                return 0;
        if (text)
                r = parse_config(text, &config, err);
        else
                config = json_object();
        for (size_t i = 0; r >= 0 && (option = args_item(a, "option", i)) != NULL; i++)
                r = set_option(config, option, err);
        if (r < 0) {
                json_decref(config);
                return r;
        }
        *ret = config;
        return 0;
}
