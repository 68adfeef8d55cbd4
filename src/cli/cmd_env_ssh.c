/* `berth env create ssh [USER@]HOST[:PORT][/PATH]`: finds out by itself what it can, and does not
 * ask for that. It is tried before anything is saved, so what is saved works. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cmd_env.h"
#include "cli/output.h"

#define DEFAULT_PATH "/~/berth"
#define KEY_MAX      ((size_t)64 << 10)

/* Splitting the address */

static void set_once(json_t *config, const char *key, json_t *take_value)
{
        if (json_object_get(config, key))
                json_decref(take_value);
        else
                json_object_set_new(config, key, take_value);
}

static int set_port(json_t *config, const char *text, size_t len, struct err *err)
{
        char digits[8] = "";
        char *end;
        long port;

        if (len == 0 || len >= sizeof(digits))
                return err_set(err, ERR_USAGE, "a port is a number from 1 to 65535");
        memcpy(digits, text, len);
        port = strtol(digits, &end, 10);
        if (*end || port < 1 || port > 65535)
                return err_set(err, ERR_USAGE, "a port is a number from 1 to 65535, not '%s'",
                               digits);
        set_once(config, "port", json_integer(port));
        return 0;
}

/* [USER@]HOST[:PORT][/PATH]; an address of version 6 stands in brackets. */
static int read_address(const char *word, json_t *config, struct err *err)
{
        const char *at = strchr(word, '@'), *slash = strchr(word, '/'), *host, *end;
        const char *user = getenv("USER");
        size_t len;

        if (at && slash && slash < at)
                at = NULL;
        host = at ? at + 1 : word;
        if (at)
                set_once(config, "username", json_stringn(word, (size_t)(at - word)));
        else
                set_once(config, "username", json_string(user && *user ? user : "root"));
        if (*host == '[') {
                host++;
                len = strcspn(host, "]");
                end = host + len + (host[len] == ']');
        } else {
                len = strcspn(host, ":/");
                end = host + len;
        }
        if (len == 0)
                return err_set(err, ERR_USAGE, "'%s' names no host: USER@HOST[:PORT][/PATH]", word);
        set_once(config, "host", json_stringn(host, len));
        if (*end == ':') {
                size_t n = strcspn(++end, "/");
                int r = set_port(config, end, n, err);

                if (r < 0)
                        return r;
                end += n;
        }
        set_once(config, "remoteWorkspacePath", json_string(*end ? end : DEFAULT_PATH));
        return 0;
}

/* Keys */

static int read_key(const char *path, json_t *config, struct err *err)
{
        CLEAN(buf_wipe) struct buf text = { .max = KEY_MAX };
        int r = file_read_at(AT_FDCWD, path, KEY_MAX, &text, err);

        if (r < 0)
                return err_wrap(err, r, "--key");
        json_object_set_new(config, "privateKey", json_stringn(text.data, text.len));
        return json_object_get(config, "privateKey")
                       ? 0
                       : err_set(err, ERR_USAGE, "--key %s: not a text file", path);
}

static int choose_keys(const struct args *a, json_t *config, struct err *err)
{
        const char *path = args_value(a, "key");

        if (args_flag(a, "accept-host-key"))
                json_object_set_new(config, "strictHostKeyChecking", json_false());
        if (path)
                return read_key(path, config, err);
        if (!json_object_get(config, "privateKey") &&
            !json_object_get(config, "privateKeySecretRef"))
                set_once(config, "useSshConfig", json_true());
        return 0;
}

/* Trying */

static int try_it(struct cli *c, const char *path, json_t *take_body, struct err *err)
{
        const char *hint;
        json_t *probe;
        int r = cli_call(c, "POST", path, take_body, &probe, err);

        if (r < 0 || json_is_true(json_object_get(probe, "ok")))
                return r;
        hint = cli_text(probe, "hint");
        return err_set(err, ERR_PROVIDER, "%s %s", cli_text(probe, "summary"), hint);
}

bool env_is_address(const struct args *a, const char *driver, const json_t *config)
{
        return streq(driver, "ssh") && a->n_words == 2 && !json_object_get(config, "host") &&
               (!config || strchr(a->words[1], '@'));
}

int env_ssh_config(struct cli *c, const struct args *a, const char *company, json_t **config,
                   const char **ret_name, struct err *err)
{
        int r;

        if (!*config)
                *config = json_object();
        r = read_address(a->words[1], *config, err);
        if (r >= 0)
                r = choose_keys(a, *config, err);
        if (r < 0)
                return r;
        *ret_name = args_value(a, "name") ? args_value(a, "name")
                                          : cli_printf(c, "%s", cli_text(*config, "host"));
        out_note("trying %s@%s …", cli_text(*config, "username"), cli_text(*config, "host"));
        return try_it(c, cli_printf(c, "/api/companies/%s/environments/probe-config", company),
                      json_pack("{s:s, s:O}", "driver", "ssh", "config", *config), err);
}

int env_ssh_record(struct cli *c, const struct args *a, const json_t *environment, struct err *err)
{
        if (!args_flag(a, "accept-host-key"))
                return 0;
        return try_it(c, cli_printf(c, "/api/environments/%s/probe", cli_text(environment, "id")),
                      json_object(), err);
}
