/* Connections: bytes in, bytes out.
 *
 * Both directions are bounded. A frame is only handled when the output buffer has room for any
 * answer to it (BOX_OUT_RESERVE), and reading stops while one waits; everything longer than an
 * answer (DATA, lists) is produced by say.c as room appears. So a host that does not read makes
 * the box stop listening to it, and nothing else.
 *
 * CONN_NEW may only say HELLO, and soon. CONN_HOST is the one host; a second one takes over only by
 * HELLO. CONN_CLOSING has been told an ERROR and is closed once that is written. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "berth-box/box.h"

static void conn_close(struct box *b, struct conn *c);

/* When all slots are taken, a connection that has not said HELLO yet is closed: the longest silent
 * one. */
static struct conn *find_slot(struct box *b)
{
        struct conn *oldest = NULL;

        for (int i = 0; i < BOX_MAX_CONNS; i++) {
                struct conn *c = &b->conns[i];

                if (c->state == CONN_FREE)
                        return c;
                if (c->state != CONN_HOST && (!oldest || c->deadline < oldest->deadline))
                        oldest = c;
        }
        if (oldest)
                conn_close(b, oldest);
        return oldest;
}

static void accept_one(struct box *b, int fd)
{
        struct ucred peer;
        socklen_t len = sizeof(peer);
        struct conn *c = NULL;

        /* From inside a sandbox, the users outside have no number, and their processes none either:
         * that is how they are known. The socket's directory keeps other users of the host out. */
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
            (b->sandbox ? peer.pid == 0 : peer.uid == 0 || peer.uid == geteuid()))
                c = find_slot(b);
        if (!c || box_watch(b, fd, EPOLLIN, EV_CONN, (int)(c - b->conns)) < 0) {
                close(fd);
                return;
        }
        c->state = CONN_NEW;
        c->fd = fd;
        c->events = EPOLLIN;
        c->deadline = b->now + BOX_HELLO_MS;
        c->in_len = c->out_sent = 0;
        c->list_at = -1;
        c->joining = false;
        c->out = (struct buf){ .data = c->out_store, .cap = BOX_OUT_SIZE + 1, .max = BOX_OUT_SIZE };
        buf_init(&c->joined, FRAME_MAX_JOINED);
}

/* A few at a time, so that a crowd at the door does not keep us from the work. */
void conn_accept(struct box *b)
{
        for (int i = 0; i < BOX_MAX_CONNS; i++) {
                /* cppcheck-suppress nullPointer */
                int fd = accept4(b->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

                if (fd < 0)
                        return;
                accept_one(b, fd);
        }
}

static void conn_close(struct box *b, struct conn *c)
{
        if (c->state == CONN_FREE)
                return;
        if (b->host == c) {
                host_detach_all(b);
                b->host = NULL;
        }
        close(c->fd);
        buf_done(&c->joined);
        c->state = CONN_FREE;
}

size_t conn_room(struct conn *c)
{
        /* Moving the rest to the front pays when there is less of it than room is gained. */
        if (c->out_sent > BOX_OUT_SIZE / 2) {
                buf_consume(&c->out, c->out_sent);
                c->out_sent = 0;
        }
        return c->out.max - c->out.len;
}

/* Write what there is; false when the connection is gone. */
static bool flush_conn(struct conn *c)
{
        while (c->out_sent < c->out.len) {
                ssize_t n = send(c->fd, c->out.data + c->out_sent, c->out.len - c->out_sent,
                                 MSG_NOSIGNAL);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return errno == EAGAIN;
                c->out_sent += (size_t)n;
        }
        buf_clear(&c->out);
        c->out_sent = 0;
        return true;
}

void conn_fail(struct box *b, struct conn *c, uint32_t channel, uint16_t code, const char *text)
{
        if (b->host == c) {
                host_detach_all(b);
                b->host = NULL;
        }
        say_error(c, channel, code, text);
        c->state = CONN_CLOSING;
        c->deadline = b->now + BOX_CLOSING_MS;
        c->in_len = 0;
        buf_done(&c->joined);
}

/* Parts are joined one payload at a time: frames of another channel do not come in between. */
static int join_part(struct conn *c, const struct frame_header *h, const char *payload,
                     struct err *err)
{
        if (c->joining && h->channel != c->join_channel)
                return err_set(err, BOX_ERR_FRAME, "a part of another payload came in between");
        if (h->type != FRAME_CONT && h->type != FRAME_START)
                return err_set(err, BOX_ERR_FRAME, "only START may come in parts");
        c->joining = true;
        c->join_channel = h->channel;
        buf_append(&c->joined, payload, h->len);
        if (buf_failed(&c->joined))
                return err_set(err, BOX_ERR_FRAME, "the parts of a payload are too long");
        return 0;
}

/* One complete frame: 0, or the code of an error that ends the connection. */
static int handle_frame(struct box *b, struct conn *c, const struct frame_header *h, char *payload,
                        struct err *err)
{
        int code;

        if (h->type == FRAME_CONT || c->joining) {
                if (c->state != CONN_HOST)
                        return err_set(err, BOX_ERR_FRAME, "HELLO comes first");
                code = join_part(c, h, payload, err);
                if (code || h->type == FRAME_CONT)
                        return code;
                code = host_frame(b, c, h, c->joined.data, c->joined.len, err);
                buf_wipe(&c->joined);
                c->joining = false;
                return code;
        }
        code = host_frame(b, c, h, payload, h->len, err);
        if (h->type == FRAME_START) /* it may carry secrets */
                explicit_bzero(payload, h->len);
        return code;
}

/* The next frame, `at` bytes into the input: its size, or 0 when it has to wait. */
static size_t next_frame(struct box *b, struct conn *c, size_t at)
{
        CLEAN(err_done) struct err err = { 0 };
        struct frame_header h;
        size_t left = c->in_len - at;
        int code, r = frame_parse_header(c->in + at, left, &h, &err);

        if (r < 0) {
                conn_fail(b, c, 0, BOX_ERR_FRAME, err.msg);
                return 0;
        }
        if (r == 0 || left < FRAME_HEADER + (size_t)h.len || c->list_at >= 0 ||
            conn_room(c) < BOX_OUT_RESERVE)
                return 0;
        code = handle_frame(b, c, &h, c->in + at + FRAME_HEADER, &err);
        if (code) {
                conn_fail(b, c, h.channel, (uint16_t)code, err.msg);
                return 0;
        }
        return FRAME_HEADER + (size_t)h.len;
}

static void handle_frames(struct box *b, struct conn *c)
{
        size_t at = 0, size;

        while ((c->state == CONN_NEW || c->state == CONN_HOST) && (size = next_frame(b, c, at)) > 0)
                at += size;
        if (at > 0 && at <= c->in_len) {
                memmove(c->in, c->in + at, c->in_len - at);
                c->in_len -= at;
                explicit_bzero(c->in + c->in_len, at); /* a START may have carried values */
        }
}

void conn_event(struct box *b, struct conn *c, uint32_t events)
{
        if (c->state == CONN_FREE)
                return;
        if (events & (EPOLLHUP | EPOLLERR) && c->state == CONN_CLOSING) {
                conn_close(b, c);
                return;
        }
        if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || c->state == CONN_CLOSING)
                return;
        if (c->in_len == sizeof(c->in)) {
                /* Full, with the host gone: what it sent last can still be handled. */
                handle_frames(b, c);
                if (c->in_len == sizeof(c->in) && events & (EPOLLHUP | EPOLLERR))
                        conn_close(b, c);
                return;
        }
        ssize_t n = recv(c->fd, c->in + c->in_len, sizeof(c->in) - c->in_len, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
                conn_close(b, c);
                return;
        }
        if (n > 0) {
                c->in_len += (size_t)n;
                handle_frames(b, c);
        }
}

void conn_handle_all(struct box *b)
{
        for (int i = 0; i < BOX_MAX_CONNS; i++)
                if (b->conns[i].state == CONN_NEW || b->conns[i].state == CONN_HOST)
                        handle_frames(b, &b->conns[i]);
}

static void tell_conn(struct box *b, struct conn *c, int64_t *nearest)
{
        bool all = c->state != CONN_HOST || say_pending(b, c);
        struct epoll_event e;
        struct frame_header h;

        if (!flush_conn(c)) {
                conn_close(b, c);
                return;
        }
        bool written = c->out.len == 0;
        if (written && c->state == CONN_CLOSING) {
                conn_close(b, c);
                return;
        }
        /* Is there a whole frame that only waited for room? */
        bool waits = c->state != CONN_CLOSING && c->in_len >= FRAME_HEADER &&
                     frame_parse_header(c->in, c->in_len, &h, NULL) > 0 &&
                     c->in_len >= FRAME_HEADER + (size_t)h.len;
        if (written && (!all || waits))
                box_deadline(nearest, b->now); /* there is room again: another turn at once */
        e.events = (written ? 0 : (uint32_t)EPOLLOUT) |
                   (c->state == CONN_CLOSING || c->in_len == sizeof(c->in) ? 0 : (uint32_t)EPOLLIN);
        e.data.u64 = (uint64_t)EV_CONN << 32 | (uint32_t)(c - b->conns);
        if (c->events != e.events && epoll_ctl(b->epoll_fd, EPOLL_CTL_MOD, c->fd, &e) == 0)
                c->events = e.events;
}

void conn_tell_all(struct box *b, int64_t *nearest)
{
        for (int i = 0; i < BOX_MAX_CONNS; i++) {
                struct conn *c = &b->conns[i];

                if (c->state != CONN_FREE)
                        tell_conn(b, c, nearest);
                if (c->state != CONN_NEW && c->state != CONN_CLOSING)
                        continue;
                if (b->now >= c->deadline)
                        conn_close(b, c);
                else
                        box_deadline(nearest, c->deadline);
        }
}

void conn_finish(struct box *b)
{
        struct conn *c = b->host;
        struct frame_out f;
        int64_t until = clock_mono_ms() + BOX_CLOSING_MS;

        if (!c)
                return;
        frame_begin(&f, &c->out, FRAME_STOPPED, 0);
        frame_end(&f);
        while (flush_conn(c) && c->out.len > 0) {
                struct pollfd p = { .fd = c->fd, .events = POLLOUT };
                int64_t left = until - clock_mono_ms();

                if (left <= 0 || poll(&p, 1, (int)left) <= 0)
                        return;
        }
}
