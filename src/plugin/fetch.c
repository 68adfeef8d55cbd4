/* npm, without a shell and without the scripts of packages. Where it gets packages from is its own
 * business: its configuration files and variables are passed on, and those of the network; nothing
 * else of ours is. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "plugin/package.h"
#include "rt/tool.h"

#define NAME_MAX_LEN    214
#define VERSION_MAX_LEN 200
#define ENV_MAX         256
#define REASON_MAX      600

extern char **environ;

/* Names and versions */

static bool is_name_char(char c)
{
        return islower((unsigned char)c) || isdigit((unsigned char)c) || (c && strchr("-._~", c));
}

/* One part of a name: it may not begin like an option or a path. */
static const char *skip_part(const char *s)
{
        if (!islower((unsigned char)*s) && !isdigit((unsigned char)*s))
                return NULL;
        while (is_name_char(*s))
                s++;
        return s;
}

bool package_name_is_valid(const char *name)
{
        const char *s = name;

        if (strlen(name) > NAME_MAX_LEN)
                return false;
        if (*s == '@') {
                s = skip_part(s + 1);
                if (!s || *s++ != '/')
                        return false;
        }
        s = skip_part(s);
        return s && *s == '\0';
}

bool package_version_is_valid(const char *version)
{
        size_t n = strlen(version);

        return n >= 1 && n <= VERSION_MAX_LEN && *version != '-' &&
               strspn(version, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                               ".+-_^~*<>=| ") == n;
}

const char *package_root(struct arena *arena, const char *prefix, const char *name)
{
        return arena_printf(arena, "%s/node_modules/%s", prefix, name);
}

/* The environment of npm */

static bool is_passed_on(const char *variable)
{
        static const char *const names[] = {
                "PATH",
                "HOME",
                "TMPDIR",
                "LANG",
                "HTTP_PROXY",
                "HTTPS_PROXY",
                "NO_PROXY",
                "ALL_PROXY",
                "NPM_TOKEN",
                "SSL_CERT_FILE",
                "SSL_CERT_DIR",
                "NODE_EXTRA_CA_CERTS",
                "XDG_CONFIG_HOME",
                "XDG_CACHE_HOME",
                "NODE_USE_SYSTEM_CA",
        };
        size_t len = strcspn(variable, "=");

        if (strncasecmp(variable, "npm_config_", strlen("npm_config_")) == 0)
                return true;
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (strlen(names[i]) == len && strncasecmp(variable, names[i], len) == 0)
                        return true;
        return false;
}

static const char *const *npm_env(struct arena *a)
{
        const char **env = arena_alloc(a, (ENV_MAX + 2) * sizeof(*env));
        size_t n = 0;

        for (char **v = environ; *v && n < ENV_MAX; v++)
                if (is_passed_on(*v))
                        env[n++] = *v;
        env[n] = "NO_COLOR=1";
        return env;
}

/* Running it */

struct fetch {
        plugin_progress_fn progress;
        void *ctx;
        struct buf reason; /* what npm says went wrong */
};

/* A registry's address may carry a name and a password. */
static void hide_credentials(char *line)
{
        char *at = line;

        while ((at = strstr(at, "://")) != NULL) {
                size_t n = strcspn(at + 3, " /@");

                at += 3;
                if (at[n] == '@')
                        memset(at, '*', n);
        }
}

static void take_line(void *ctx, const char *line)
{
        struct fetch *f = ctx;
        CLEAN(cleanup_free) char *copy = xstrdup(line);
        const char *text = copy;

        hide_credentials(copy);
        if (str_starts(text, "npm error ") || str_starts(text, "npm ERR! ")) {
                text = strchr(text + 4, ' ') + 1;
                if (f->reason.len < REASON_MAX && !str_starts(text, "A complete log of this run"))
                        buf_appendf(&f->reason, "%s%s", f->reason.len ? "; " : "", text);
        } else if (str_starts(text, "npm http ")) {
                text += strlen("npm http ");
        }
        if (f->progress)
                f->progress(f->ctx, text);
}

static int judge(const struct fetch *f, const char *npm, const char *spec, int r,
                 const struct proc_status *status, struct err *err)
{
        if (r == ERR_CANCELLED)
                return r;
        if (r == ERR_NOT_FOUND)
                return err_set(err, ERR_INVALID,
                               "npm install failed for %s: %s was not found; install it, or name "
                               "it with the setting npm",
                               spec, npm);
        if (r < 0)
                return err_wrap(err, ERR_INVALID, "npm install failed for %s", spec);
        if (status->exit_code == 0)
                return 0;
        if (f->reason.len > 0)
                return err_set(err, ERR_INVALID, "npm install failed for %s: %s", spec,
                               buf_str(&f->reason));
        return err_set(err, ERR_INVALID, "npm install failed for %s: npm ended with %s %d", spec,
                       status->signal ? "signal" : "status",
                       status->signal ? status->signal : status->exit_code);
}

/* With a package.json npm does not look for one further up. */
static int make_prefix(struct op *op, const char *prefix, struct err *err)
{
        static const char text[] = "{\"private\":true}\n";

        return file_write_at(AT_FDCWD, arena_printf(op->arena, "%s/package.json", prefix), text,
                             strlen(text), 0600, err);
}

int package_fetch(struct op *op, const struct plugin_tools *tools, const char *prefix,
                  const char *name, const char *version, plugin_progress_fn progress, void *ctx,
                  struct err *err)
{
        const char *spec = version ? arena_printf(op->arena, "%s@%s", name, version) : name;
        const char *const argv[] = {
                "npm",
                "install",
                spec,
                "--prefix",
                prefix,
                "--save",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                "--no-update-notifier",
                "--no-progress",
                "--omit=dev",
                "--no-color",
                "--loglevel=http",
                NULL,
        };
        CLEAN(buf_done) struct buf out;
        struct fetch f = { .progress = progress, .ctx = ctx };
        struct proc_status status = { 0 };
        struct stat st;
        int r = make_prefix(op, prefix, err);

        buf_init(&out, (size_t)1 << 20);
        if (r < 0)
                return r;
        r = tool_run(op,
                     &(struct tool){ .path = tools->npm,
                                     .argv = argv,
                                     .env = npm_env(op->arena),
                                     .cwd = prefix,
                                     .limit_ms = tools->fetch_ms,
                                     .out = &out,
                                     .line = take_line,
                                     .ctx = &f },
                     &status, err);
        r = judge(&f, tools->npm, spec, r, &status, err);
        buf_done(&f.reason);
        if (r < 0)
                return r;
        if (stat(package_root(op->arena, prefix, name), &st) < 0)
                return err_set(err, ERR_INVALID,
                               "Package directory not found after installation: %s",
                               package_root(op->arena, prefix, name));
        return tree_open_up(op, prefix, err); /* a worker may have a user of its own */
}
