#include "daemon/config.h"

#include <ctype.h>
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
#include "core/sandboxes/host_ids.h"
#include "core/workspaces/workspace_root.h"
#include "daemon/trusted.h"
#include "plugin/confine.h"

/* Where one setting may come from. `seed` is the name that the seed's server reads, or NULL. */
struct source {
        const char *key;      /* in berth.toml; NULL: not there */
        const char *variable; /* BERTH_… */
        const char *seed;
};

struct loader {
        struct arena *arena;
        json_t *file;    /* flat object */
        json_t *unasked; /* its members that no setting has asked for */
        struct err *err;
        int failed;
};

/* An empty variable says nothing. */
static const char *from_environment(const struct source *s, const char **ret_name)
{
        const char *const names[] = { s->variable, s->seed };

        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                const char *value = names[i] ? getenv(names[i]) : NULL;

                if (value && *value) {
                        *ret_name = names[i];
                        return value;
                }
        }
        return NULL;
}

/* What berth.toml says; NULL: nothing. Asked for every setting, also where somebody else wins. */
static json_t *from_file(struct loader *l, const struct source *s)
{
        if (!s->key)
                return NULL;
        (void)json_object_del(l->unasked, s->key);
        return json_object_get(l->file, s->key);
}

/* The value as text, and in *ret_origin who said so. NULL when nobody did. */
static const char *find(struct loader *l, const char *flag, const struct source *s,
                        const char **ret_origin)
{
        json_t *v = from_file(l, s);
        const char *value = flag;

        *ret_origin = "the command line";
        if (!value)
                value = from_environment(s, ret_origin);
        if (value)
                return value;
        if (!v)
                return NULL;
        *ret_origin = arena_printf(l->arena, "%s in " CONFIG_FILE, s->key);
        return json_is_string(v) ? arena_strdup(l->arena, json_string_value(v))
                                 : json_to_arena(l->arena, v);
}

static void refuse(struct loader *l, const char *origin, const char *value, const char *wanted)
{
        if (!l->failed)
                l->failed =
                        err_set(l->err, ERR_INVALID, "%s: '%s' is not %s", origin, value, wanted);
}

static const char *text(struct loader *l, const char *flag, struct source s, const char *fallback)
{
        const char *origin, *ignored;
        const char *value = find(l, flag, &s, &origin);
        json_t *v = from_file(l, &s);

        /* Numbers and truth values have a text too, but here they are somebody's mistake. */
        if (!flag && !from_environment(&s, &ignored) && v && !json_is_string(v))
                refuse(l, origin, value, "a string");
        return value ? value : fallback;
}

static int64_t number(struct loader *l, struct source s, int64_t fallback, int64_t min, int64_t max)
{
        const char *origin, *value = find(l, NULL, &s, &origin);
        char *end;
        long long n;

        if (!value)
                return fallback;
        errno = 0;
        n = strtoll(value, &end, 10);
        if (errno || *end || n < min || n > max)
                refuse(l, origin, value,
                       arena_printf(l->arena, "a whole number from %lld to %lld", (long long)min,
                                    (long long)max));
        return n;
}

static bool is_given(struct loader *l, struct source s)
{
        const char *origin;

        return find(l, NULL, &s, &origin) != NULL;
}

static bool flag_set(struct loader *l, struct source s, bool fallback)
{
        const char *origin, *value = find(l, NULL, &s, &origin);

        if (!value)
                return fallback;
        if (streq(value, "0") || streq(value, "false"))
                return false;
        if (!streq(value, "1") && !streq(value, "true"))
                refuse(l, origin, value, "1, true, 0 or false");
        return true;
}

/* Index of the word in the list. */
static int word(struct loader *l, const char *flag, struct source s, const char *const *words,
                int fallback)
{
        const char *origin, *value = find(l, flag, &s, &origin);
        CLEAN(buf_done) struct buf wanted = BUF_INIT;

        if (!value)
                return fallback;
        for (int i = 0; words[i]; i++) {
                if (streq(words[i], value))
                        return i;
                buf_appendf(&wanted, "%s%s", i ? " or " : "", words[i]);
        }
        refuse(l, origin, value, buf_str(&wanted));
        return fallback;
}

/* A list: an array of strings in the file, or one text. Joined by `separator`. */
static const char *list(struct loader *l, struct source s, char separator, const char *fallback)
{
        json_t *v = from_file(l, &s), *item;
        CLEAN(buf_done) struct buf joined = BUF_INIT;
        const char *name;
        size_t i;

        if (from_environment(&s, &name) || !json_is_array(v))
                return text(l, NULL, s, fallback);
        json_array_foreach(v, i, item)
        {
                if (!json_is_string(item)) {
                        refuse(l, arena_printf(l->arena, "%s in " CONFIG_FILE, s.key),
                               json_to_arena(l->arena, v), "a list of strings");
                        return fallback;
                }
                if (i)
                        buf_putc(&joined, separator);
                buf_puts(&joined, json_string_value(item));
        }
        return arena_strdup(l->arena, buf_str(&joined));
}

static const struct private_hosts *load_private_hosts(struct loader *l)
{
        struct private_hosts *hosts = arena_new(l->arena, struct private_hosts);
        CLEAN(err_done) struct err why = { 0 };
        const char *entries =
                list(l, (struct source){ "private_hosts", "BERTH_PRIVATE_HOSTS", NULL }, ',', "");

        if (private_hosts_parse(entries, hosts, &why) < 0 && !l->failed)
                l->failed = err_set(l->err, ERR_INVALID,
                                    "private_hosts: %s. Each entry is \"address:port\".", why.msg);
        return hosts;
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

/* Whoever owns it can change every file in it, the settings among them, and would find files of
 * root's in it. */
static int check_owner(const char *path, struct err *err)
{
        struct stat st;

        if (stat(path, &st) < 0)
                return err_sys(err, ERR_IO, errno, "look at data directory %s", path);
        if (geteuid() != 0 || st.st_uid == 0)
                return 0;
        return err_set(
                err, ERR_INVALID,
                "data directory %s belongs to user %u, and this daemon is root's: start it as "
                "that user, choose another directory with --data, or chown it to root",
                path, (unsigned)st.st_uid);
}

static int make_data_dir(const char *path, struct err *err)
{
        int r = path_make_durable_dirs(path, 0700, err);

        if (r < 0)
                return err_wrap(err, r, "data directory");
        if (access(path, R_OK | W_OK | X_OK) < 0)
                return err_sys(err, ERR_IO, errno,
                               "data directory %s is not usable; choose another with --data", path);
        return check_owner(path, err);
}

static int read_file(const char *data_dir, json_t **ret, struct err *err)
{
        CLEAN(buf_done) struct buf content = BUF_INIT;
        CLEAN(cleanup_fd) int dir = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r;

        if (dir < 0)
                return err_sys(err, ERR_IO, errno, "open data directory %s", data_dir);
        r = file_read_at(dir, CONFIG_FILE, TOML_MAX_BYTES, &content, err);
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

static void load_sandbox(struct loader *l, const char *data_dir, struct settings *s)
{
        s->sandbox_uid_first =
                number(l, (struct source){ "sandbox_uid_first", "BERTH_SANDBOX_UID_FIRST", NULL },
                       HOST_IDS_FIRST, 1000, UINT32_MAX - 1);
        s->sandbox_uid_count =
                number(l, (struct source){ "sandbox_uid_count", "BERTH_SANDBOX_UID_COUNT", NULL },
                       HOST_IDS_COUNT, 0, UINT32_MAX - s->sandbox_uid_first);
        s->sandbox_ids_per_box = number(
                l, (struct source){ "sandbox_ids_per_box", "BERTH_SANDBOX_IDS_PER_BOX", NULL }, 0,
                0, 65536);
        s->sandbox_rootfs_dirs =
                list(l, (struct source){ "sandbox_rootfs_dirs", "BERTH_SANDBOX_ROOTFS_DIRS", NULL },
                     ':', arena_printf(l->arena, "%s/rootfs:/var/lib/berth/rootfs", data_dir));
        s->sandbox_pool_max =
                number(l, (struct source){ "sandbox_pool_max", "BERTH_SANDBOX_POOL_MAX", NULL }, 64,
                       0, 4096);
}

static void load_secrets(struct loader *l, struct config *c)
{
        static const char *const providers[] = { "local_encrypted", "aws_secrets_manager",
                                                 "gcp_secret_manager", "vault", NULL };
        struct settings *s = &c->settings;
        const char *file = text(l, NULL,
                                (struct source){ "secrets.key_file", "BERTH_SECRETS_KEY_FILE",
                                                 "PAPERCLIP_SECRETS_MASTER_KEY_FILE" },
                                NULL);

        s->secrets_provider =
                providers[word(l, NULL,
                               (struct source){ "secrets.provider", "BERTH_SECRETS_PROVIDER",
                                                "PAPERCLIP_SECRETS_PROVIDER" },
                               providers, 0)];
        s->secrets_strict =
                flag_set(l,
                         (struct source){ "secrets.strict_mode", "BERTH_SECRETS_STRICT_MODE",
                                          "PAPERCLIP_SECRETS_STRICT_MODE" },
                         false);
        c->secrets_key_file = file ? absolute(l->arena, file) : NULL;
}

/* Tokens of runs, and how agents call back. */
static void load_callbacks(struct loader *l, struct settings *s)
{
        static const char *const ways[] = { "auto", "channel", NULL };

        s->run_token_ttl_s =
                number(l,
                       (struct source){ "agent_jwt.ttl_seconds", "BERTH_AGENT_JWT_TTL_SECONDS",
                                        "PAPERCLIP_AGENT_JWT_TTL_SECONDS" },
                       172800, 1, 31622400);
        s->run_token_issuer = text(l, NULL,
                                   (struct source){ "agent_jwt.issuer", "BERTH_AGENT_JWT_ISSUER",
                                                    "PAPERCLIP_AGENT_JWT_ISSUER" },
                                   "paperclip");
        s->run_token_audience =
                text(l, NULL,
                     (struct source){ "agent_jwt.audience", "BERTH_AGENT_JWT_AUDIENCE",
                                      "PAPERCLIP_AGENT_JWT_AUDIENCE" },
                     "paperclip-api");
        s->callback_always_channel =
                word(l, NULL, (struct source){ "callback", "BERTH_CALLBACK", NULL }, ways, 0) == 1;
}

static void load_output_limits(struct loader *l, struct settings *s)
{
        static const char *const ways[] = { "wait", "drop", NULL };

        s->output_max_mb =
                number(l, (struct source){ "output_max_mb", "BERTH_OUTPUT_MAX_MB", NULL }, 1024, 1,
                       INT64_C(1) << 30);
        s->output_place_max_mb = number(
                l, (struct source){ "output_place_max_mb", "BERTH_OUTPUT_PLACE_MAX_MB", NULL },
                4096, 1, INT64_C(1) << 30);
        s->output_drops = word(l, NULL, (struct source){ "output_full", "BERTH_OUTPUT_FULL", NULL },
                               ways, 0) == 1;
        s->output_wait_ms =
                number(l, (struct source){ "output_wait_ms", "BERTH_OUTPUT_WAIT_MS", NULL }, 60000,
                       1, 3600000);
        s->disk_reserve_mb = number(
                l, (struct source){ "disk_reserve_mb", "BERTH_DISK_RESERVE_MB", NULL }, 4, 0, 6);
}

static void load_limits(struct loader *l, struct settings *s)
{
        struct source salvage_ttl =
                (struct source){ "salvage_ttl_ms", "BERTH_SALVAGE_TTL_MS", NULL };
        s->sweep_interval_ms =
                number(l, (struct source){ "sweep_interval_ms", "BERTH_SWEEP_INTERVAL_MS", NULL },
                       5000, 10, 3600000);
        s->scrub_interval_ms =
                number(l, (struct source){ "scrub_interval_ms", "BERTH_SCRUB_INTERVAL_MS", NULL },
                       86400000, 10, INT64_C(31622400000));
        s->idle_place_ttl_ms =
                number(l, (struct source){ "idle_place_ttl_ms", "BERTH_IDLE_PLACE_TTL_MS", NULL },
                       3600000, 1, INT64_C(31622400000));
        s->adhoc_ttl_ms = number(l, (struct source){ "adhoc_ttl_ms", "BERTH_ADHOC_TTL_MS", NULL },
                                 3600000, 1, INT64_C(31622400000));
        s->operation_timeout_ms = number(
                l, (struct source){ "operation_timeout_ms", "BERTH_OPERATION_TIMEOUT_MS", NULL },
                120000, 100, 86400000);
        s->ssh_timeout_ms =
                number(l, (struct source){ "ssh_timeout_ms", "BERTH_SSH_TIMEOUT_MS", NULL }, 20000,
                       100, 600000);
        s->peer_silence_ms =
                number(l, (struct source){ "peer_silence_ms", "BERTH_PEER_SILENCE_MS", NULL },
                       60000, 100, 3600000);
        s->close_timeout_ms =
                number(l, (struct source){ "close_timeout_ms", "BERTH_CLOSE_TIMEOUT_MS", NULL },
                       60000, 10, 3600000);
        s->run_prepare_timeout_ms = number(
                l,
                (struct source){ "run_prepare_timeout_ms", "BERTH_RUN_PREPARE_TIMEOUT_MS", NULL },
                3600000, 0, INT64_C(31622400000));
        s->workspace_timeout_ms = number(
                l, (struct source){ "workspace_timeout_ms", "BERTH_WORKSPACE_TIMEOUT_MS", NULL },
                3600000, 100, 86400000);
        s->salvage_ttl_ms = number(l, salvage_ttl, INT64_C(14) * 86400000, 1, INT64_C(31622400000));
        s->salvage_ttl_is_set = is_given(l, salvage_ttl);
        s->restore_max_files =
                number(l, (struct source){ "restore_max_files", "BERTH_RESTORE_MAX_FILES", NULL },
                       1000000, 1, 10000000);
        s->restore_max_mb =
                number(l, (struct source){ "restore_max_mb", "BERTH_RESTORE_MAX_MB", NULL }, 16384,
                       1, INT64_C(1) << 30);
        load_output_limits(l, s);
        s->run_log_max_bytes =
                number(l, (struct source){ "run_log_max_bytes", "BERTH_RUN_LOG_MAX_BYTES", NULL },
                       INT64_C(64) << 20, 0, INT64_C(1) << 40);
        s->live_ping_ms = number(l, (struct source){ "live_ping_ms", "BERTH_LIVE_PING_MS", NULL },
                                 30000, 100, 3600000);
}

static void load_settings(struct loader *l, const struct cli_serve_options *flags, struct config *c)
{
        static const char *const modes[] = { "local_trusted", "authenticated", NULL };
        static const char *const exposures[] = { "private", "public", NULL };
        struct settings *s = &c->settings;
        const char *roots;

        s->mode = (enum deployment_mode)word(
                l, flags->mode,
                (struct source){ "mode", "BERTH_DEPLOYMENT_MODE", "PAPERCLIP_DEPLOYMENT_MODE" },
                modes, MODE_LOCAL_TRUSTED);
        s->exposure = (enum deployment_exposure)word(
                l, NULL,
                (struct source){ "exposure", "BERTH_DEPLOYMENT_EXPOSURE",
                                 "PAPERCLIP_DEPLOYMENT_EXPOSURE" },
                exposures, EXPOSURE_PRIVATE);
        s->public_url = text(
                l, NULL,
                (struct source){ "public_url", "BERTH_PUBLIC_URL", "PAPERCLIP_PUBLIC_URL" }, NULL);
        s->allowed_hostnames = list(l,
                                    (struct source){ "allowed_hostnames", "BERTH_ALLOWED_HOSTNAMES",
                                                     "PAPERCLIP_ALLOWED_HOSTNAMES" },
                                    ',', NULL);
        /* Where companies have owners of their own, each has directories of its own. */
        roots = s->mode == MODE_AUTHENTICATED
                        ? arena_printf(l->arena, "%s/berth/{company}", home_directory())
                        : arena_printf(l->arena, "%s:%s", home_directory(),
                                       getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
        s->workspace_roots = list(
                l, (struct source){ "workspace_roots", "BERTH_WORKSPACE_ROOTS", NULL }, ':', roots);
        s->private_hosts = load_private_hosts(l);
        s->local_env = list(l, (struct source){ "local_env", "BERTH_LOCAL_ENV", NULL }, ',', NULL);
        s->local_for_owners = flag_set(
                l, (struct source){ "local_for_owners", "BERTH_LOCAL_FOR_OWNERS", NULL }, false);
        s->share_user_files =
                flag_set(l, (struct source){ "share_user_files", "BERTH_SHARE_USER_FILES", NULL },
                         s->mode == MODE_LOCAL_TRUSTED);
        s->allow_fake_provider =
                flag_set(l, (struct source){ NULL, "BERTH_ALLOW_FAKE_PROVIDER", NULL }, false);
        s->fake_world = text(l, NULL, (struct source){ NULL, "BERTH_FAKE_WORLD", NULL }, NULL);
        s->api_candidates = text(l, NULL,
                                 (struct source){ NULL, "BERTH_RUNTIME_API_CANDIDATES_JSON",
                                                  "PAPERCLIP_RUNTIME_API_CANDIDATES_JSON" },
                                 NULL);
        load_limits(l, s);
        load_sandbox(l, c->data_dir, s);
        s->listen_host = host_of(l->arena, c->listen);
        load_secrets(l, c);
        load_callbacks(l, s);
}

static void load_trusted(struct loader *l, struct config *c)
{
        const char *users =
                list(l, (struct source){ "trusted_uids", "BERTH_TRUSTED_UIDS", NULL }, ',', NULL);

        c->trusted_given = users != NULL;
        if (!l->failed)
                l->failed = trusted_parse(users, l->arena, &c->settings, l->err);
}

static void load_reverse_proxy(struct loader *l, struct settings *s)
{
        const char *proxy = text(
                l, NULL, (struct source){ "reverse_proxy", "BERTH_REVERSE_PROXY", NULL }, NULL);

        if (proxy && !l->failed)
                l->failed = trusted_parse_proxy(proxy, l->arena, s, l->err);
}

static void load_plugin_settings(struct loader *l, struct config *c)
{
        static const char *const uses[] = { "auto", "always", "off", NULL };
        struct settings *s = &c->settings;

        s->plugin_dir = absolute(
                l->arena, text(l, NULL, (struct source){ "plugin_dir", "BERTH_PLUGIN_DIR", NULL },
                               arena_printf(l->arena, "%s/plugins", c->data_dir)));
        s->plugin_env =
                list(l, (struct source){ "plugin_env", "BERTH_PLUGIN_ENV", NULL }, ',', NULL);
        s->plugin_paths =
                list(l, (struct source){ "plugin_paths", "BERTH_PLUGIN_PATHS", NULL }, ',', NULL);
        s->plugin_install_timeout_ms =
                number(l,
                       (struct source){ "plugin_install_timeout_ms",
                                        "BERTH_PLUGIN_INSTALL_TIMEOUT_MS", NULL },
                       120000, 1000, 3600000);
        s->plugin_confine = flag_set(
                l, (struct source){ "plugin_confine", "BERTH_PLUGIN_CONFINE", NULL }, true);
        s->plugin_uid_first =
                number(l, (struct source){ "plugin_uid_first", "BERTH_PLUGIN_UID_FIRST", NULL },
                       CONFINE_UID_FIRST, 1000, UINT32_MAX - 1);
        s->plugin_uid_count =
                number(l, (struct source){ "plugin_uid_count", "BERTH_PLUGIN_UID_COUNT", NULL },
                       CONFINE_UID_COUNT, 1, UINT32_MAX - s->plugin_uid_first);
        s->plugin_box = (enum plugin_box_use)word(
                l, NULL, (struct source){ "plugin_box", "BERTH_PLUGIN_BOX", NULL }, uses,
                PLUGIN_BOX_AUTO);
        s->node = text(l, NULL, (struct source){ "node", "BERTH_NODE", NULL }, NULL);
        s->npm = text(l, NULL, (struct source){ "npm", "BERTH_NPM", NULL }, NULL);
}

/* A name that only begins like an address may be anybody's. */
static bool is_loopback(const char *host)
{
        return streq(host, "localhost") || streq(host, "::1") ||
               (str_starts(host, "127.") && host[strspn(host, "0123456789.")] == '\0');
}

static int check_sense(const struct config *c, struct err *err)
{
        const struct settings *s = &c->settings;

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

/* After everything was asked for. */
static int check_unasked(struct loader *l)
{
        const char *key = json_object_iter_key(json_object_iter(l->unasked));

        return key ? err_set(l->err, ERR_INVALID,
                             CONFIG_FILE ": there is no setting '%s'; see berth.toml(5)", key)
                   : 0;
}

static int load_all(struct loader *l, const struct cli_serve_options *flags, struct config *c)
{
        static const char *const levels[] = { "debug", "info", "warn", "error", NULL };
        static const char *const formats[] = { "text", "json", NULL };
        int r;

        c->is_private = flags->is_private;
        c->new_identity = flags->new_identity;
        c->machine_id =
                text(l, NULL, (struct source){ "machine_id", "BERTH_MACHINE_ID", NULL }, NULL);
        c->listen = text(l, flags->listen, (struct source){ "listen", "BERTH_LISTEN", NULL },
                         "127.0.0.1:3100");
        c->database =
                text(l, flags->database, (struct source){ "database", "BERTH_DATABASE", NULL },
                     arena_printf(l->arena, "%s/berth.db", c->data_dir));
        c->log_level = (enum log_level)word(l, flags->log_level,
                                            (struct source){ "log.level", "BERTH_LOG_LEVEL", NULL },
                                            levels, LOG_LEVEL_INFO);
        c->log_format = (enum log_format)word(
                l, flags->log_format, (struct source){ "log.format", "BERTH_LOG_FORMAT", NULL },
                formats, LOG_FORMAT_TEXT);
        c->op_threads = (unsigned)number(
                l, (struct source){ "op_threads", "BERTH_OP_THREADS", NULL }, 16, 1, 256);
        c->op_queue = (unsigned)number(l, (struct source){ "op_queue", "BERTH_OP_QUEUE", NULL },
                                       1024, 1, 100000);
        c->peer_threads = (unsigned)number(
                l, (struct source){ "peer_threads", "BERTH_PEER_THREADS", NULL }, 32, 1, 256);
        c->peer_threads_each = (unsigned)number(
                l, (struct source){ "peer_threads_each", "BERTH_PEER_THREADS_EACH", NULL },
                MIN(8, c->peer_threads), 1, 256);
        c->peer_queue = (unsigned)number(
                l, (struct source){ "peer_queue", "BERTH_PEER_QUEUE", NULL }, 256, 1, 100000);
        c->connections_per_client = (unsigned)number(
                l,
                (struct source){ "connections_per_client", "BERTH_CONNECTIONS_PER_CLIENT", NULL },
                0, 0, 65536);
        if (c->is_private) /* what the settings say is for the daemon with a port */
                c->listen = "127.0.0.1:0";
        load_settings(l, flags, c);
        load_plugin_settings(l, c);
        load_trusted(l, c);
        load_reverse_proxy(l, &c->settings);
        r = check_unasked(l);
        if (r >= 0)
                r = l->failed;
        return r < 0 ? r : check_sense(c, l->err);
}

int config_load(const struct cli_serve_options *flags, struct arena *arena, struct config *ret,
                struct err *err)
{
        struct loader l = { .arena = arena, .err = err };
        const char *data = flags->data ? flags->data : getenv("BERTH_DATA");
        int r;

        *ret = (struct config){ 0 };
        ret->data_dir = data && *data ? absolute(arena, data) : default_data_dir(arena);
        r = make_data_dir(ret->data_dir, err);
        if (r >= 0)
                r = read_file(ret->data_dir, &l.file, err);
        l.unasked = json_copy(l.file);
        if (r >= 0)
                r = load_all(&l, flags, ret);
        json_decref(l.unasked);
        json_decref(l.file);
        return r;
}
