/* The process of a worker: starting it, moving bytes to and from it, and its end. Everything here
 * is for the worker's own thread. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

#include "base/fd.h"
#include "plugin/files.h"
#include "plugin/worker.h"

#define READ_SIZE ((size_t)256 << 10)
#define READS_MAX 512

/* Starting the process */

static int make_pipe(int *ret_read, int *ret_write, struct err *err)
{
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return err_sys(err, ERR_BUSY, errno, "pipe");
        *ret_read = fds[0];
        *ret_write = fds[1];
        return 0;
}

static void set_nonblocking(int fd)
{
        (void)fcntl(fd, F_SETFL, O_NONBLOCK);
}

/* The interpreter by its real path, because rights to read are given by path. */
static const char *find_node(const struct plugin_host_config *config, struct arena *arena)
{
        const char *paths = getenv("PATH");
        char real[4096];

        if (config->node)
                return realpath(config->node, real) ? arena_strdup(arena, real) : config->node;
        while (paths && *paths) {
                size_t n = strcspn(paths, ":");
                const char *candidate = arena_printf(arena, "%.*s/node", (int)n, paths);

                if (access(candidate, X_OK) == 0 && realpath(candidate, real))
                        return arena_strdup(arena, real);
                paths += n + (paths[n] == ':');
        }
        return "node";
}

static bool is_for_node(const char *entry)
{
        const char *dot = strrchr(entry, '.');

        return dot && (streq(dot, ".js") || streq(dot, ".mjs") || streq(dot, ".cjs"));
}

int plugin_host_command(const struct op *op, const struct plugin_host_config *config,
                        const struct worker_spec *spec, struct arena *arena, const char **ret_path,
                        const char *const **ret_argv, struct err *err)
{
        struct confine_policy *policy = config->policy;
        bool node = is_for_node(spec->entry);
        const char *paths[READS_MAX] = { NULL };
        const char **direct = arena_alloc(arena, 3 * sizeof(*direct));
        struct confinement c = { .private_dir = spec->private_dir };
        size_t n = 0;
        int r;

        for (const char *const *p = spec->extra_reads; p && *p && n < READS_MAX - 2; p++)
                paths[n++] = *p;
        paths[n] = spec->root;
        c.program = node ? find_node(config, arena) : spec->entry;
        c.entry = node ? spec->entry : NULL;
        r = files_own_dir(op, policy, spec->private_dir, spec->plugin_id, &c.uid, err);
        if (r >= 0 && policy)
                r = files_for_reading(op, policy, c.uid, paths, spec->copies, arena, &c.reads, err);
        if (r < 0)
                return r;
        direct[0] = c.program;
        direct[1] = c.entry;
        *ret_path = policy ? policy->trampoline : c.program;
        *ret_argv = policy ? confine_argv(policy, &c, spec->probes, arena) : direct;
        return 0;
}

int worker_prepare(const struct op *op, struct worker *w, const struct worker_spec *spec,
                   struct err *err)
{
        const char *const *argv;
        const char *path;
        struct arena arena;
        int r;

        arena_init(&arena);
        r = plugin_host_command(op, w->config, spec, &arena, &path, &argv, err);
        if (r >= 0) {
                w->program = xstrdup(path);
                w->argv = xstrv_copy(argv);
        }
        arena_done(&arena);
        return r;
}

static int spawn(struct worker *w, int in, int out, int errors, struct err *err)
{
        struct op patient = { .deadline_ms = OP_NO_DEADLINE };
        uid_t uid;
        int r = files_own_dir(&patient, w->config->policy, w->private_dir, w->id, &uid, err);

        if (r < 0)
                return r;
        return proc_spawn(&(struct proc_spec){ .path = w->program,
                                               .argv = (const char *const *)w->argv,
                                               .env = (const char *const *)w->env,
                                               .cwd = w->private_dir,
                                               .fd_in = in,
                                               .fd_out = out,
                                               .fd_err = errors,
                                               .new_session = true },
                          &w->proc, err);
}

void worker_process_forget(struct worker *w)
{
        cleanup_fd(&w->in_fd);
        cleanup_fd(&w->out_fd);
        cleanup_fd(&w->err_fd);
        w->in_fd = w->out_fd = w->err_fd = -1;
        proc_done(&w->proc);
        ndjson_done(&w->lines);
        ndjson_done(&w->err_lines);
        pthread_mutex_lock(&w->lock);
        buf_done(&w->out);
        w->out = (struct buf){ .max = WORKER_OUT_MAX };
        w->out_sent = 0;
        json_decref(w->methods);
        w->methods = NULL;
        pthread_mutex_unlock(&w->lock);
}

int worker_process_start(struct worker *w, struct err *err)
{
        CLEAN(cleanup_fd) int in = -1, out = -1, errors = -1;
        int r;

        w->out_eof = w->err_eof = w->initialized = w->shutdown_answered = false;
        w->shutdown_id = w->eof_ms = 0;
        w->failure[0] = '\0';
        w->read_again_ms = 0;
        buf_clear(&w->stderr_tail);
        ndjson_init(&w->lines, WORKER_LINE_MAX, rpc_take_line, w);
        ndjson_init(&w->err_lines, WORKER_STDERR_LINE, worker_take_stderr, w);
        r = make_pipe(&in, &w->in_fd, err);
        if (r >= 0)
                r = make_pipe(&w->out_fd, &out, err);
        if (r >= 0)
                r = make_pipe(&w->err_fd, &errors, err);
        if (r >= 0)
                r = spawn(w, in, out, errors, err);
        if (r < 0)
                return r;
        set_nonblocking(w->in_fd);
        set_nonblocking(w->out_fd);
        set_nonblocking(w->err_fd);
        pthread_mutex_lock(&w->lock);
        w->view.pid = w->proc.pid;
        pthread_mutex_unlock(&w->lock);
        w->initialize_id = rpc_send_own(w, "initialize", w->initialize);
        return 0;
}

/* Moving bytes */

void worker_send(struct worker *w)
{
        pthread_mutex_lock(&w->lock);
        while (w->out.len > w->out_sent) {
                ssize_t n = write(w->in_fd, w->out.data + w->out_sent, w->out.len - w->out_sent);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        break; /* full, or the process is going: its end will be noticed */
                w->out_sent += (size_t)n;
        }
        if (w->out_sent == w->out.len) {
                buf_done(&w->out); /* the bytes that were sent may be secret, and large */
                w->out = (struct buf){ .max = WORKER_OUT_MAX };
                w->out_sent = 0;
        }
        if (buf_failed(&w->out))
                worker_fail(w, "the worker does not read its input");
        pthread_mutex_unlock(&w->lock);
}

bool worker_has_output(struct worker *w)
{
        bool has;

        pthread_mutex_lock(&w->lock);
        has = w->out.len > w->out_sent;
        pthread_mutex_unlock(&w->lock);
        return has;
}

bool worker_receive(struct worker *w, int fd, struct ndjson *lines, bool *eof)
{
        static _Thread_local char bytes[READ_SIZE];
        CLEAN(err_done) struct err err = { 0 };
        ssize_t n = read(fd, bytes, sizeof(bytes));

        if (n < 0)
                return errno == EINTR;
        *eof = n == 0;
        if (n > 0 && ndjson_feed(lines, bytes, (size_t)n, &err) < 0) {
                if (lines == &w->lines) {
                        worker_fail(w, "%s", err.msg);
                        return false;
                }
                ndjson_done(lines); /* of standard error the rest of a long line is dropped */
                ndjson_init(lines, WORKER_STDERR_LINE, worker_take_stderr, w);
        }
        return n > 0;
}

/* The end */

void worker_signal(struct worker *w, int signal)
{
        if (w->proc.pidfd >= 0)
                (void)proc_kill(&w->proc, signal, NULL);
}

void worker_read_rest(struct worker *w)
{
        while (!w->out_eof && worker_receive(w, w->out_fd, &w->lines, &w->out_eof))
                ;
        while (!w->err_eof && worker_receive(w, w->err_fd, &w->err_lines, &w->err_eof))
                ;
}

/* The process and whatever it started. It is our child until it is waited for, so no other process
 * can have its number. */
void worker_bury(struct worker *w, struct proc_status *ret)
{
        struct op patient = { .deadline_ms = OP_NO_DEADLINE };

        *ret = (struct proc_status){ .exit_code = -1 };
        (void)kill(-w->proc.pid, SIGKILL);
        worker_signal(w, SIGKILL);
        (void)proc_wait(&patient, &w->proc, ret, NULL);
}

void worker_describe_end(struct worker *w, const struct proc_status *status, char *ret, size_t size)
{
        char code[16] = "null";
        char text[1024];
        const char *name = status->signal ? sigabbrev_np(status->signal) : NULL;

        if (!status->signal)
                snprintf(code, sizeof(code), "%d", status->exit_code);
        snprintf(text, sizeof(text), "Worker process exited (code=%s, signal=%s%s)", code,
                 name ? "SIG" : "", name ? name : "null");
        worker_explain(w, text, ret, size);
}
