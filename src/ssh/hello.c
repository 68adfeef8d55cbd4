/* Which lines of the script on the host are accepted. */
#include "ssh/hello.h"

#include "base/utf8.h"

const char *const hello_vars[HELLO_N_VARS] = { "PATH",  "HOME", "USER",  "LOGNAME",
                                               "SHELL", "LANG", "TMPDIR" };

void ssh_hello_done(struct ssh_hello *h)
{
        free(h->cwd);
        free(h->os);
        free(h->machine);
        free(h->base);
        free(h->why);
        free(h->need);
        for (size_t i = 0; i < HELLO_N_VARS; i++)
                free(h->vars[i]);
        *h = (struct ssh_hello){ 0 };
}

static int keep_text(char **member, const char *value, size_t max, struct err *err)
{
        size_t n = strlen(value);
        bool is_text = n <= max && utf8_is_valid(value, n);

        for (size_t i = 0; i < n; i++)
                is_text = is_text && (unsigned char)value[i] >= ' ' && value[i] != 0x7f;
        if (!is_text)
                return err_set(err, ERR_PROVIDER,
                               "The host answered with something else than text.");
        free(*member);
        *member = xstrdup(value);
        return 0;
}

static int keep_path(char **member, const char *value, struct err *err)
{
        if (*value != '/')
                return err_set(err, ERR_PROVIDER, "The host named a directory that is none.");
        return keep_text(member, value, HELLO_PATH_MAX, err);
}

int ssh_hello_line(struct ssh_hello *h, const char *line, struct err *err)
{
        size_t n = strcspn(line, " ");
        const char *rest = line[n] ? line + n + 1 : "";
        CLEAN(cleanup_free) char *word = xstrndup(line, MIN(n, 16));

        if (streq(word, "start")) {
                h->state = HELLO_BEGUN;
        } else if (streq(word, "cwd")) {
                return keep_path(&h->cwd, rest, err);
        } else if (streq(word, "machine")) {
                const char *space = strchr(rest, ' ');
                CLEAN(cleanup_free) char *os = xstrndup(rest, space ? (size_t)(space - rest) : 0);
                int r = keep_text(&h->os, os, 64, err);

                return r < 0 ? r : keep_text(&h->machine, space ? space + 1 : "", 64, err);
        } else if (streq(word, "var")) {
                for (size_t i = 0; i < HELLO_N_VARS; i++) {
                        size_t len = strlen(hello_vars[i]);

                        /* One that is no text is as if it were not set. */
                        if (strncmp(rest, hello_vars[i], len) == 0 && rest[len] == ' ')
                                (void)keep_text(&h->vars[i], rest + len + 1, HELLO_VALUE_MAX, NULL);
                }
        } else if (streq(word, "tar")) {
                h->has_tar = true;
        } else if (streq(word, "need")) {
                h->state = HELLO_NEED;
                return keep_text(&h->need, rest, 64, err);
        } else if (streq(word, "ready")) {
                h->state = HELLO_READY;
                return keep_path(&h->base, rest, err);
        } else if (streq(word, "plain")) {
                h->state = HELLO_PLAIN;
                return keep_text(&h->why, rest, 400, err);
        } else if (streq(word, "done")) {
                h->state = HELLO_DONE;
        } else {
                return err_set(err, ERR_PROVIDER, "The host answered something we did not ask.");
        }
        return 0;
}
