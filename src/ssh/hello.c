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

static bool is_text(const char *s, size_t max)
{
        size_t n = strlen(s);

        if (n > max || !utf8_is_valid(s, n))
                return false;
        for (; *s; s++)
                if ((unsigned char)*s < ' ' || *s == 0x7f)
                        return false;
        return true;
}

static int keep(char **member, const char *value, size_t max, struct err *err)
{
        if (!is_text(value, max))
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
        return keep(member, value, HELLO_PATH_MAX, err);
}

/* `var NAME value`: one that is no text is as if it were not set. */
static void keep_var(struct ssh_hello *h, const char *rest)
{
        for (size_t i = 0; i < HELLO_N_VARS; i++) {
                size_t n = strlen(hello_vars[i]);

                if (strncmp(rest, hello_vars[i], n) == 0 && rest[n] == ' ')
                        (void)keep(&h->vars[i], rest + n + 1, HELLO_VALUE_MAX, NULL);
        }
}

static int keep_machine(struct ssh_hello *h, const char *rest, struct err *err)
{
        const char *space = strchr(rest, ' ');
        CLEAN(cleanup_free) char *os = xstrndup(rest, space ? (size_t)(space - rest) : 0);
        int r = keep(&h->os, os, 64, err);

        return r < 0 ? r : keep(&h->machine, space ? space + 1 : "", 64, err);
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
                return keep_machine(h, rest, err);
        } else if (streq(word, "var")) {
                keep_var(h, rest);
        } else if (streq(word, "tar")) {
                h->has_tar = true;
        } else if (streq(word, "need")) {
                h->state = HELLO_NEED;
                return keep(&h->need, rest, 64, err);
        } else if (streq(word, "ready")) {
                h->state = HELLO_READY;
                return keep_path(&h->base, rest, err);
        } else if (streq(word, "plain")) {
                h->state = HELLO_PLAIN;
                return keep(&h->why, rest, 400, err);
        } else if (streq(word, "done")) {
                h->state = HELLO_DONE;
        } else {
                return err_set(err, ERR_PROVIDER, "The host answered something we did not ask.");
        }
        return 0;
}
