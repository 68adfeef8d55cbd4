/* The daemon: wiring, and an orderly end.
 *
 * Start: settings, lock, store, listeners, then "listening on …" on standard output. A first pass
 * of the sweeper runs before the port opens, so that work that a crash left is taken up at once.
 *
 * Stop (SIGTERM, SIGINT): no new connections; requests under way are finished; after a grace they
 * are cancelled and undo what they began; a request that still does not end, because a host or a
 * provider is silent, is left to the next start. A second signal ends at once, which is safe at any
 * time. */
#include "daemon/serve.h"

#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/installed.h"
#include "cli/output.h"
#include "core/access/auth.h"
#include "core/access/run_token.h"
#include "core/adapters/adapter_descriptor.h"
#include "core/assets/skill.h"
#include "core/callbacks/callback.h"
#include "core/carriers/carrier.h"
#include "core/exec/exec.h"
#include "core/kinds/command/command_load.h"
#include "core/kinds/command/command_renew.h"
#include "core/kinds/kind.h"
#include "core/kinds/ssh/ssh_hosts.h"
#include "core/live/live.h"
#include "core/plugins/plugin_registry.h"
#include "core/runs/run.h"
#include "core/runs/run_schedule.h"
#include "core/sandboxes/sandbox_host.h"
#include "core/workspaces/workspace_host.h"
#include "daemon/config.h"
#include "daemon/datadir.h"
#include "daemon/home.h"
#include "daemon/idle.h"
#include "daemon/keys.h"
#include "daemon/listen.h"
#include "daemon/room.h"
#include "daemon/trusted.h"
#include "daemon/upkeep.h"
#include "rt/reserve.h"

#define GRACE_MS   10000 /* for requests under way to be finished */
#define UNDO_MS    5000  /* for those that were cancelled to undo what they began */
#define LOOK_MS    500
#define STOP_MAX_S 40 /* whatever happens */

/* Links are made for operations that wait for them, so they need threads of their own. */
#define LINKS_EACH 2
#define LINKS_ALL  8
/* So do the workers of plugins, for which links wait after a restart. */
#define STARTS_EACH 1
#define STARTS_ALL  16
/* Jobs that end something have seats that no other job takes. */
#define CLOSING_EACH 4
#define CLOSING_ALL  16
/* Requests to agents may take long. */
#define REQUESTS_EACH 4
#define REQUESTS_ALL  8
/* What runs need on this machine, so that requests get their turn. */
#define RUNS_ALL 8

struct daemon {
        struct arena arena;
        struct config config;
        struct daemon_keys keys;
        struct run_keys *run_keys;
        struct command_kinds *kinds;
        struct command_keeper *keeper;
        struct runtime rt;
        struct api api;
        int lock_fd;
        uv_loop_t loop;
        struct pool *pool;
        struct mail *mail;
        struct exec_hub *hub;
        struct http_server *http;
        struct run_scheduler *scheduler;
        struct upkeep upkeep;
        struct room room;
        uv_timer_t grace_timer;
        int64_t cancelled_ms; /* when requests under way were cancelled; 0: they were not */
        uv_prepare_t idle_check;
        uv_signal_t sigterm, sigint;
        struct idle idle; /* of a private one */
        bool adopted, stopping, closed;
        bool stopping_plugins, plugins_stopped;
};

/* -- Starting ---------------------------------------------------------------------------------- */

/* No core dump may carry what the daemon knows, and files we make are ours alone. A limit of 1 says
 * more than 0: a crash, ours or a command's, does not start the program of core_pattern either. */
static void harden(void)
{
        (void)prctl(PR_SET_DUMPABLE, 0);
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 1, 1 });
        umask(077);
        signal(SIGPIPE, SIG_IGN);
        signal(SIGXFSZ, SIG_IGN); /* a write past a limit is an error like a full disk */
}

/* Without its key the daemon starts all the same: leases do not need it, and the operator finds the
 * reason in the log, in the provider's health and in every answer that needs the key. */
static int load_keys(struct op *op, struct daemon *d, struct err *err)
{
        CLEAN(err_done) struct err why = { 0 };
        CLEAN(store_read_end) struct db *db = NULL;
        bool has_sealed = true;
        int r = store_read_begin(op, d->rt.store, &db, err);

        if (r >= 0)
                r = secrets_any_sealed(db, VAULT_LOCAL, &has_sealed, err);
        store_read_end(&db);
        if (r < 0)
                return r;
        if (master_key_load(&d->keys.source, has_sealed, &why) < 0)
                log_error("secrets cannot be sealed or opened", LOG_S("error", why.msg));
        r = run_keys_new(&d->rt.node, d->keys.run_secret.data, &d->run_keys, err);
        d->rt.run_keys = d->run_keys;
        keys_done(&d->keys);
        return r;
}

/* Our own files, which are part of no workspace: core/roots/own_files.h. */
static const char *const *own_paths(struct daemon *d)
{
        const char *const paths[] = {
                d->config.data_dir,
                d->config.settings.plugin_dir,
                d->keys.source.file,
                getenv("BERTH_SECRETS_OLD_KEY_FILE"),
                getenv("CREDENTIALS_DIRECTORY"),
                store_is_on_server(d->config.database) ? NULL : d->config.database,
        };
        const char **list = arena_alloc(&d->arena, (ARRAY_LEN(paths) + 1) * sizeof(*list));
        size_t n = 0;

        for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
                CLEAN(cleanup_free)
                char *real = paths[i] && *paths[i] != '/' ? realpath(paths[i], NULL) : NULL;

                if (paths[i] && *paths[i] == '/')
                        list[n++] = paths[i];
                else if (real) /* it was given from where we were started */
                        list[n++] = arena_strdup(&d->arena, real);
        }
        list[n] = NULL;
        return list;
}

static int settle_node(struct op *op, struct daemon *d, struct err *err)
{
        struct home_request q = {
                .data_dir = d->config.data_dir,
                .machine_id = d->config.machine_id,
                .new_identity = d->config.new_identity,
                .is_on_server = store_is_on_server(d->config.database),
        };
        bool is_new;
        int r = home_settle(op, d->rt.store, &q, &d->rt.node, &is_new, err);

        if (r >= 0 && is_new)
                log_warn("this instance has a new identity: what its record had under way is left "
                         "to the instance it came from; `berth leaks` lists it",
                         LOG_S("node", d->rt.node.id.s));
        return r;
}

static void complain_kind(void *ctx UNUSED, const char *text)
{
        log_warn("a descriptor of a kind of places is left out", LOG_S("error", text));
}

static const char *kinds_dir(struct daemon *d)
{
        const char *given = d->config.settings.kinds_dir;

        return given ? given : arena_printf(&d->arena, "%s/kinds", d->config.data_dir);
}

static int open_runtime(struct op *op, struct daemon *d, struct err *err)
{
        int r = datadir_lock(d->config.data_dir, d->config.is_private, &d->lock_fd, err);

        if (r >= 0 && !store_is_on_server(d->config.database))
                r = home_check_traces(d->config.data_dir, d->config.database, err);
        if (r < 0)
                return r;
        room_open(&d->room, d->config.data_dir, d->config.database,
                  d->config.settings.disk_reserve_mb);
        r = store_open(d->config.database, &d->rt.store, err);
        if (r >= 0)
                r = settle_node(op, d, err);
        if (r < 0)
                return r;
        room_hold(op, &d->room, d->rt.store);
        d->rt.settings = d->config.settings;
        d->rt.settings.trampoline = installed_program(&d->arena);
        d->rt.settings.examples_dir = installed_examples(&d->arena);
        d->rt.settings.own_paths = own_paths(d);
        d->kinds = command_kinds_load(kinds_dir(d), complain_kind, NULL);
        d->rt.kinds = command_kinds_list(d->kinds);
        d->rt.command_kinds = d->kinds;
        r = load_keys(op, d, err);
        return r < 0 ? r : auth_ensure_operator(op, &d->rt, err);
}

static void complain_adapter(void *ctx UNUSED, const char *text)
{
        log_warn("an adapter is left out", LOG_S("error", text));
}

/* 0: the server's own. */
static unsigned body_timeout_ms(void)
{
#ifdef BERTH_FAULTS
        const char *given = getenv("BERTH_TEST_BODY_TIMEOUT_MS");

        if (given)
                return (unsigned)strtoul(given, NULL, 10);
#endif
        return 0;
}

static void limit_lanes(struct daemon *d)
{
        const struct config *c = &d->config;

        pool_limit_lanes(d->pool, LANE_RUNS,
                         (struct lane_limits){ RUNS_ALL, RUNS_ALL, c->op_queue });
        pool_limit_lanes(
                d->pool, LANE_PEERS,
                (struct lane_limits){ c->peer_threads_each, c->peer_threads, c->peer_queue });
        pool_limit_lanes(d->pool, LANE_REQUESTS,
                         (struct lane_limits){ REQUESTS_EACH, REQUESTS_ALL, c->op_queue });
        pool_limit_lanes(d->pool, LANE_LINKS,
                         (struct lane_limits){ LINKS_EACH, LINKS_ALL, c->op_queue });
        pool_limit_lanes(d->pool, LANE_STARTS,
                         (struct lane_limits){ STARTS_EACH, STARTS_ALL, c->op_queue });
        pool_limit_lanes(d->pool, LANE_CLOSING,
                         (struct lane_limits){ CLOSING_EACH, CLOSING_ALL, c->peer_queue });
}

static int start_loop(struct daemon *d, struct err *err)
{
        const struct listen_capacity capacity = listen_capacity();
        struct http_server_config http = {
                .loop = &d->loop,
                .handler = &api_handler,
                .ctx = &d->api,
                .max_connections = capacity.connections,
                .max_carried = capacity.carried,
                /* One client leaves the others half of it, and most of that to requests that are
                 * complete. */
                .max_per_client = d->config.connections_per_client
                                          ? d->config.connections_per_client
                                          : MAX(capacity.connections / 2, 1),
                .max_unfinished = MAX(capacity.connections / 8, 1),
                .reserved_path = "/api/health",
                .find_owner = d->config.settings.mode == MODE_LOCAL_TRUSTED,
                .body_timeout_ms = body_timeout_ms(),
        };
        int r = uv_loop_init(&d->loop);

        reserve_init();
        if (r < 0)
                return err_set(err, ERR_INTERNAL, "event loop: %s", uv_strerror(r));
        uv_timer_init(&d->loop, &d->grace_timer);
        uv_prepare_init(&d->loop, &d->idle_check);
        uv_signal_init(&d->loop, &d->sigterm);
        uv_signal_init(&d->loop, &d->sigint);
        d->sigterm.data = d->sigint.data = d;
        r = pool_new(&d->loop, d->config.op_threads, d->config.op_queue, &d->pool, err);
        if (r < 0)
                return r;
        limit_lanes(d);
        d->api = (struct api){
                .rt = &d->rt,
                .pool = d->pool,
                .loop = &d->loop,
                .operator_uid = geteuid(),
                .started_ms = clock_mono_ms(),
        };
        return http_server_new(&http, &d->http, err);
}

/* The modules that keep something going: commands, runs, callbacks, live events, sandboxes, files.
 */
static int open_hosts(struct op *op, struct daemon *d, struct err *err)
{
        const char *box = installed_box(&d->arena);
        struct exec_hub_config config = {
                .loop = &d->loop,
                .pool = d->pool,
                .rt = &d->rt,
                .data_dir = d->config.data_dir,
                .box_program = box ? box : "berth-box",
        };
        int r = mail_new(&d->loop, &d->mail, err);

        config.mail = d->rt.mail = d->mail;
        d->rt.pool = d->pool;
        d->rt.data_dir = d->config.data_dir;
        upkeep_init(&d->upkeep, &d->rt, &d->loop, &d->room);
        if (r >= 0)
                r = live_new(&d->loop, &d->rt.live, err);
        if (r >= 0)
                r = live_number(op, d->rt.live, d->rt.store, d->pool, err);
        if (r >= 0)
                live_attach(d->rt.live, d->rt.store);
        if (r >= 0)
                r = callback_host_new(&d->rt, &d->loop, d->http, &d->rt.callbacks, err);
        if (r >= 0)
                r = run_host_new(&d->rt, &d->loop, &d->rt.runs, err);
        if (r >= 0)
                r = run_scheduler_new(&d->rt, &d->loop, &d->scheduler, err);
        if (r >= 0)
                r = sandbox_host_new(&d->rt, d->config.data_dir, config.box_program, &d->rt.sandbox,
                                     err);
        if (r >= 0)
                r = carriers_new(&d->rt, &d->loop, d->config.data_dir, config.box_program,
                                 &d->rt.carriers);
        if (r >= 0)
                r = ssh_hosts_new(d->config.data_dir, &d->rt.ssh, err);
        if (r >= 0)
                r = workspace_host_new(d->config.data_dir, &d->rt.workspaces, err);
        return r < 0 ? r : exec_hub_new(&config, &d->hub, err);
}

static void boxes_adopted(void *arg)
{
        ((struct daemon *)arg)->adopted = true;
}

/* Take up what still runs, then put in order what does not. */
static int take_up_work(struct op *op, struct daemon *d, struct err *err)
{
        struct plugin_registry_config plugins = { .mail = d->mail, .pool = d->pool, .rt = &d->rt };
        int r = exec_hub_adopt(op, d->hub, err);

        if (r < 0)
                return r;
        d->rt.sandbox->want_stock = upkeep_want_stock;
        d->rt.sandbox->want_arg = &d->upkeep;
        exec_hub_connect(d->hub, boxes_adopted, d);
        while (!d->adopted)
                uv_run(&d->loop, UV_RUN_ONCE);
        r = plugin_registry_new(&plugins, &d->rt.plugins, err);
        if (r >= 0) /* what a crash left of installs goes */
                r = plugin_registry_recover(op, d->rt.plugins, err);
        if (r < 0)
                return r;
        plugin_registry_start(d->rt.plugins); /* the workers start beside everything else */
        upkeep_sweep_now(&d->upkeep);
        return r;
}

/* -- Running ----------------------------------------------------------------------------------- */

static void begin_stop(struct daemon *d, const char *why);

static void stop_signal(uv_signal_t *handle, int signum)
{
        struct daemon *d = handle->data;

        if (d->stopping)
                _exit(128 + signum);
        begin_stop(d, signum == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void stop_unneeded(void *arg)
{
        struct daemon *d = arg;

        if (!d->stopping)
                begin_stop(d, "nobody needs it any more");
}

/* Settings that are logged so that they surprise no operator. */
static void report_start(const struct daemon *d)
{
        const struct settings *s = &d->config.settings;

        if (s->allow_fake_provider)
                log_warn(
                        "BERTH_ALLOW_FAKE_PROVIDER is set: fake sandboxes can be saved and leased");
        if (s->fake_world)
                log_warn("BERTH_FAKE_WORLD is set", LOG_S("directory", s->fake_world));
        if (getenv("BERTH_SWEEP_INTERVAL_MS"))
                log_info("BERTH_SWEEP_INTERVAL_MS is set", LOG_I("ms", s->sweep_interval_ms));
        log_info("ready", LOG_S("data", d->config.data_dir),
                 LOG_S("mode", s->mode == MODE_LOCAL_TRUSTED ? "local_trusted" : "authenticated"),
                 LOG_S("node", d->rt.node.id.s), LOG_S("version", BERTH_VERSION));
}

static void run_until_stopped(struct daemon *d, unsigned port)
{
        uv_signal_start(&d->sigterm, stop_signal, SIGTERM);
        uv_signal_start(&d->sigint, stop_signal, SIGINT);
        upkeep_start(&d->upkeep);
        d->keeper = command_keeper_start(&d->rt, &d->loop);
        run_scheduler_start(d->scheduler);
        if (d->config.is_private) {
                d->idle = (struct idle){ .pool = d->pool,
                                         .rt = &d->rt,
                                         .http = d->http,
                                         .over = stop_unneeded,
                                         .arg = d };
                idle_start(&d->idle, &d->loop);
        }
        listen_announce(&d->config, port);
        report_start(d);
        uv_run(&d->loop, UV_RUN_DEFAULT);
}

/* -- Stopping ---------------------------------------------------------------------------------- */

static void http_closed(void *arg)
{
        ((struct daemon *)arg)->closed = true;
}

static void plugins_stopped(void *arg)
{
        ((struct daemon *)arg)->plugins_stopped = true;
}

/* Runs before the loop sleeps: once everything under way has been answered, the end can begin. */
static void check_idle(uv_prepare_t *prepare)
{
        struct daemon *d = container_of(prepare, struct daemon, idle_check);

        if (d->closed || !pool_idle(d->pool) || http_server_connections(d->http) > 0)
                return;
        if (!d->stopping_plugins) {
                d->stopping_plugins = true;
                plugin_registry_stop(d->rt.plugins, plugins_stopped, d);
        } else if (d->plugins_stopped) {
                uv_stop(&d->loop);
        }
}

static void grace_over(uv_timer_t *timer)
{
        struct daemon *d = container_of(timer, struct daemon, grace_timer);

        if (pool_idle(d->pool)) {
                uv_stop(&d->loop); /* only idle or slow clients are left */
                return;
        }
        if (!d->cancelled_ms) {
                d->cancelled_ms = clock_mono_ms();
                log_warn("requests are still under way; cancelling them");
                pool_drain(d->pool, true);
        } else if (clock_mono_ms() - d->cancelled_ms >= UNDO_MS) {
                log_warn("not everything could be undone in time; the next start goes on with it");
                pool_stop(d->pool);
        }
        uv_timer_start(timer, grace_over, LOOK_MS, LOOK_MS);
}

/* Everything is bounded above. If it is not, killing us is safe, and a daemon that does not end
 * when it is told to is not. */
static void end_at_last(int signum UNUSED)
{
        static const char text[] = "berth: stopping took too long; the next start goes on with "
                                   "what is left\n";

        (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
        _exit(0);
}

static void begin_stop(struct daemon *d, const char *why)
{
        d->stopping = true;
        signal(SIGALRM, end_at_last);
        (void)alarm(STOP_MAX_S);
        log_info("stopping", LOG_S("why", why));
        run_host_stop(d->rt.runs);
        if (d->config.is_private)
                idle_stop(&d->idle);
        http_server_drain(d->http);
        live_stop(d->rt.live);
        callback_host_stop(d->rt.callbacks);
        upkeep_stop(&d->upkeep);
        command_keeper_stop(d->keeper);
        run_scheduler_stop(d->scheduler);
        uv_timer_start(&d->grace_timer, grace_over, GRACE_MS, 0);
        uv_prepare_start(&d->idle_check, check_idle);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
        if (!uv_is_closing(handle))
                uv_close(handle, NULL);
}

static void shut_down(struct daemon *d)
{
        uv_prepare_stop(&d->idle_check);
        if (d->http)
                http_server_close(d->http, http_closed, d);
        if (d->pool) {
                run_host_stop(d->rt.runs);
                run_scheduler_stop(d->scheduler);
                callback_host_stop(d->rt.callbacks);
                pool_stop(d->pool);
                while (!pool_idle(d->pool))
                        uv_run(&d->loop, UV_RUN_ONCE);
                plugin_registry_free(d->rt.plugins);
                d->rt.plugins = NULL;
                ssh_hosts_close(d->rt.ssh);
                carriers_close(d->rt.carriers);
                mail_catch_up(d->mail); /* what the workers' threads said last */
                run_host_free(d->rt.runs);
                run_scheduler_free(d->scheduler);
                callback_host_free(d->rt.callbacks);
                exec_hub_free(d->hub);
                live_attach(NULL, d->rt.store);
                live_free(d->rt.live);
                mail_free(d->mail);
                pool_free(d->pool);
                /* The handles that are left are our own. */
                while (d->http && !d->closed)
                        uv_run(&d->loop, UV_RUN_ONCE);
                uv_walk(&d->loop, close_handle, NULL);
                uv_run(&d->loop, UV_RUN_DEFAULT);
                (void)uv_loop_close(&d->loop);
        }
        workspace_host_free(d->rt.workspaces);
        sandbox_host_free(d->rt.sandbox);
        ssh_hosts_free(d->rt.ssh);
        carriers_free(d->rt.carriers);
        command_keeper_free(d->keeper);
        command_kinds_free(d->kinds);
        if (d->rt.store) {
                store_close(d->rt.store);
                room_close(&d->room);
        }
        master_key_unload();
        run_keys_free(d->run_keys);
        keys_done(&d->keys);
        cleanup_fd(&d->lock_fd);
}

/* A private daemon tells the process that started it: being second is no failure there. */
static void report_failure(const struct cli_serve_options *options, int code, const struct err *err)
{
        if (options->is_private)
                printf("%s %s\n", code == ERR_LOCKED ? "locked" : "error:", err->msg);
        if (!options->is_private || code != ERR_LOCKED)
                out_error(err->msg);
}

int serve(const struct cli_serve_options *options)
{
        CLEAN(err_done) struct err err = { 0 };
        struct daemon *d = xcalloc(1, sizeof(*d));
        struct arena starting;
        /* On the main thread, before the loop runs. */
        struct op op = { .arena = &starting,
                         .deadline_ms = OP_NO_DEADLINE,
                         .actor = &actor_system };
        unsigned port;

        d->lock_fd = -1;
        arena_init(&d->arena);
        arena_init(&starting);
        harden();
        int r = sodium_init() < 0 ? err_set(&err, ERR_INTERNAL, "libsodium does not start") : 0;
        if (r >= 0)
                r = config_load(options, &d->arena, &d->config, &err);
        if (r >= 0) {
                log_init(d->config.log_level, d->config.log_format);
                r = trusted_settle(&d->config, &d->arena, &err);
        }
        if (r >= 0) {
                r = keys_take(d->config.data_dir, d->config.secrets_key_file, &d->arena, &d->keys,
                              &err);
        }
        if (r >= 0)
                r = open_runtime(&op, d, &err);
        /* Without room on the disk agents go without it; the prompt has what they need most. */
        if (r >= 0 && skill_write_builtin(d->config.data_dir, &err) < 0) {
                log_warn("the built-in skill is not written", LOG_S("error", err.msg));
                err_clear(&err);
        }
        if (r >= 0)
                r = adapter_load(arena_printf(&d->arena, "%s/adapters", d->config.data_dir),
                                 complain_adapter, NULL, &err);
        if (r >= 0)
                r = start_loop(d, &err);
        if (r >= 0)
                r = open_hosts(&op, d, &err);
        if (r >= 0)
                r = take_up_work(&op, d, &err);
        if (r >= 0)
                r = listen_open(&d->config, d->http, &d->arena, &port, &d->rt.api_url, &err);
        if (r >= 0)
                r = run_host_start(d->rt.runs, &err);
        arena_done(&starting);
        if (r >= 0)
                run_until_stopped(d, port);
        else
                report_failure(options, r, &err);
        shut_down(d);
        arena_done(&d->arena);
        free(d);
        return r < 0 ? 1 : 0;
}
