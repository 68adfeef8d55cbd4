/* The daemon: wiring, the sweeper's clock, and an orderly end.
 *
 * Start: settings, lock, store, listeners, then "listening on …" on standard output. A first pass
 * of the sweeper runs before the port opens to anybody, so that what a crash left is taken up at
 * once.
 *
 * Stop (SIGTERM, SIGINT): no new connections; requests under way are finished; after a grace they
 * are cancelled and undo what they began. A second signal ends at once, which is safe at any time.
 */
#include "daemon/serve.h"

#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "core/adapter_descriptor.h"
#include "core/auth.h"
#include "core/callback.h"
#include "core/driver.h"
#include "core/exec.h"
#include "core/live.h"
#include "core/plugin_registry.h"
#include "core/run.h"
#include "core/run_schedule.h"
#include "core/run_token.h"
#include "core/sandbox_host.h"
#include "core/secret.h"
#include "core/snapshot.h"
#include "core/ssh_hosts.h"
#include "core/stock.h"
#include "core/sweeper.h"
#include "core/workspace.h"
#include "core/workspace_host.h"
#include "daemon/config.h"
#include "daemon/datadir.h"
#include "daemon/idle.h"
#include "daemon/keys.h"

#define SOCKET_NAME "berth.sock"
#define GRACE_MS    10000

struct daemon {
        struct arena arena;
        struct config config;
        struct daemon_keys keys;
        struct run_keys *run_keys;
        struct runtime rt;
        struct api api;
        int lock_fd;
        uv_loop_t loop;
        struct pool *pool;
        struct mail *mail;
        struct exec_hub *hub;
        struct http_server *http;
        struct run_scheduler *scheduler;
        uv_timer_t sweep_timer, grace_timer;
        uv_prepare_t idle_check;
        uv_signal_t sigterm, sigint;
        struct pool_job sweep_job, stock_job;
        struct letter stock_letter;
        _Atomic bool stock_posted;
        struct idle idle; /* of a private one */
        bool adopted, sweeping, stocking, stock_again, stopping, closed;
        bool stopping_plugins, plugins_stopped;
};

static const struct driver *const drivers[] = { &driver_local, &driver_ssh, &driver_sandbox,
                                                &driver_plugin, NULL };

/* Sandboxes in advance */

static void stock_start(struct daemon *d);

static void stock_run(struct pool_job *job, struct op *op)
{
        struct daemon *d = container_of(job, struct daemon, stock_job);
        CLEAN(err_done) struct err err = { 0 };
        unsigned made = 0;
        int r;

        op->actor = &actor_system;
        r = stock_fill(op, &d->rt, &made, &err);
        if (r < 0 && r != ERR_CANCELLED)
                log_error("could not look after sandboxes in advance", LOG_S("error", err.msg));
        else if (made > 0)
                log_debug("made sandboxes in advance", LOG_I("made", made));
}

static void stock_done(struct pool_job *job)
{
        struct daemon *d = container_of(job, struct daemon, stock_job);

        d->stocking = false;
        if (d->stock_again)
                stock_start(d);
}

static void stock_start(struct daemon *d)
{
        d->stock_again = d->stocking;
        if (d->stocking || d->stopping)
                return;
        d->stock_job = (struct pool_job){ .run = stock_run, .done = stock_done };
        d->stocking = pool_submit(d->pool, &d->stock_job, NULL) >= 0;
}

static void stock_on_loop(struct letter *letter)
{
        struct daemon *d = container_of(letter, struct daemon, stock_letter);

        atomic_store(&d->stock_posted, false);
        stock_start(d);
}

static void want_stock(void *arg)
{
        struct daemon *d = arg;

        if (!atomic_exchange(&d->stock_posted, true))
                mail_post(d->mail, &d->stock_letter, stock_on_loop);
}

/* Sweeping */

static void sweep_once(struct daemon *d, struct op *op)
{
        CLEAN(err_done) struct err err = { 0 };
        struct sweep_result res;
        int64_t jump_us;
        int r;

        op->actor = &actor_system;
        r = sweep_follow_clock(op, &d->rt, &jump_us, &err);
        if (jump_us)
                log_warn("the wall clock was set; leases keep the time they had left",
                         LOG_I("seconds", jump_us / US_PER_S));
        if (r >= 0)
                r = sweep(op, &d->rt, &res, &err);
        if (r >= 0)
                r = workspace_sweep(op, &d->rt, &err);
        if (r >= 0)
                r = snapshot_sweep(op, &d->rt, &err);
        if (r >= 0)
                r = exec_prune(op, &d->rt, &err);
        if (r >= 0)
                r = secret_sweep(op, &d->rt, &err);
        if (r < 0)
                log_error("the sweeper could not finish", LOG_S("error", err.msg));
        else if (res.expired + res.released + res.closed + res.parked + res.failed > 0)
                log_info("swept", LOG_I("expired", res.expired), LOG_I("released", res.released),
                         LOG_I("closed", res.closed), LOG_I("parked", res.parked),
                         LOG_I("failed", res.failed));
}

static void sweep_run(struct pool_job *job, struct op *op)
{
        sweep_once(container_of(job, struct daemon, sweep_job), op);
}

static void sweep_done(struct pool_job *job)
{
        struct daemon *d = container_of(job, struct daemon, sweep_job);

        d->sweeping = false;
        stock_start(d);
}

static void start_sweep(struct daemon *d)
{
        d->sweep_job = (struct pool_job){ .run = sweep_run, .done = sweep_done };
        d->sweeping = pool_submit(d->pool, &d->sweep_job, NULL) >= 0;
}

static void sweep_tick(uv_timer_t *timer)
{
        struct daemon *d = container_of(timer, struct daemon, sweep_timer);

        if (d->sweeping || d->stopping)
                return;
        start_sweep(d);
}

/* Stopping */

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
        log_warn("requests are still under way; cancelling them");
        pool_drain(d->pool, true);
        uv_timer_start(timer, grace_over, GRACE_MS / 10, GRACE_MS / 10);
}

static void stop(struct daemon *d, const char *why)
{
        d->stopping = true;
        log_info("stopping", LOG_S("why", why));
        run_host_stop(d->rt.runs);
        if (d->config.is_private)
                idle_stop(&d->idle);
        http_server_drain(d->http);
        live_stop(d->rt.live);
        callback_host_stop(d->rt.callbacks);
        uv_timer_stop(&d->sweep_timer);
        run_scheduler_stop(d->scheduler);
        uv_timer_start(&d->grace_timer, grace_over, GRACE_MS, 0);
        uv_prepare_start(&d->idle_check, check_idle);
}

static void stop_signal(uv_signal_t *handle, int signum)
{
        struct daemon *d = handle->data;

        if (d->stopping)
                _exit(128 + signum);
        stop(d, signum == SIGTERM ? "SIGTERM" : "SIGINT");
}

static void stop_unneeded(void *arg)
{
        struct daemon *d = arg;

        if (!d->stopping)
                stop(d, "nobody needs it any more");
}

/* Starting */

/* Operations on the main thread, before the loop runs. */
static int on_main_thread(struct daemon *d,
                          int (*fn)(struct op *op, struct daemon *d, struct err *err),
                          struct err *err)
{
        struct arena arena;
        struct op op = { .arena = &arena, .deadline_ms = OP_NO_DEADLINE, .actor = &actor_system };
        int r;

        arena_init(&arena);
        r = fn(&op, d, err);
        arena_done(&arena);
        return r;
}

static int ensure_operator(struct op *op, struct daemon *d, struct err *err)
{
        return auth_ensure_operator(op, &d->rt, err);
}

static int read_boxes(struct op *op, struct daemon *d, struct err *err)
{
        return exec_hub_adopt(op, d->hub, err);
}

static int sweep_plugins(struct op *op, struct daemon *d, struct err *err)
{
        return plugin_registry_recover(op, d->rt.plugins, err);
}

/* Our own file, and what is installed beside it. */
static const char *own_program(struct arena *a)
{
        char self[4096];
        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

        return n > 0 ? arena_strndup(a, self, (size_t)n) : NULL;
}

static const char *find_beside(struct arena *a, const char *const *places, size_t n, int mode)
{
        const char *self = own_program(a);

        for (size_t i = 0; self && i < n; i++) {
                char *path = arena_printf(a, "%.*s/%s", (int)(strrchr(self, '/') - self), self,
                                          places[i]);

                if (access(path, mode) == 0)
                        return path;
        }
        return NULL;
}

/* berth-box is installed beside berth, or in the libexec directory of the same prefix. */
static const char *find_box(struct arena *a)
{
        static const char *const places[] = { "berth-box", "../libexec/berth/berth-box" };
        const char *path = find_beside(a, places, ARRAY_LEN(places), X_OK);

        return path ? path : "berth-box";
}

static const char *find_examples(struct arena *a)
{
        static const char *const places[] = { "../share/berth/examples", "../examples" };
        const char *path = find_beside(a, places, ARRAY_LEN(places), R_OK);
        char real[4096];

        return path && realpath(path, real) ? arena_strdup(a, real) : NULL;
}

static int look_for_sealed(struct db *db, void *arg, struct err *err)
{
        return secrets_any_sealed(db, VAULT_LOCAL, arg, err);
}

/* Without its key the daemon starts all the same: leases do not need it, and whoever has to mend it
 * finds the reason in the log, in the provider's health and in every answer that needs the key. */
static int load_keys(struct op *op, struct daemon *d, struct err *err)
{
        CLEAN(err_done) struct err why = { 0 };
        bool has_sealed = true;
        int r = store_read(op, d->rt.store, look_for_sealed, &has_sealed, err);

        if (r < 0)
                return r;
        if (master_key_load(&d->keys.source, has_sealed, &why) < 0)
                log_error("secrets cannot be sealed or opened", LOG_S("error", why.msg));
        r = run_keys_new(&d->rt.node, d->keys.run_secret.data, &d->run_keys, err);
        d->rt.run_keys = d->run_keys;
        keys_done(&d->keys);
        return r;
}

static int open_runtime(struct daemon *d, struct err *err)
{
        int r = datadir_lock(d->config.data_dir, d->config.is_private, &d->lock_fd, err);

        if (r >= 0)
                r = datadir_node(d->config.data_dir, &d->rt.node, err);
        if (r >= 0)
                r = store_open(d->config.database, &d->rt.store, err);
        if (r < 0)
                return r;
        d->rt.settings = d->config.settings;
        d->rt.settings.trampoline = own_program(&d->arena);
        d->rt.settings.examples_dir = find_examples(&d->arena);
        d->rt.drivers = drivers;
        r = on_main_thread(d, load_keys, err);
        return r < 0 ? r : on_main_thread(d, ensure_operator, err);
}

/* How many connections to hold. The usual limit of 1024 descriptors is less than the server would
 * take, and a daemon that spends them all on connections cannot open a database or a pipe any more:
 * so raise it as far as is of use, and keep a part for operations. */
static unsigned connections_to_hold(void)
{
        const rlim_t most = 4096, others = 1536;
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return 256;
        if (limit.rlim_cur < most + others) {
                limit.rlim_cur = MIN(limit.rlim_max, most + others);
                if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
                        (void)getrlimit(RLIMIT_NOFILE, &limit);
        }
        if (limit.rlim_cur >= most + others)
                return (unsigned)most;
        return (unsigned)MAX(limit.rlim_cur / 2, (rlim_t)1);
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

static int start_loop(struct daemon *d, struct err *err)
{
        struct http_server_config http = {
                .loop = &d->loop,
                .handler = &api_handler,
                .ctx = &d->api,
                .max_connections = connections_to_hold(),
                .body_timeout_ms = body_timeout_ms(),
        };
        int r = uv_loop_init(&d->loop);

        if (r < 0)
                return err_set(err, ERR_INTERNAL, "event loop: %s", uv_strerror(r));
        uv_timer_init(&d->loop, &d->sweep_timer);
        uv_timer_init(&d->loop, &d->grace_timer);
        uv_prepare_init(&d->loop, &d->idle_check);
        uv_signal_init(&d->loop, &d->sigterm);
        uv_signal_init(&d->loop, &d->sigint);
        d->sigterm.data = d->sigint.data = d;
        r = pool_new(&d->loop, d->config.op_threads, d->config.op_queue, &d->pool, err);
        if (r < 0)
                return r;
        d->api = (struct api){
                .rt = &d->rt,
                .pool = d->pool,
                .loop = &d->loop,
                .operator_uid = geteuid(),
                .started_ms = clock_mono_ms(),
        };
        return http_server_new(&http, &d->http, err);
}

static void boxes_adopted(void *arg)
{
        ((struct daemon *)arg)->adopted = true;
}

/* What a crash left of installs goes; the workers are started beside everything else. */
static int open_plugins(struct daemon *d, struct err *err)
{
        struct plugin_registry_config config = {
                .mail = d->mail,
                .pool = d->pool,
                .rt = &d->rt,
        };
        int r = plugin_registry_new(&config, &d->rt.plugins, err);

        if (r >= 0)
                r = on_main_thread(d, sweep_plugins, err);
        if (r >= 0)
                plugin_registry_start(d->rt.plugins);
        return r;
}

/* Take up what still runs, then put in order what does not. */
static int recover(struct daemon *d, struct err *err)
{
        struct exec_hub_config config = {
                .loop = &d->loop,
                .pool = d->pool,
                .rt = &d->rt,
                .data_dir = d->config.data_dir,
                .box_program = find_box(&d->arena),
        };
        int r = mail_new(&d->loop, &d->mail, err);

        config.mail = d->rt.mail = d->mail;
        d->rt.pool = d->pool;
        d->rt.data_dir = d->config.data_dir;
        if (r >= 0)
                r = live_new(&d->loop, &d->rt.live, err);
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
                r = ssh_hosts_new(&d->rt, &d->loop, d->config.data_dir, config.box_program,
                                  &d->rt.ssh, err);
        if (r >= 0)
                r = workspace_host_new(d->config.data_dir, &d->rt.workspaces, err);
        if (r >= 0)
                r = exec_hub_new(&config, &d->hub, err);
        if (r >= 0)
                r = on_main_thread(d, read_boxes, err);
        if (r < 0)
                return r;
        d->rt.sandbox->want_stock = want_stock;
        d->rt.sandbox->want_arg = d;
        exec_hub_connect(d->hub, boxes_adopted, d);
        while (!d->adopted)
                uv_run(&d->loop, UV_RUN_ONCE);
        r = open_plugins(d, err);
        if (r < 0)
                return r;
        start_sweep(d);
        while (d->sweeping)
                uv_run(&d->loop, UV_RUN_ONCE);
        return 0;
}

/* Where a command on this machine reaches us: an address of all interfaces is also loopback's. */
static const char *own_url(struct daemon *d, unsigned port)
{
        const char *host = d->config.settings.listen_host;

        if (streq(host, "0.0.0.0"))
                host = "127.0.0.1";
        else if (streq(host, "::"))
                host = "::1";
        return arena_printf(&d->arena, strchr(host, ':') ? "http://[%s]:%u" : "http://%s:%u", host,
                            port);
}

static int listen_on(struct daemon *d, unsigned *ret_port, struct err *err)
{
        char *path = arena_printf(&d->arena, "%s/" SOCKET_NAME, d->config.data_dir);
        struct sockaddr_storage address;
        socklen_t len = sizeof(address);
        int fd, r;

        *ret_port = 0;
        r = http_listen_unix(path, 0600, &fd, err);
        if (r == ERR_INVALID)
                r = err_wrap(err, r, "choose a shorter data directory with --data");
        if (r >= 0)
                r = http_server_listen(d->http, fd, err);
        if (r < 0 || d->config.is_private)
                return r;
        r = http_listen_tcp(d->config.listen, &fd, err);
        if (r < 0)
                return r;
        if (getsockname(fd, (struct sockaddr *)&address, &len) < 0)
                len = 0;
        /* The port is at the same place for both families. */
        *ret_port = ntohs(((struct sockaddr_in *)&address)->sin_port);
        d->rt.api_url = own_url(d, *ret_port);
        return http_server_listen(d->http, fd, err);
}

/* Reporting where we are: people and scripts wait for this line. */
static void announce(const struct daemon *d, unsigned port)
{
        const struct settings *s = &d->config.settings;
        bool v6 = strchr(s->listen_host, ':') != NULL;

        if (d->config.is_private)
                printf("listening on unix:%s/" SOCKET_NAME "\n", d->config.data_dir);
        else
                printf("listening on http://%s%s%s:%u\n", v6 ? "[" : "", s->listen_host,
                       v6 ? "]" : "", port);
        fflush(stdout);
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

static void run(struct daemon *d, unsigned port)
{
        uint64_t interval = (uint64_t)d->config.settings.sweep_interval_ms;

        uv_signal_start(&d->sigterm, stop_signal, SIGTERM);
        uv_signal_start(&d->sigint, stop_signal, SIGINT);
        uv_timer_start(&d->sweep_timer, sweep_tick, interval, interval);
        run_scheduler_start(d->scheduler);
        if (d->config.is_private) {
                d->idle = (struct idle){ .pool = d->pool,
                                         .rt = &d->rt,
                                         .http = d->http,
                                         .over = stop_unneeded,
                                         .arg = d };
                idle_start(&d->idle, &d->loop);
        }
        announce(d, port);
        uv_run(&d->loop, UV_RUN_DEFAULT);
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
                pool_drain(d->pool, true);
                while (!pool_idle(d->pool))
                        uv_run(&d->loop, UV_RUN_ONCE);
                plugin_registry_free(d->rt.plugins);
                d->rt.plugins = NULL;
                ssh_hosts_close(d->rt.ssh);
                mail_catch_up(d->mail); /* what the workers' threads said last */
                run_host_free(d->rt.runs);
                run_scheduler_free(d->scheduler);
                callback_host_free(d->rt.callbacks);
                exec_hub_free(d->hub);
                live_attach(NULL, d->rt.store);
                live_free(d->rt.live);
                mail_free(d->mail);
                pool_free(d->pool);
                /* What is left are our own handles. */
                while (d->http && !d->closed)
                        uv_run(&d->loop, UV_RUN_ONCE);
                uv_walk(&d->loop, close_handle, NULL);
                uv_run(&d->loop, UV_RUN_DEFAULT);
                (void)uv_loop_close(&d->loop);
        }
        workspace_host_free(d->rt.workspaces);
        sandbox_host_free(d->rt.sandbox);
        ssh_hosts_free(d->rt.ssh);
        store_close(d->rt.store);
        master_key_unload();
        run_keys_free(d->run_keys);
        keys_done(&d->keys);
        cleanup_fd(&d->lock_fd);
}

/* Documents of requests may hold a secret, and jansson copies texts as it reads: what it gives back
 * is wiped first. */
static void wipe_and_free(void *p)
{
        if (p)
                explicit_bzero(p, malloc_usable_size(p));
        free(p);
}

/* No core dump may carry what the daemon knows, and files we make are ours alone. */
static void harden(void)
{
        json_set_alloc_funcs(malloc, wipe_and_free);
        (void)prctl(PR_SET_DUMPABLE, 0);
        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        umask(077);
        signal(SIGPIPE, SIG_IGN);
        signal(SIGXFSZ, SIG_IGN); /* a write past a limit is an error like a full disk */
}

/* A private daemon tells the one who started it: being second is no failure to him. */
static void report_failure(const struct cli_serve_options *options, int code, const struct err *err)
{
        if (options->is_private)
                printf("%s %s\n", code == ERR_LOCKED ? "locked" : "error:", err->msg);
        if (!options->is_private || code != ERR_LOCKED)
                fprintf(stderr, "berth: %s\n", err->msg);
}

static void complain_adapter(void *ctx UNUSED, const char *text)
{
        log_warn("an adapter is left out", LOG_S("error", text));
}

/* Before there are threads, and before anybody asks for one. */
static int load_adapters(struct daemon *d, struct err *err)
{
        const char *dir = arena_printf(&d->arena, "%s/adapters", d->config.data_dir);

        return adapter_load(dir, complain_adapter, NULL, err);
}

int serve(const struct cli_serve_options *options)
{
        CLEAN(err_done) struct err err = { 0 };
        struct daemon *d = xcalloc(1, sizeof(*d));
        unsigned port;
        int r;

        d->lock_fd = -1;
        arena_init(&d->arena);
        harden();
        r = sodium_init() < 0 ? err_set(&err, ERR_INTERNAL, "libsodium does not start") : 0;
        if (r >= 0)
                r = config_load(options, &d->arena, &d->config, &err);
        if (r >= 0) {
                log_init(d->config.log_level, d->config.log_format);
                r = keys_take(d->config.data_dir, d->config.secrets_key_file, &d->arena, &d->keys,
                              &err);
        }
        if (r >= 0)
                r = open_runtime(d, &err);
        if (r >= 0)
                r = load_adapters(d, &err);
        if (r >= 0)
                r = start_loop(d, &err);
        if (r >= 0)
                r = recover(d, &err);
        if (r >= 0)
                r = listen_on(d, &port, &err);
        if (r >= 0)
                r = run_host_start(d->rt.runs, &err);
        if (r >= 0)
                run(d, port);
        else
                report_failure(options, r, &err);
        shut_down(d);
        arena_done(&d->arena);
        free(d);
        return r < 0 ? 1 : 0;
}
