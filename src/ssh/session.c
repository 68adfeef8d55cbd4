/* Reads and writes the streams of one ssh process within its deadline. */
#define _GNU_SOURCE
#include "ssh/session.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "ssh/tied.h"

#define CHUNK 16384

static int session_watch(struct ssh_session *s, int fd, uint32_t events, int how, struct err *err)
{
        struct epoll_event e = { .events = events, .data.fd = fd };

        if (epoll_ctl(s->events, how, fd, &e) < 0)
                return err_sys(err, ERR_INTERNAL, errno, "epoll");
        return 0;
}

static void make_mark(struct ssh_session *s)
{
        unsigned char raw[12];
        char hex[2 * sizeof(raw) + 1];

        randombytes_buf(raw, sizeof(raw));
        (void)sodium_bin2hex(hex, sizeof(hex), raw, sizeof(raw));
        snprintf(s->mark, sizeof(s->mark), "berth:%s ", hex);
}

static int session_spawn(const char *trampoline, const char *const *argv, const char *const *env,
                         struct ssh_session *s, struct err *err)
{
        CLEAN(cleanup_fd) int theirs = -1;
        CLEAN(cleanup_fd) int errors = -1;
        int pair[2], fds[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return err_sys(err, ERR_BUSY, errno, "socketpair");
        s->fd = pair[0];
        theirs = pair[1];
        if (pipe2(fds, O_CLOEXEC) < 0)
                return err_sys(err, ERR_BUSY, errno, "pipe");
        s->err_fd = fds[0];
        errors = fds[1];
        if (fcntl(s->fd, F_SETFL, O_NONBLOCK) < 0 || fcntl(s->err_fd, F_SETFL, O_NONBLOCK) < 0)
                return err_sys(err, ERR_INTERNAL, errno, "fcntl");
        return tied_spawn(trampoline, false,
                          &(struct proc_spec){ .path = argv[0],
                                               .argv = argv,
                                               .env = env,
                                               .cwd = "/",
                                               .fd_in = theirs,
                                               .fd_out = theirs,
                                               .fd_err = errors,
                                               .new_session = true },
                          &s->proc, err);
}

int ssh_session_start(const char *trampoline, const char *const *argv, const char *const *env,
                      struct ssh_session *ret, struct err *err)
{
        *ret = SSH_SESSION_INIT;
        ret->in.max = SESSION_LINE_MAX + CHUNK;
        ret->errors.max = SESSION_BURST_MAX;
        ret->errors_max = SESSION_ERRORS_MAX;
        make_mark(ret);
        int r = session_spawn(trampoline, argv, env, ret, err);
        if (r < 0)
                return r;
        ret->events = epoll_create1(EPOLL_CLOEXEC);
        if (ret->events < 0)
                return err_sys(err, ERR_BUSY, errno, "epoll");
        r = session_watch(ret, ret->fd, EPOLLIN, EPOLL_CTL_ADD, err);
        if (r >= 0)
                r = session_watch(ret, ret->err_fd, EPOLLIN, EPOLL_CTL_ADD, err);
        return r < 0 ? r : session_watch(ret, ret->proc.pidfd, EPOLLIN, EPOLL_CTL_ADD, err);
}

void ssh_session_done(const struct op *op, struct ssh_session *s)
{
        cleanup_fd(&s->fd);
        tied_end(op, &s->proc);
        cleanup_fd(&s->err_fd);
        cleanup_fd(&s->events);
        free(s->line);
        buf_done(&s->in);
        buf_done(&s->errors);
        *s = SSH_SESSION_INIT;
}

/* Keep the beginning; the rest is read and dropped, or the host could hold us up. */
static void read_errors(struct ssh_session *s)
{
        char chunk[CHUNK];
        ssize_t n;

        for (int i = 0; s->err_fd >= 0 && i < 16; i++) {
                n = read(s->err_fd, chunk, sizeof(chunk));
                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return;
                if (n <= 0) {
                        cleanup_fd(&s->err_fd);
                        s->err_fd = -1;
                        return;
                }
                buf_append(&s->errors, chunk, MIN((size_t)n, s->errors_max - s->errors.len));
        }
}

/* 1: something came, 0: nothing now, ERR_NOT_FOUND: the end. */
static int read_input(struct ssh_session *s, struct err *err)
{
        ssize_t n = fd_read_some(s->fd, &s->in, CHUNK);

        if (n < 0 && errno == ENOBUFS)
                return err_set(err, ERR_PROVIDER, "the host sends lines without an end");
        if (n < 0 && errno == EAGAIN)
                return 0;
        return n <= 0 ? ERR_NOT_FOUND : 1;
}

static bool has_ended(const struct ssh_session *s)
{
        return poll(&(struct pollfd){ .fd = s->proc.pidfd, .events = POLLIN }, 1, 0) > 0;
}

static int session_reap(struct op *op, struct ssh_session *s, struct err *err)
{
        if (s->ended)
                return 0;
        read_errors(s);
        int r = proc_wait(op, &s->proc, &s->status, err);
        s->ended = r >= 0;
        return r;
}

/* One turn: wait until something happens, and read errors. */
static int session_turn(struct op *op, struct ssh_session *s, struct err *err)
{
        int r = op_wait_fd(op, s->events, POLLIN, -1, err);

        if (r >= 0)
                read_errors(s);
        return r;
}

int ssh_session_send(struct op *op, struct ssh_session *s, const void *data, size_t len,
                     struct err *err)
{
        const char *at = data;
        int r = session_watch(s, s->fd, EPOLLOUT, EPOLL_CTL_MOD, err);

        while (r >= 0 && len > 0) {
                ssize_t n = send(s->fd, at, len, MSG_NOSIGNAL);

                if (n >= 0) {
                        at += n;
                        len -= (size_t)n;
                } else if (errno == EPIPE || errno == ECONNRESET) {
                        break; /* it has ended, which the next line tells */
                } else if (errno != EAGAIN && errno != EINTR) {
                        r = err_sys(err, ERR_IO, errno, "write to ssh");
                } else {
                        r = session_turn(op, s, err);
                        if (r >= 0 && has_ended(s))
                                break;
                }
        }
        return r < 0 ? r : session_watch(s, s->fd, EPOLLIN, EPOLL_CTL_MOD, err);
}

/* A line of ours in what was read; the text before it is noise. */
static int take_line(struct ssh_session *s, size_t *ret_len, const char **ret, struct err *err)
{
        for (;;) {
                char *end = memchr(buf_str(&s->in), '\n', s->in.len);
                size_t len;

                if (!end)
                        break;
                len = (size_t)(end - s->in.data);
                if (len >= strlen(s->mark) && str_starts(s->in.data, s->mark)) {
                        *end = '\0';
                        *ret = s->in.data + strlen(s->mark);
                        *ret_len = len + 1;
                        return 1;
                }
                s->noise += len + 1;
                buf_consume(&s->in, len + 1);
        }
        if (s->in.len > SESSION_LINE_MAX) { /* not ours: ours are shorter */
                s->noise += s->in.len;
                buf_clear(&s->in);
        }
        if (s->noise > SESSION_NOISE_MAX)
                return err_set(err, ERR_PROVIDER,
                               "The host prints too much before it lets a command run. Silence "
                               "its start-up files for logins that are not interactive.");
        return 0;
}

int ssh_session_line(struct op *op, struct ssh_session *s, const char **ret, struct err *err)
{
        static const char nothing[] = "";
        const char *line = nothing;
        size_t len = 0;
        bool over;
        int r;

        for (;;) {
                r = take_line(s, &len, &line, err);
                if (r < 0)
                        return r;
                if (r > 0) {
                        /* Kept until the next call, which reads behind it. */
                        char *copy = xstrdup(line);

                        buf_consume(&s->in, len);
                        free(s->line);
                        s->line = copy;
                        *ret = copy;
                        return 0;
                }
                over = has_ended(s);
                r = read_input(s, err);
                if (r == ERR_NOT_FOUND || (r == 0 && over)) {
                        r = ssh_session_finish(op, s, NULL, err);
                        return r < 0 ? r : ERR_NOT_FOUND;
                }
                if (r == 0)
                        r = session_turn(op, s, err);
                if (r < 0)
                        return r;
        }
}

int ssh_session_begin_errors(struct op *op, struct ssh_session *s, struct err *err)
{
        const char *at;

        for (;;) {
                at = strstr(buf_str(&s->errors), s->mark);
                if (at && strchr(at, '\n'))
                        break;
                if (s->errors.len >= s->errors_max || s->err_fd < 0 || has_ended(s)) {
                        buf_clear(&s->errors);
                        return 0;
                }
                int r = op_wait_fd(op, s->err_fd, POLLIN, -1, err);

                if (r < 0)
                        return r;
                read_errors(s);
        }
        buf_consume(&s->errors, (size_t)(strchr(at, '\n') + 1 - s->errors.data));
        return 0;
}

int ssh_session_finish(struct op *op, struct ssh_session *s, struct buf *out, struct err *err)
{
        /* A process that it left behind may hold the other end; that process is not waited for. */
        for (;;) {
                bool over = s->ended || has_ended(s);
                int r;

                if (out)
                        buf_append(out, buf_str(&s->in), s->in.len);
                buf_clear(&s->in);
                if (out && buf_failed(out))
                        return err_set(err, ERR_TOO_LARGE, "the host prints too much");
                r = read_input(s, err);
                if (r == ERR_NOT_FOUND || (r == 0 && over))
                        break;
                if (r == 0)
                        r = session_turn(op, s, err);
                if (r < 0)
                        return r;
        }
        if (s->ended)
                return 0;
        /* Standard output is at its end; the errors come until the process is. */
        (void)epoll_ctl(s->events, EPOLL_CTL_DEL, s->fd, NULL);
        while (!has_ended(s)) {
                int r = session_turn(op, s, err);

                if (r < 0)
                        return r;
        }
        return session_reap(op, s, err);
}

/* Following */

struct feed {
        const char *at;
        size_t left;
        bool ended; /* our side is closed */
};

static int session_push(struct ssh_session *s, struct feed *f, struct err *err)
{
        while (f->left > 0) {
                ssize_t n = send(s->fd, f->at, f->left, MSG_NOSIGNAL);

                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return 0;
                if (n < 0) { /* the reader is gone */
                        f->left = 0;
                        break;
                }
                f->at += n;
                f->left -= (size_t)n;
        }
        if (!f->ended) {
                f->ended = true;
                (void)shutdown(s->fd, SHUT_WR);
                return session_watch(s, s->fd, EPOLLIN, EPOLL_CTL_MOD, err);
        }
        return 0;
}

static void hand_on(int *fd, bool is_stderr, ssh_output_fn fn, void *ctx)
{
        char chunk[CHUNK];

        for (int i = 0; *fd >= 0 && i < 8; i++) {
                ssize_t n = read(*fd, chunk, sizeof(chunk));

                if (n < 0 && (errno == EAGAIN || errno == EINTR))
                        return;
                if (n <= 0) {
                        cleanup_fd(fd); /* leaves the epoll set by itself */
                        *fd = -1;
                        return;
                }
                fn(ctx, is_stderr, chunk, (size_t)n);
        }
}

/* Whether what is left of a process that ended can be read still. */
static bool has_input(const struct ssh_session *s)
{
        struct pollfd fds[] = { { .fd = s->fd, .events = POLLIN },
                                { .fd = s->err_fd, .events = POLLIN } };

        return poll(fds, 2, 0) > 0 && ((fds[0].revents | fds[1].revents) & POLLIN);
}

int ssh_session_follow(struct op *op, struct ssh_session *s, const char *data, size_t len,
                       ssh_output_fn fn, void *ctx, struct err *err)
{
        struct feed f = { .at = data, .left = len };
        int r = s->fd < 0 ? 0 : session_watch(s, s->fd, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD, err);

        if (s->in.len > 0)
                fn(ctx, false, s->in.data, s->in.len);
        if (s->errors.len > 0)
                fn(ctx, true, s->errors.data, s->errors.len);
        buf_clear(&s->in);
        buf_clear(&s->errors);
        while (r >= 0) {
                bool over = has_ended(s);

                if (s->fd >= 0 && !f.ended)
                        r = session_push(s, &f, err);
                hand_on(&s->fd, false, fn, ctx);
                hand_on(&s->err_fd, true, fn, ctx);
                if (over && !has_input(s))
                        break;
                if (r >= 0 && !over)
                        r = op_wait_fd(op, s->events, POLLIN, -1, err);
        }
        return r < 0 ? r : session_reap(op, s, err);
}
