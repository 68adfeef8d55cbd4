/* Runs a program with its input, output and deadline, and kills its session at the end. */
#define _GNU_SOURCE
#include "rt/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/utf8.h"

#define ARGS_MAX 128

struct run {
        const struct tool *tool;
        struct proc proc;
        int out, err, events; /* our ends, and what wakes us */
        struct buf line;
};

static int make_pipe(int *ret_ours, int *ret_theirs, struct err *err)
{
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return err_sys(err, ERR_INTERNAL, errno, "pipe");
        *ret_ours = fds[0];
        *ret_theirs = fds[1];
        if (fcntl(fds[0], F_SETFL, O_NONBLOCK) < 0)
                return err_sys(err, ERR_INTERNAL, errno, "pipe");
        return 0;
}

static int tool_watch(struct run *run, int fd, struct err *err)
{
        struct epoll_event e = { .events = EPOLLIN, .data.fd = fd };

        if (epoll_ctl(run->events, EPOLL_CTL_ADD, fd, &e) < 0)
                return err_sys(err, ERR_INTERNAL, errno, "epoll");
        return 0;
}

/* The same by way of our own program, which becomes another user first. */
static int make_argv_as(const struct tool *tool, const char *uid, const char **argv,
                        struct err *err)
{
        size_t n = 0;

        argv[n++] = BECOME_TRAMPOLINE;
        argv[n++] = uid;
        for (const char *const *a = tool->argv; *a; a++) {
                if (n + 1 >= ARGS_MAX)
                        return err_set(err, ERR_INTERNAL, "too many arguments for %s", tool->path);
                argv[n++] = *a;
        }
        argv[n] = NULL;
        return 0;
}

static int tool_start(struct run *run, struct err *err)
{
        const struct become *as = run->tool->as;
        const char *argv[ARGS_MAX];
        char uid[32];
        CLEAN(cleanup_fd) int out = -1;
        CLEAN(cleanup_fd) int errors = -1;
        int r = make_pipe(&run->out, &out, err);

        if (r >= 0)
                r = make_pipe(&run->err, &errors, err);
        if (as)
                snprintf(uid, sizeof(uid), "--uid=%u", (unsigned)as->uid);
        if (r >= 0 && as)
                r = make_argv_as(run->tool, uid, argv, err);
        if (r < 0)
                return r;
        r = proc_spawn(
                &(struct proc_spec){ .path = as ? as->trampoline : run->tool->path,
                                     .argv = as ? argv : run->tool->argv,
                                     .env = run->tool->env,
                                     .cwd = run->tool->cwd,
                                     .cwd_fd = run->tool->cwd_fd,
                                     .fd_in = run->tool->in_fd > 0 ? run->tool->in_fd : -1,
                                     .fd_out = run->tool->out_fd > 0 ? run->tool->out_fd : out,
                                     .fd_err = errors,
                                     .new_session = true },
                &run->proc, err);
        if (r < 0)
                return r;
        run->events = epoll_create1(EPOLL_CLOEXEC);
        if (run->events < 0)
                return err_sys(err, ERR_INTERNAL, errno, "epoll");
        r = tool_watch(run, run->proc.pidfd, err);
        if (r >= 0)
                r = tool_watch(run, run->out, err);
        return r < 0 ? r : tool_watch(run, run->err, err);
}

/* Lines may be cut, but what is passed on is text. */
static void say_line(struct run *run)
{
        CLEAN(buf_done) struct buf clean = BUF_INIT;
        const char *s = buf_str(&run->line);
        size_t n = run->line.len, len;

        for (; n > 0; s += len, n -= len) {
                if (!utf8_next(s, n, &len, NULL))
                        buf_puts(&clean, UTF8_REPLACEMENT);
                else if (len > 1 || (unsigned char)*s >= ' ')
                        buf_append(&clean, s, len);
        }
        if (clean.len > 0 && run->tool->line)
                run->tool->line(run->tool->ctx, buf_str(&clean));
        buf_clear(&run->line);
}

static void take_errors(struct run *run, const char *data, size_t len)
{
        for (; len > 0; data++, len--) {
                if (*data == '\n')
                        say_line(run);
                else if (run->line.len < TOOL_LINE_MAX)
                        buf_putc(&run->line, *data);
        }
}

/* Read what is there. 1: more may come, 0: the end. */
static int tool_drain(struct run *run, int *fd, struct err *err)
{
        char chunk[16384];
        ssize_t n;

        while (*fd >= 0 && (n = read(*fd, chunk, sizeof(chunk))) != 0) {
                if (n < 0)
                        return errno == EAGAIN || errno == EINTR
                                       ? 1
                                       : err_sys(err, ERR_IO, errno, "read from %s",
                                                 run->tool->path);
                if (fd == &run->err) {
                        take_errors(run, chunk, (size_t)n);
                        continue;
                }
                buf_append(run->tool->out, chunk, (size_t)n);
                if (buf_failed(run->tool->out))
                        return err_set(err, ERR_TOO_LARGE, "it printed too much");
        }
        cleanup_fd(fd); /* leaves the epoll set by itself */
        *fd = -1;
        return 0;
}

/* Until the program itself has ended. A process it left behind may hold the pipes; that process is
 * not waited for. */
static int tool_follow(const struct op *op, struct run *run, struct err *err)
{
        for (;;) {
                int r = op_wait_fd(op, run->events, POLLIN, -1, err);
                bool ended;

                if (r < 0)
                        return r;
                ended = poll(&(struct pollfd){ .fd = run->proc.pidfd, .events = POLLIN }, 1, 0) > 0;
                r = tool_drain(run, &run->out, err);
                if (r >= 0)
                        r = tool_drain(run, &run->err, err);
                if (r < 0 || ended)
                        return r;
        }
}

/* The leader is still there, if only as a zombie, so no other process has the number of its
 * session. */
static int tool_end(const struct op *op, struct run *run, struct proc_status *ret, struct err *err)
{
        struct op shield = op_shield(op, 10000);

        if (run->proc.pid <= 0)
                return 0;
        (void)kill(-run->proc.pid, SIGKILL);
        (void)kill(run->proc.pid, SIGKILL);
        return proc_wait(&shield, &run->proc, ret, err);
}

int tool_run(const struct op *op, const struct tool *tool, struct proc_status *ret, struct err *err)
{
        struct run run = { .tool = tool, .proc = PROC_INIT, .out = -1, .err = -1, .events = -1 };
        struct op limited = *op;
        int64_t own = clock_mono_ms() + tool->limit_ms;

        limited.deadline_ms = MIN(op->deadline_ms, own);
        int r = tool_start(&run, err);
        if (r >= 0)
                r = tool_follow(&limited, &run, err);
        if (r == ERR_TIMEOUT && own <= op->deadline_ms)
                r = err_set(err, ERR_TIMEOUT, "it took longer than %lld ms",
                            (long long)tool->limit_ms);
        if (tool_end(op, &run, ret, r < 0 ? NULL : err) < 0 && r >= 0)
                r = ERR_INTERNAL;
        if (run.line.len > 0)
                say_line(&run);
        buf_done(&run.line);
        cleanup_fd(&run.out);
        cleanup_fd(&run.err);
        cleanup_fd(&run.events);
        proc_done(&run.proc);
        return r < 0 ? r : 0;
}
