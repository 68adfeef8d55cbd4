/* What the tunnel tells the host: bytes that were read from its sockets, credit, ends, and new
 * connections. One frame per connection and round, so that connections share the link evenly. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "berth-box/tunnel.h"

enum said { SAID_ALL, SAID_SOME, SAID_NO_ROOM };

static void say_frame(struct conn *c, const struct tunnel_conn *k, struct tunnel_frame f)
{
        f.channel = k->channel;
        tunnel_frame_write(&c->out, &f);
}

/* The bytes in the ring are those that the reader has not taken. */
static void say_window(struct conn *c, struct tunnel_conn *k)
{
        uint64_t limit = k->got - k->ring_len + TUNNEL_RING;

        if (k->end_got || limit - k->told_limit < TUNNEL_RING / 2)
                return;
        k->told_limit = limit;
        say_frame(c, k, (struct tunnel_frame){ .type = FRAME_WINDOW, .limit = limit });
}

static void say_end(struct box *b, struct conn *c, struct tunnel_conn *k)
{
        say_frame(c, k, (struct tunnel_frame){ .type = FRAME_END, .offset = k->sent });
        k->end_sent = true;
        tunnel_close_if_over(b, k);
}

/* One frame of bytes, read straight into the buffer. */
static enum said say_bytes(struct box *b, struct conn *c, struct tunnel_conn *k)
{
        size_t want = (size_t)MIN(k->send_limit - k->sent, (uint64_t)TUNNEL_BYTES_MAX);
        struct frame_out f;
        ssize_t n;

        frame_begin(&f, &c->out, FRAME_BYTES, k->channel);
        frame_put_u64(&f, k->sent);
        char *at = buf_reserve(&c->out, want);
        do
                n = at ? recv(k->fd, at, want, 0) : -1;
        while (n < 0 && errno == EINTR);
        if (n > 0) {
                buf_grew(&c->out, (size_t)n);
                frame_end(&f);
                k->sent += (uint64_t)n;
                tunnel_touch(b, k);
                return SAID_SOME;
        }
        c->out.len = f.start;
        k->readable = false;
        if (n == 0)
                say_end(b, c, k);
        else if (errno != EAGAIN)
                tunnel_lose(b, k, TUNNEL_RESET_PEER);
        return SAID_ALL;
}

static bool may_read(const struct tunnel_conn *k)
{
        return k->state == TUNNEL_OPEN && k->readable && !k->end_sent && k->sent < k->send_limit;
}

static enum said say_conn(struct box *b, struct conn *c, struct tunnel_conn *k)
{
        enum said said = SAID_ALL;

        if (conn_room(c) < BOX_OUT_RESERVE)
                return SAID_NO_ROOM;
        if (k->state == TUNNEL_OPEN)
                say_window(c, k);
        if (may_read(k)) {
                if (conn_room(c) < FRAME_HEADER + FRAME_MAX_PAYLOAD + BOX_OUT_RESERVE)
                        return SAID_NO_ROOM;
                said = say_bytes(b, c, k);
        }
        if (k->state == TUNNEL_GONE) {
                say_frame(c, k, (struct tunnel_frame){ .type = FRAME_RESET, .reason = k->reason });
                tunnel_release(b, k);
        }
        return said;
}

/* Accepting */

static struct tunnel_conn *free_slot(struct box_tunnel *t, const struct tunnel_listener *l)
{
        struct tunnel_conn *found = NULL;
        int of_proxy = 0;

        for (int i = 0; i < TUNNEL_MAX_CONNS; i++) {
                struct tunnel_conn *k = &t->conns[i];

                if (k->state == TUNNEL_FREE)
                        found = found ? found : k;
                else
                        of_proxy += k->listener->kind == TUNNEL_PROXY;
        }
        return l->kind == TUNNEL_PROXY && of_proxy >= TUNNEL_PROXY_CONNS ? NULL : found;
}

static void offer_conn(struct box *b, struct conn *c, struct tunnel_listener *l,
                       struct tunnel_conn *k, int fd)
{
        struct box_tunnel *t = b->tunnel;
        struct tunnel_frame f = { .type = FRAME_OPEN, .limit = TUNNEL_RING };
        int on = 1;

        if (box_watch(b, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, EV_TUNNEL,
                      (int)(k - t->conns)) < 0) {
                close(fd);
                return;
        }
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        *k = (struct tunnel_conn){ .state = TUNNEL_OFFERED,
                                   .fd = fd,
                                   .listener = l,
                                   .channel = t->next_channel++,
                                   .deadline = b->now + TUNNEL_ACCEPT_MS,
                                   .told_limit = TUNNEL_RING };
        t->n_conns++;
        memcpy(f.id, l->id, FRAME_UUID);
        say_frame(c, k, f);
}

/* False when a connection that could be let in may still wait. */
static bool accept_from(struct box *b, struct conn *c, struct tunnel_listener *l)
{
        for (int i = 0; i < TUNNEL_ACCEPTS; i++) {
                struct tunnel_conn *k = free_slot(b->tunnel, l);
                int fd;

                if (!k)
                        return true; /* the next one that ends makes room */
                if (conn_room(c) < BOX_OUT_RESERVE)
                        return false;
                /* cppcheck-suppress nullPointer */
                fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
                if (fd >= 0) {
                        offer_conn(b, c, l, k, fd);
                } else if (errno == EAGAIN) {
                        l->ready = false;
                        return true;
                } else if (errno != EINTR && errno != ECONNABORTED) {
                        b->tunnel->retry_at = b->now + TUNNEL_RETRY_MS;
                        return true;
                }
        }
        return false;
}

static bool accept_all(struct box *b, struct conn *c)
{
        bool all = true;

        if (b->tunnel->retry_at || b->stopping)
                return true;
        for (int i = 0; i < TUNNEL_MAX_LISTENERS; i++) {
                struct tunnel_listener *l = &b->tunnel->listeners[i];

                if (l->used && l->claimed && l->ready && !accept_from(b, c, l))
                        all = false;
        }
        return all;
}

bool tunnel_say(struct box *b, struct conn *c)
{
        struct box_tunnel *t = b->tunnel;

        if (!t)
                return true;
        /* First, because open connections may have something to say for ever; and in the end, for
         * new ones that take the places of connections that have ended meanwhile. */
        (void)accept_all(b, c);
        bool more = t->n_conns > 0;
        while (more) {
                more = false;
                for (int i = 0; i < TUNNEL_MAX_CONNS; i++) {
                        int at = (t->say_next + i) % TUNNEL_MAX_CONNS;
                        enum said said;

                        if (t->conns[at].state == TUNNEL_FREE)
                                continue;
                        said = say_conn(b, c, &t->conns[at]);
                        if (said == SAID_NO_ROOM) {
                                t->say_next = at;
                                return false;
                        }
                        more = more || said == SAID_SOME;
                }
        }
        return accept_all(b, c);
}
