/* What goes wrong in the field: time runs out, the worker hangs, dies, or reads garbage. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include "base/clock.h"
#include "base/fd.h"
#include "conformance/conformance.h"
#include "rt/mail.h"
#include "rt/proc.h"

#define RAW_LIMIT_MS     15000
#define RESTART_LIMIT_MS 20000

static int64_t worker_pid(struct conformance *c)
{
        struct worker_view view;

        return plugin_host_view(c->host, CONFORMANCE_PLUGIN, &view) ? view.pid : 0;
}

/* Time */

static int command_timeout(struct conformance *c, struct err *err)
{
        int64_t began = clock_mono_ms();
        json_t *answer;
        int r = conformance_needs(c, "environmentExecute", true, err);

        if (r == 0)
                r = conformance_shell(c, "echo begun; sleep 60",
                                      json_pack("{s:i}", "timeoutMs", 500), 30000, &answer, err);
        if (r != 0)
                return r;
        if (!json_is_true(json_object_get(answer, "timedOut")))
                return err_set(err, ERR_PROVIDER, "timedOut is not true");
        if (clock_mono_ms() - began > 20000)
                return err_set(err, ERR_PROVIDER, "it took %lld ms instead of 500",
                               (long long)(clock_mono_ms() - began));
        return 0;
}

/* Calls at the same time: the quick one does not wait for the slow one. */
struct pair {
        pthread_mutex_t lock;
        struct promise *slow;
        bool slow_done;
};

static void slow_done(void *ctx, int code, const json_t *result, const struct err *err)
{
        struct pair *p = ctx;
        struct promise *slow = p->slow;

        (void)result;
        pthread_mutex_lock(&p->lock);
        p->slow_done = true;
        pthread_mutex_unlock(&p->lock);
        promise_keep(slow, code, err ? err->msg : ""); /* from here on *p may be gone */
        promise_unref(slow);
}

/* Once begun, slow_done() has a reference to the promise. */
static int begin_shell(struct conformance *c, const char *script, struct pair *p, struct err *err)
{
        struct plugin_call call = {
                .plugin_id = CONFORMANCE_PLUGIN,
                .method = "environmentExecute",
                .params = conformance_params(c, json_pack("{s:O, s:s, s:[s,s], s:s*}", "lease",
                                                          c->lease, "command", "sh", "args", "-c",
                                                          script, "cwd", c->cwd)),
                .company_id = CONFORMANCE_COMPANY,
                .timeout_ms = 60000,
        };
        int64_t id;

        (void)promise_ref(p->slow);
        int r = plugin_call_begin(c->host, &call, slow_done, p, &id, err);
        if (r < 0)
                promise_unref(p->slow);
        return r;
}

static int side_by_side(struct conformance *c, struct err *err)
{
        struct pair p = { .lock = PTHREAD_MUTEX_INITIALIZER };
        json_t *answer;
        int r = conformance_needs(c, "environmentExecute", true, err);

        if (r != 0)
                return r;
        p.slow = promise_new(err);
        if (!p.slow)
                return ERR_INTERNAL;
        r = begin_shell(c, "sleep 3", &p, err);
        if (r < 0) {
                promise_unref(p.slow);
                return r;
        }
        r = conformance_shell(c, "true", NULL, 30000, &answer, err);
        pthread_mutex_lock(&p.lock);
        bool overtaken = !p.slow_done;
        pthread_mutex_unlock(&p.lock);
        if (promise_wait(p.slow, &c->op, r < 0 ? NULL : err) < 0 && r >= 0)
                r = ERR_PROVIDER;
        promise_unref(p.slow);
        if (r >= 0 && !overtaken)
                r = err_set(err, ERR_PROVIDER, "a quick command waited for a slow one");
        return r;
}

/* Hang: a worker that stands still with all its processes, and goes on. */
static int check_hang(struct conformance *c, struct err *err)
{
        pid_t pid = (pid_t)worker_pid(c);
        json_t *answer;

        if (pid <= 0 || kill(-pid, SIGSTOP) < 0)
                return err_set(err, ERR_PROVIDER, "the worker does not run");
        int r = conformance_call(c, "health", NULL, 500, &answer, err);
        (void)kill(-pid, SIGCONT);
        if (r != ERR_TIMEOUT)
                return err_set(err, ERR_PROVIDER, "it answered while it was stopped");
        err_clear(err);
        return conformance_call(c, "health", NULL, 10000, &answer, err);
}

/* Kill: in the middle of a command. The lease can be given up by the worker that comes after. */

static int wait_for_restart(struct conformance *c, int64_t old, struct err *err)
{
        int64_t until = clock_mono_ms() + RESTART_LIMIT_MS;

        while (!plugin_host_is_running(c->host, CONFORMANCE_PLUGIN) || worker_pid(c) == old) {
                int r = op_wait_fd(&c->op, -1, 0, 20, err);

                if (r < 0)
                        return r;
                if (clock_mono_ms() > until)
                        return err_set(err, ERR_TIMEOUT, "it was not started again");
        }
        return 0;
}

static int kill_it(struct conformance *c, struct err *err)
{
        struct pair p = { .lock = PTHREAD_MUTEX_INITIALIZER };
        int64_t pid = worker_pid(c);
        json_t *answer;
        int r = conformance_needs(c, "environmentExecute", true, err);

        if (r != 0)
                return r;
        p.slow = promise_new(err);
        if (!p.slow)
                return ERR_INTERNAL;
        r = begin_shell(c, "sleep 2", &p, err);
        if (r >= 0) {
                /* Once it answers something later it has the command. */
                (void)conformance_call(c, "health", NULL, 1000, &answer, NULL);
                (void)kill((pid_t)pid, SIGKILL);
                if (promise_wait(p.slow, &c->op, NULL) != ERR_UNCERTAIN)
                        r = err_set(err, ERR_PROVIDER, "the call outlived the worker");
        }
        promise_unref(p.slow);
        if (r >= 0)
                r = wait_for_restart(c, pid, err);
        if (r >= 0)
                r = conformance_give_up(c, "environmentReleaseLease", c->lease, err);
        if (r < 0)
                return r;
        r = conformance_give_up(c, "environmentDestroyLease", c->lease, err);
        c->lease = NULL;
        return r;
}

static int acquire_again(struct conformance *c, struct err *err)
{
        int r = conformance_acquire(c, &c->lease, err);

        if (r >= 0)
                c->cwd = json_get_string(json_object_get(c->lease, "metadata"), "remoteCwd");
        return r;
}

/* Garbage */

static int unknown_method(struct conformance *c, struct err *err)
{
        json_t *answer;
        int r = conformance_call(c, "berthNoSuchMethod", NULL, 10000, &answer, err);

        if (r >= 0)
                return err_set(err, ERR_PROVIDER, "a method that does not exist was answered");
        if (r == ERR_TIMEOUT || r == ERR_UNCERTAIN)
                return r;
        err_clear(err);
        return conformance_call(c, "health", NULL, 10000, &answer, err);
}

/* A worker whose pipes are ours, for bytes that the host would never send. */
struct raw {
        struct proc proc;
        int in, out;
        struct buf got;
};

static int raw_start(struct conformance *c, struct raw *raw, struct err *err)
{
        const char *const *argv;
        const char *path;
        int in[2], out[2], r;

        r = plugin_host_command(&c->op, &c->host_config, &c->spec, c->op.arena, &path, &argv, err);
        if (r < 0)
                return r;
        if (pipe2(in, O_CLOEXEC) < 0)
                return err_sys(err, ERR_INTERNAL, errno, "pipe");
        if (pipe2(out, O_CLOEXEC) < 0) {
                close(in[0]);
                close(in[1]);
                return err_sys(err, ERR_INTERNAL, errno, "pipe");
        }
        raw->in = in[1];
        raw->out = out[0];
        r = proc_spawn(&(struct proc_spec){ .path = path,
                                            .argv = argv,
                                            .env = c->spec.env,
                                            .cwd = c->spec.private_dir,
                                            .fd_in = in[0],
                                            .fd_out = out[1],
                                            .fd_err = -1,
                                            .new_session = true },
                       &raw->proc, err);
        close(in[0]);
        close(out[1]);
        return r;
}

static void raw_end(struct conformance *c, struct raw *raw)
{
        struct proc_status ignored;

        if (raw->proc.pid > 0) {
                (void)kill(-raw->proc.pid, SIGKILL);
                (void)proc_wait(&c->op, &raw->proc, &ignored, NULL);
        }
        cleanup_fd(&raw->in);
        cleanup_fd(&raw->out);
        proc_done(&raw->proc);
        buf_done(&raw->got);
}

static int raw_say(struct raw *raw, const char *text, struct err *err)
{
        return fd_write_all(raw->in, text, strlen(text), err);
}

/* Take the first line; 1 when it answers `id` with a result, which it then holds. */
static int take_line(struct raw *raw, int64_t id, json_t **ret)
{
        const char *end = memchr(buf_str(&raw->got), '\n', raw->got.len);
        json_t *message = NULL;
        int found = 0;

        if (!end)
                return -1;
        size_t n = (size_t)(end - raw->got.data);
        if (json_parse(raw->got.data, n, &message, NULL) >= 0 &&
            json_is_integer(json_object_get(message, "id")) &&
            json_integer_value(json_object_get(message, "id")) == id &&
            json_object_get(message, "result")) {
                *ret = json_incref(json_object_get(message, "result"));
                found = 1;
        }
        json_decref(message);
        buf_consume(&raw->got, n + 1);
        return found;
}

static int raw_answer(struct conformance *c, struct raw *raw, int64_t id, json_t **ret,
                      struct err *err)
{
        int64_t until = clock_mono_ms() + RAW_LIMIT_MS;

        for (;;) {
                char chunk[4096];
                ssize_t n;
                int r;

                while ((r = take_line(raw, id, ret)) == 0)
                        ;
                if (r > 0)
                        return 0;
                r = op_wait_fd(&c->op, raw->out, POLLIN, MAX(until - clock_mono_ms(), 0), err);
                if (r < 0)
                        return r;
                n = r ? read(raw->out, chunk, sizeof(chunk)) : 0;
                if (n <= 0)
                        return err_set(err, ERR_PROVIDER, r ? "it exited" : "it did not answer");
                buf_append(&raw->got, chunk, (size_t)n);
        }
}

static int raw_initialize(struct conformance *c, struct raw *raw, struct err *err)
{
        CLEAN(json_decrefp)
        json_t *message =
                json_pack("{s:s, s:i, s:s, s:{s:O, s:{}, s:{s:s, s:s}, s:i, s:n}}", "jsonrpc",
                          "2.0", "id", 1, "method", "initialize", "params", "manifest",
                          c->spec.manifest, "config", "instanceInfo", "instanceId", "conformance",
                          "hostVersion", PLUGIN_HOST_VERSION, "apiVersion", 1, "databaseNamespace");
        CLEAN(json_decrefp) json_t *answer = NULL;
        CLEAN(cleanup_free) char *text = json_to_text(message);
        int r = raw_say(raw, text, err);

        if (r >= 0)
                r = raw_say(raw, "\n", err);
        if (r >= 0)
                r = raw_answer(c, raw, 1, &answer, err);
        if (r >= 0 && !json_is_true(json_object_get(answer, "ok")))
                r = err_set(err, ERR_PROVIDER, "initialize was not answered with ok");
        return r;
}

static int check_garbage(struct conformance *c, struct err *err)
{
        static const char text[] =
                "this is not JSON\n"
                "\n"
                "[]\n"
                "{\"jsonrpc\":\"1.0\",\"id\":7,\"method\":\"health\"}\n"
                "{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n"
                "{\"jsonrpc\":\"2.0\",\"method\":\"unheard.of\",\"params\":{}}\n"
                "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"health\",\"params\":{}}\n";
        CLEAN(json_decrefp) json_t *answer = NULL;
        struct raw raw = { .proc = PROC_INIT, .in = -1, .out = -1 };
        int r = raw_start(c, &raw, err);

        if (r >= 0)
                r = raw_initialize(c, &raw, err);
        if (r >= 0)
                r = raw_say(&raw, text, err);
        if (r >= 0)
                r = raw_answer(c, &raw, 2, &answer, err);
        raw_end(c, &raw);
        return r;
}

/* The end of its input is the end of the host: nothing would ever stop it otherwise. */
static int end_of_input(struct conformance *c, struct err *err)
{
        struct raw raw = { .proc = PROC_INIT, .in = -1, .out = -1 };
        int r = raw_start(c, &raw, err);

        if (r >= 0)
                r = raw_initialize(c, &raw, err);
        if (r >= 0) {
                cleanup_fd(&raw.in);
                raw.in = -1;
                r = op_wait_fd(&c->op, raw.proc.pidfd, POLLIN, 5000, err);
                if (r == 0)
                        r = err_set(err, ERR_PROVIDER, "it goes on without its standard input");
        }
        raw_end(c, &raw);
        return r < 0 ? r : 0;
}

static int shutdown_worker(struct conformance *c, struct err *err)
{
        CLEAN(json_decrefp) json_t *answer = NULL;
        struct raw raw = { .proc = PROC_INIT, .in = -1, .out = -1 };
        struct proc_status status = { 0 };
        int r = raw_start(c, &raw, err);

        if (r >= 0)
                r = raw_initialize(c, &raw, err);
        if (r >= 0)
                r = raw_say(
                        &raw,
                        "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"shutdown\",\"params\":{}}\n",
                        err);
        if (r >= 0)
                r = raw_answer(c, &raw, 2, &answer, err);
        if (r >= 0)
                r = op_wait_fd(&c->op, raw.proc.pidfd, POLLIN, 10000, err);
        if (r == 0)
                r = err_set(err, ERR_PROVIDER, "it did not exit after shutdown");
        else if (r > 0)
                r = proc_wait(&c->op, &raw.proc, &status, err);
        if (r >= 0 && status.exit_code != 0)
                r = err_set(err, ERR_PROVIDER, "it ended with status %d", status.exit_code);
        raw_end(c, &raw);
        return r < 0 ? r : 0;
}

const struct conformance_check conformance_trouble[] = {
        { "acquire once more", acquire_again },
        { "timeout: a command that takes too long is ended", command_timeout },
        { "timeout: calls run side by side", side_by_side },
        { "hang: a worker that stood still goes on", check_hang },
        { "garbage: a method that does not exist", unknown_method },
        { "kill: in the middle of a command, then release", kill_it },
        { "garbage: lines that are no messages", check_garbage },
        { "it ends with its standard input", end_of_input },
        { "it answers shutdown and ends with status 0", shutdown_worker },
        { NULL, NULL },
};
