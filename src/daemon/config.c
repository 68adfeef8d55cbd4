/* Which source each setting comes from, and whether its value is valid. */
#include "daemon/config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "codec/json.h"
#include "codec/private_hosts.h"
#include "codec/toml.h"
#include "core/roots/workspace_root.h"
#include "daemon/settings.h"
#include "daemon/trusted.h"
#include "image/registry.h"
#include "store/store.h"

struct loader {
        struct arena *arena;
        const struct cli_serve_options *flags;
        json_t *file; /* flat object */
        struct config *config;
        struct err *err;
        int failed;
};

/* The value that a source gives for a setting. */
struct given {
        const char *origin; /* where the value comes from, as an error names it */
        const char *text;
        json_t *value; /* from berth.toml; NULL: from elsewhere */
};

/* False when no source has a value. */
static bool find_value(const struct loader *l, const struct setting *s, struct given *ret)
{
        const char *const *flag = (const void *)((const char *)l->flags + s->flag_at);
        const char *const variables[] = { s->variable, s->paperclip };
        json_t *v = s->key ? json_object_get(l->file, s->key) : NULL;

        if (s->flag && *flag) {
                *ret = (struct given){ .origin = arena_printf(l->arena, "%s on the command line",
                                                              s->flag),
                                       .text = *flag };
                return true;
        }
        for (size_t i = 0; i < ARRAY_LEN(variables); i++) {
                const char *value = variables[i] ? getenv(variables[i]) : NULL;

                if (value && *value) { /* an empty one says nothing */
                        *ret = (struct given){ .origin = variables[i], .text = value };
                        return true;
                }
        }
        if (!v)
                return false;
        *ret = (struct given){ .origin = arena_printf(l->arena, "%s in " CONFIG_FILE, s->key),
                               .text = json_is_string(v)
                                               ? arena_strdup(l->arena, json_string_value(v))
                                               : json_to_arena(l->arena, v),
                               .value = v };
        return true;
}

static void refuse_value(struct loader *l, const struct given *g, const char *wanted)
{
        if (!l->failed)
                l->failed = err_set(l->err, ERR_INVALID, "%s: '%s' is not %s", g->origin, g->text,
                                    wanted);
}

static int64_t read_number(struct loader *l, const struct setting *s, const struct given *g)
{
        char *end;
        long long n;

        errno = 0;
        n = strtoll(g->text, &end, 10);
        if (errno || !*g->text || *end || n < s->min || n > s->max)
                refuse_value(l, g,
                             arena_printf(l->arena, "a whole number from %lld to %lld",
                                          (long long)s->min, (long long)s->max));
        return n;
}

/* Index of the word in the list. */
static unsigned read_word(struct loader *l, const struct setting *s, const struct given *g)
{
        CLEAN(buf_done) struct buf wanted = BUF_INIT;

        for (unsigned i = 0; s->words[i]; i++) {
                if (streq(s->words[i], g->text))
                        return i;
                buf_appendf(&wanted, "%s%s", i ? " or " : "", s->words[i]);
        }
        refuse_value(l, g, buf_str(&wanted));
        return 0;
}

/* Numbers and truth values have a text too, but here they are a mistake of the operator. */
static const char *read_text(struct loader *l, const struct given *g)
{
        if (g->value && !json_is_string(g->value))
                refuse_value(l, g, "a string");
        return g->text;
}

/* An array of strings in the file, or one text. */
static const char *read_list(struct loader *l, const struct setting *s, const struct given *g)
{
        CLEAN(buf_done) struct buf joined = BUF_INIT;
        json_t *item;
        size_t i;

        if (!json_is_array(g->value))
                return read_text(l, g);
        json_array_foreach(g->value, i, item)
        {
                if (!json_is_string(item)) {
                        refuse_value(l, g, "a list of strings");
                        return NULL;
                }
                if (i)
                        buf_putc(&joined, s->separator);
                buf_puts(&joined, json_string_value(item));
        }
        return arena_strdup(l->arena, buf_str(&joined));
}

static void load_setting(struct loader *l, const struct setting *s)
{
        void *at = (char *)l->config + s->at;
        struct given g;
        bool given = find_value(l, s, &g);
        int64_t n = s->number;

        switch (s->type) {
        case SETTING_TEXT:
                *(const char **)at = given ? read_text(l, &g) : s->text;
                break;
        case SETTING_LIST:
                *(const char **)at = given ? read_list(l, s, &g) : NULL;
                break;
        case SETTING_NUMBER:
                *(int64_t *)at = given ? read_number(l, s, &g) : n;
                break;
        case SETTING_COUNT:
                *(unsigned *)at = (unsigned)(given ? read_number(l, s, &g) : n);
                break;
        case SETTING_SWITCH:
                *(bool *)at = given ? streq(g.text, "1") || streq(g.text, "true") : n;
                if (given && !*(bool *)at && !streq(g.text, "0") && !streq(g.text, "false"))
                        refuse_value(l, &g, "1, true, 0 or false");
                break;
        case SETTING_WORD:
                *(unsigned *)at = given ? read_word(l, s, &g) : (unsigned)n;
                break;
        case SETTING_SECOND:
                *(bool *)at = given && read_word(l, s, &g) == 1;
                break;
        case SETTING_NAME:
                *(const char **)at = s->words[given ? read_word(l, s, &g) : (unsigned)n];
                break;
        }
}

/* Whether any source sets the member of l->config at `at`. */
static bool is_given(const struct loader *l, const void *at)
{
        size_t offset = (size_t)((const char *)at - (const char *)l->config);
        struct given ignored;

        for (const struct setting *s = settings_table; s->variable; s++)
                if (s->at == offset)
                        return find_value(l, s, &ignored);
        return false;
}

static const char *home_directory(void)
{
        const char *home = getenv("HOME");
        const struct passwd *pw = home && *home ? NULL : getpwuid(getuid());

        return pw ? pw->pw_dir : home && *home ? home : "/";
}

static const char *default_data_dir(struct arena *a)
{
        const char *base = getenv("XDG_DATA_HOME");

        if (base && *base == '/')
                return arena_printf(a, "%s/berth", base);
        return arena_printf(a, "%s/.local/share/berth", home_directory());
}

/* A relative directory is meant from where the command was given. */
static const char *absolute(struct arena *a, const char *path)
{
        char cwd[4096];

        if (*path == '/' || !getcwd(cwd, sizeof(cwd)))
                return path;
        return arena_printf(a, "%s/%s", cwd, path);
}

static bool is_empty_dir(const char *path)
{
        DIR *dir = opendir(path);
        const struct dirent *e;
        bool empty = dir != NULL;

        while (empty && (e = readdir(dir)) != NULL)
                empty = streq(e->d_name, ".") || streq(e->d_name, "..");
        if (dir)
                closedir(dir);
        return empty;
}

/* Everybody can put files there: settings, keys, a database. One that is empty, and stays empty
 * once it is shut, becomes ours; that of a volume is made like this. */
static int take_open_dir(const char *path, mode_t mode, struct err *err)
{
        if (!(mode & S_ISVTX) && is_empty_dir(path) && chmod(path, 0700) == 0 && is_empty_dir(path))
                return 0;
        return err_set(err, ERR_INVALID,
                       "other users can write to data directory %s, and may have put files there: "
                       "look through it and chmod 700 it, or choose another with --data, such as a "
                       "new one in it",
                       path);
}

static int make_data_dir(const char *path, struct err *err)
{
        struct stat st;
        int r = path_make_durable_dirs(path, 0700, err);

        if (r < 0)
                return err_wrap(err, r, "data directory");
        if (access(path, R_OK | W_OK | X_OK) < 0)
                return err_sys(err, ERR_IO, errno,
                               "data directory %s is not usable; choose another with --data", path);
        if (stat(path, &st) < 0)
                return err_sys(err, ERR_IO, errno, "look at data directory %s", path);
        /* The owner of the directory can change every file in it, the settings among them, and
         * would find files of root in it. */
        if (st.st_uid != geteuid() && st.st_uid != 0)
                return err_set(err, ERR_INVALID,
                               "data directory %s belongs to user %u, who can change every file in "
                               "it: start the daemon as that user, choose another directory with "
                               "--data, or chown it to %s",
                               path, (unsigned)st.st_uid, geteuid() == 0 ? "root" : "yours");
        return st.st_mode & S_IWOTH ? take_open_dir(path, st.st_mode, err) : 0;
}

static int read_settings_file(const char *data_dir, json_t **ret, struct err *err)
{
        CLEAN(buf_done) struct buf content = BUF_INIT;
        CLEAN(cleanup_fd) int dir = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (dir < 0)
                return err_sys(err, ERR_IO, errno, "open data directory %s", data_dir);
        int r = file_read_at(dir, CONFIG_FILE, TOML_MAX_BYTES, &content, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                *ret = json_object();
                return 0;
        }
        return r < 0 ? r : toml_parse(CONFIG_FILE, buf_str(&content), content.len, ret, err);
}

/* The host part of ADDR:PORT, without brackets. */
static const char *host_of(struct arena *a, const char *listen)
{
        const char *colon = strrchr(listen, ':');
        size_t n = colon ? (size_t)(colon - listen) : strlen(listen);

        if (n >= 2 && listen[0] == '[')
                return arena_strndup(a, listen + 1, n - 2);
        return arena_strndup(a, listen, n);
}

static void check_registries(struct loader *l)
{
        CLEAN(err_done) struct err why = { 0 };
        struct registry_rules rules;

        if (registry_rules_parse(l->config->settings.image_registries, &rules, &why) < 0 &&
            !l->failed)
                l->failed = err_set(l->err, ERR_INVALID, "image_registries: %s", why.msg);
}

static void load_private_hosts(struct loader *l)
{
        struct private_hosts *hosts = arena_new(l->arena, struct private_hosts);
        CLEAN(err_done) struct err why = { 0 };
        const char *entries = l->config->private_hosts ? l->config->private_hosts : "";

        if (private_hosts_parse(entries, hosts, &why) < 0 && !l->failed)
                l->failed = err_set(l->err, ERR_INVALID,
                                    "private_hosts: %s. Each entry is \"address:port\".", why.msg);
        l->config->settings.private_hosts = hosts;
}

/* Where companies have owners of their own, each has directories of its own. */
static const char *default_roots(struct arena *a, enum deployment_mode mode)
{
        if (mode == MODE_AUTHENTICATED)
                return arena_printf(a, "%s/berth/{company}", home_directory());
        return arena_printf(a, "%s:%s", home_directory(),
                            getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
}

bool config_url_has_password(const char *url)
{
        const char *at = strstr(url, "://") + 3;
        const char *sign = memchr(at, '@', strcspn(at, "/?"));

        return (sign && memchr(at, ':', (size_t)(sign - at))) || strstr(at, "password=");
}

static void check_database(struct loader *l)
{
        const char *flag = l->flags->database, *url = l->config->database;

        if (l->failed)
                return;
        if (flag && store_is_on_server(flag) && config_url_has_password(flag))
                l->failed = err_set(l->err, ERR_INVALID,
                                    "--database has a password, which every user of this machine "
                                    "could read: write the URL into berth.toml, or keep the "
                                    "password in ~/.pgpass or PGPASSFILE");
        else if (url && strstr(url, "://") && !store_is_on_server(url))
                l->failed = err_set(l->err, ERR_INVALID,
                                    "database: a URL begins with postgres:// or postgresql://");
}

/* Defaults that depend on something, and what is made of a setting's text. */
static void complete_settings(struct loader *l)
{
        struct config *c = l->config;
        struct settings *s = &c->settings;

        check_database(l);
        if (c->is_private) /* the settings are for the daemon with a port */
                c->listen = "127.0.0.1:0";
        if (!c->database)
                c->database = arena_printf(l->arena, "%s/berth.db", c->data_dir);
        if (!is_given(l, &c->peer_threads_each))
                c->peer_threads_each = MIN(c->peer_threads_each, c->peer_threads);
        if (!s->workspace_roots)
                s->workspace_roots = default_roots(l->arena, s->mode);
        if (!is_given(l, &s->share_user_files))
                s->share_user_files = s->mode == MODE_LOCAL_TRUSTED;
        if (!s->sandbox_rootfs_dirs)
                s->sandbox_rootfs_dirs =
                        arena_printf(l->arena, "%s/rootfs:/var/lib/berth/rootfs", c->data_dir);
        if (!s->plugin_dir)
                s->plugin_dir = arena_printf(l->arena, "%s/plugins", c->data_dir);
        s->plugin_dir = absolute(l->arena, s->plugin_dir);
        if (c->secrets_key_file)
                c->secrets_key_file = absolute(l->arena, c->secrets_key_file);
        s->salvage_ttl_is_set = is_given(l, &s->salvage_ttl_ms);
        s->listen_host = host_of(l->arena, c->listen);
        load_private_hosts(l);
        check_registries(l);
        if (!l->failed)
                l->failed = trusted_parse(c->trusted_users, l->arena, s, l->err);
        if (!l->failed && s->reverse_proxy)
                l->failed = trusted_parse_proxy(s->reverse_proxy, l->arena, s, l->err);
}

/* Ids are 32 bits, and the last one is no id. */
static int check_ids(const char *what, int64_t first, int64_t count, struct err *err)
{
        if (first + count <= UINT32_MAX)
                return 0;
        return err_set(
                err, ERR_INVALID,
                "%s_count: '%lld' is not a whole number up to %lld, as many as there are from "
                "%s_first on",
                what, (long long)count, (long long)(UINT32_MAX - first), what);
}

/* A name that only begins like an address may belong to any host. */
static bool is_loopback(const char *host)
{
        return streq(host, "localhost") || streq(host, "::1") ||
               (str_starts(host, "127.") && host[strspn(host, "0123456789.")] == '\0');
}

static int check_sense(const struct config *c, struct err *err)
{
        const struct settings *s = &c->settings;
        int r = check_ids("sandbox_uid", s->sandbox_uid_first, s->sandbox_uid_count, err);

        if (r >= 0)
                r = check_ids("plugin_uid", s->plugin_uid_first, s->plugin_uid_count, err);
        if (r < 0)
                return r;
        if (s->mode == MODE_LOCAL_TRUSTED && s->exposure == EXPOSURE_PUBLIC)
                return err_set(err, ERR_INVALID,
                               "mode local_trusted asks users of this machine for no key, "
                               "so it needs exposure private; use mode authenticated for public");
        if (s->mode == MODE_LOCAL_TRUSTED && !is_loopback(s->listen_host))
                return err_set(err, ERR_INVALID,
                               "mode local_trusted only listens on loopback, not on %s; use --mode "
                               "authenticated, and make a key with `berth key create --board`",
                               s->listen_host);
        if (s->mode == MODE_LOCAL_TRUSTED && s->reverse_proxy)
                return err_set(err, ERR_INVALID,
                               "mode local_trusted would take everybody behind the reverse proxy "
                               "for the user that the proxy runs as; use --mode authenticated");
        return workspace_roots_check(s->workspace_roots, err);
}

static int load_settings(struct loader *l)
{
        struct config *c = l->config;
        const struct setting *known;
        const char *key;
        json_t *value;

        json_object_foreach(l->file, key, value)
        {
                for (known = settings_table; known->variable; known++)
                        if (known->key && streq(known->key, key))
                                break;
                if (!known->variable)
                        return err_set(l->err, ERR_INVALID,
                                       CONFIG_FILE ": there is no setting '%s'; see berth.toml(5)",
                                       key);
        }
        c->is_private = l->flags->is_private;
        c->new_identity = l->flags->new_identity;
        for (const struct setting *s = settings_table; s->variable; s++)
                load_setting(l, s);
        complete_settings(l);
        return l->failed ? l->failed : check_sense(c, l->err);
}

int config_load(const struct cli_serve_options *flags, struct arena *arena, struct config *ret,
                struct err *err)
{
        struct loader l = { .arena = arena, .flags = flags, .config = ret, .err = err };
        const char *data = flags->data ? flags->data : getenv("BERTH_DATA");

        *ret = (struct config){ 0 };
        ret->data_dir = data && *data ? absolute(arena, data) : default_data_dir(arena);
        int r = make_data_dir(ret->data_dir, err);
        if (r >= 0)
                r = read_settings_file(ret->data_dir, &l.file, err);
        if (r >= 0)
                r = load_settings(&l);
        json_decref(l.file);
        return r;
}
