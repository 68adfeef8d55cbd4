/* The tunnel: connections made to loopback addresses beside the work, served by the host (section 8
 * of the protocol).
 *
 * From the socket to the host nothing is kept: bytes are read straight into the link's output
 * buffer, as far as there is room and the host gave credit (tunnel_say.c). From the host to the
 * socket there is one ring per connection, as large as the credit that the host was given, so a
 * frame always finds room and a slow reader does not hold up the others.
 *
 * Sockets are watched edge-triggered: an event sets `readable` or `writable`, EAGAIN clears it.
 * Connections are accepted only where they can be offered to a host, so without one, or past the
 * limit, new connections wait in the kernel's queue.
 *
 * Nothing here exists until the first LISTEN or CONNECT: the tables and rings are one mapping each.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "berth-box/tunnel.h"

#define BACKLOG 1024

static void *map_memory(size_t size)
{
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        return p == MAP_FAILED ? NULL : p;
}

/* The tables; false when there is no memory. */
static bool tunnel_make_tables(struct box *b)
{
        struct box_tunnel *t = b->tunnel;

        if (t)
                return true;
        t = map_memory(sizeof(*t));
        if (!t)
                return false;
        t->rings = map_memory(TUNNEL_MAX_CONNS * TUNNEL_RING);
        if (!t->rings) {
                (void)munmap(t, sizeof(*t));
                return false;
        }
        t->next_channel = 1;
        t->next_from_host = TUNNEL_FROM_HOST | 1;
        b->tunnel = t;
        return true;
}

static char *tunnel_ring(struct box_tunnel *t, const struct tunnel_conn *k)
{
        return t->rings + (size_t)(k - t->conns) * TUNNEL_RING;
}

void tunnel_touch(struct box *b, struct tunnel_conn *k)
{
        k->deadline = k->listener->idle_ms ? b->now + k->listener->idle_ms : 0;
}

/* Closing */

static void close_socket(struct box *b, struct tunnel_conn *k, bool reset)
{
        struct linger now = { .l_onoff = 1 };

        service_end(k);
        if (k->fd < 0)
                return;
        if (reset)
                (void)setsockopt(k->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        close(take_fd(&k->fd));
        /* Pages that a slow reader made us use. */
        if (k->got > 0)
                (void)madvise(tunnel_ring(b->tunnel, k), TUNNEL_RING, MADV_DONTNEED);
}

void tunnel_release(struct box *b, struct tunnel_conn *k)
{
        close_socket(b, k, true);
        k->state = TUNNEL_FREE;
        b->tunnel->n_conns--;
}

void tunnel_lose(struct box *b, struct tunnel_conn *k, uint8_t reason)
{
        close_socket(b, k, true);
        k->state = TUNNEL_GONE;
        k->reason = reason;
        k->deadline = 0;
}

void tunnel_close_if_over(struct box *b, struct tunnel_conn *k)
{
        if (k->state != TUNNEL_OPEN || !k->end_sent || !k->shut)
                return;
        close_socket(b, k, false);
        tunnel_release(b, k);
}

/* From the host to the socket */

static ssize_t push_bytes(struct box *b, struct tunnel_conn *k, const char *p, size_t len)
{
        ssize_t n;

        if (!k->writable)
                return 0;
        do
                n = send(k->fd, p, len, MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN) {
                k->writable = false;
                return 0;
        }
        if (n < 0)
                tunnel_lose(b, k, TUNNEL_RESET_PEER);
        else if ((size_t)n < len)
                k->writable = false;
        return n;
}

static void write_ring(struct box *b, struct tunnel_conn *k)
{
        const char *ring = tunnel_ring(b->tunnel, k);

        while (k->state == TUNNEL_OPEN && k->ring_len > 0) {
                size_t run = MIN(k->ring_len, TUNNEL_RING - k->ring_head);
                ssize_t n = push_bytes(b, k, ring + k->ring_head, run);

                if (n <= 0)
                        return;
                k->ring_head = (k->ring_head + (size_t)n) % TUNNEL_RING;
                k->ring_len -= (size_t)n;
                tunnel_touch(b, k);
        }
        if (k->state != TUNNEL_OPEN)
                return;
        k->ring_head = 0;
        if (k->end_got && !k->shut) {
                (void)shutdown(k->fd, SHUT_WR);
                k->shut = true;
                tunnel_close_if_over(b, k);
        }
}

static int take_bytes(struct box *b, struct tunnel_conn *k, const struct tunnel_frame *f,
                      struct err *err)
{
        ssize_t n = 0;

        if (k->state != TUNNEL_OPEN || k->end_got || f->offset != k->got ||
            f->data.len > k->told_limit - k->got)
                return err_set(err, BOX_ERR_FRAME,
                               "BYTES with a gap, past their end or past their credit");
        k->got += f->data.len;
        tunnel_touch(b, k);
        if (k->ring_len == 0)
                n = push_bytes(b, k, f->data.p, f->data.len);
        if (n >= 0 && (size_t)n < f->data.len) {
                const char *p = f->data.p + n;
                size_t len = f->data.len - (size_t)n;
                size_t at = (k->ring_head + k->ring_len) % TUNNEL_RING;
                size_t run = MIN(len, TUNNEL_RING - at);
                char *ring = tunnel_ring(b->tunnel, k);

                memcpy(ring + at, p, run);
                memcpy(ring, p + run, len - run);
                k->ring_len += len;
        }
        return 0;
}

static int conn_frame(struct box *b, struct tunnel_conn *k, const struct tunnel_frame *f,
                      struct err *err)
{
        switch (f->type) {
        case FRAME_ACCEPT:
                if (k->state != TUNNEL_OFFERED)
                        return err_set(err, BOX_ERR_FRAME, "ACCEPT for a connection that is open");
                k->state = TUNNEL_OPEN;
                k->send_limit = f->limit;
                tunnel_touch(b, k);
                return 0;
        case FRAME_BYTES:
                return take_bytes(b, k, f, err);
        case FRAME_WINDOW:
                if (k->state != TUNNEL_OPEN || f->limit < k->send_limit)
                        return err_set(err, BOX_ERR_FRAME, "WINDOW takes credit back");
                k->send_limit = f->limit;
                return 0;
        case FRAME_END:
                if (k->state != TUNNEL_OPEN || k->end_got || f->offset != k->got)
                        return err_set(err, BOX_ERR_FRAME, "END twice, or not where the bytes end");
                k->end_got = true;
                write_ring(b, k);
                return 0;
        case FRAME_RESET:
                tunnel_release(b, k);
                return 0;
        default:
                return err_set(err, BOX_ERR_FRAME, "a frame of the tunnel that is not for a box");
        }
}

/* Listening */

static struct tunnel_listener *find_listener(struct box_tunnel *t, const uint8_t id[FRAME_UUID])
{
        for (int i = 0; i < TUNNEL_MAX_LISTENERS; i++)
                if (t->listeners[i].used && memcmp(t->listeners[i].id, id, FRAME_UUID) == 0)
                        return &t->listeners[i];
        return NULL;
}

/* A socket on 127.0.0.1; its port in *port. Below 0 with errno set. */
static int listen_on_loopback(uint16_t *port)
{
        struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(*port) };
        socklen_t len = sizeof(at);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int on = 1, saved;

        if (fd < 0)
                return -1;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, BACKLOG) < 0 ||
            getsockname(fd, (struct sockaddr *)&at, &len) < 0) {
                saved = errno;
                close(fd);
                errno = saved;
                return -1;
        }
        *port = ntohs(at.sin_port);
        return fd;
}

static void say_listening(struct conn *c, const uint8_t id[FRAME_UUID], uint16_t port,
                          uint16_t code, const char *text)
{
        struct tunnel_frame f = { .type = FRAME_LISTENING, .port = port, .code = code };

        memcpy(f.id, id, FRAME_UUID);
        f.text = (struct frame_bytes){ text, strlen(text) };
        tunnel_frame_write(&c->out, &f);
}

static void listen_anew(struct box *b, struct conn *c, const struct tunnel_frame *f)
{
        struct tunnel_listener *l = NULL;
        uint16_t port = f->port;

        if (tunnel_make_tables(b))
                for (int i = TUNNEL_MAX_LISTENERS; i-- > 0;)
                        if (!b->tunnel->listeners[i].used)
                                l = &b->tunnel->listeners[i];
        if (!l) {
                say_listening(c, f->id, 0, BOX_ERR_FULL, "too many listeners");
                return;
        }
        int fd = listen_on_loopback(&port);
        if (fd < 0 || box_watch(b, fd, EPOLLIN | EPOLLET, EV_TUNNEL_LISTEN,
                                (int)(l - b->tunnel->listeners)) < 0) {
                say_listening(c, f->id, 0, errno == EADDRINUSE ? BOX_ERR_IN_USE : BOX_ERR_RESOURCES,
                              strerror(errno));
                if (fd >= 0)
                        close(fd);
                return;
        }
        *l = (struct tunnel_listener){ .used = true,
                                       .claimed = true,
                                       .kind = f->kind,
                                       .port = port,
                                       .idle_ms = f->idle_ms,
                                       .fd = fd };
        memcpy(l->id, f->id, FRAME_UUID);
        say_listening(c, f->id, port, 0, "");
}

static void on_listen(struct box *b, struct conn *c, const struct tunnel_frame *f)
{
        struct tunnel_listener *l = b->tunnel ? find_listener(b->tunnel, f->id) : NULL;

        if (!l) {
                listen_anew(b, c, f);
                return;
        }
        l->claimed = true;
        l->idle_ms = f->idle_ms;
        say_listening(c, f->id, l->port, 0, "");
}

static void stop_listening(struct box *b, struct tunnel_listener *l)
{
        for (int i = 0; i < TUNNEL_MAX_CONNS; i++) {
                struct tunnel_conn *k = &b->tunnel->conns[i];

                if (k->listener != l || k->state == TUNNEL_FREE)
                        continue;
                if (k->state != TUNNEL_GONE)
                        tunnel_lose(b, k, TUNNEL_RESET_UNLISTEN);
        }
        close(take_fd(&l->fd));
        *l = (struct tunnel_listener){ .fd = -1 };
}

static int connect_in_order(struct box *b, struct conn *c, const struct tunnel_frame *f,
                            struct err *err)
{
        if (!tunnel_make_tables(b))
                return err_set(err, BOX_ERR_RESOURCES, "no memory for connections");
        if (f->channel != b->tunnel->next_from_host)
                return err_set(err, BOX_ERR_FRAME, "CONNECT out of order");
        b->tunnel->next_from_host++;
        service_connect(b, c, f);
        return 0;
}

int tunnel_frame(struct box *b, struct conn *c, const struct frame_header *h, struct frame_in *in,
                 struct err *err)
{
        struct tunnel_listener *l;
        struct tunnel_conn *k;
        struct tunnel_frame f;

        if (tunnel_frame_read(h, in, &f, err) < 0)
                return BOX_ERR_FRAME;
        if (f.type == FRAME_LISTEN) {
                on_listen(b, c, &f);
                return 0;
        }
        if (f.type == FRAME_UNLISTEN) {
                l = b->tunnel ? find_listener(b->tunnel, f.id) : NULL;
                if (l)
                        stop_listening(b, l);
                return 0;
        }
        if (f.type == FRAME_CONNECT)
                return connect_in_order(b, c, &f, err);
        if (f.type == FRAME_LISTENING || f.type == FRAME_OPEN || !b->tunnel ||
            f.channel >= (f.channel & TUNNEL_FROM_HOST ? b->tunnel->next_from_host
                                                       : b->tunnel->next_channel))
                return err_set(err, BOX_ERR_FRAME,
                               "a frame for a connection that was never offered");
        /* Frames that the host sent before it heard of a connection's end mean nothing any more. */
        for (int i = 0; b->tunnel->n_conns > 0 && i < TUNNEL_MAX_CONNS; i++) {
                k = &b->tunnel->conns[i];
                if (k->state != TUNNEL_FREE && k->channel == f.channel)
                        return k->state == TUNNEL_GONE ? 0 : conn_frame(b, k, &f, err);
        }
        return 0;
}

/* Events and deadlines */

void tunnel_listener_event(struct box *b, uint32_t index)
{
        b->tunnel->listeners[index].ready = true;
}

void tunnel_event(struct box *b, uint32_t index, uint32_t events)
{
        struct tunnel_conn *k = &b->tunnel->conns[index];

        if (k->state != TUNNEL_OFFERED && k->state != TUNNEL_OPEN)
                return;
        if (events & EPOLLERR) {
                tunnel_lose(b, k, TUNNEL_RESET_PEER);
                return;
        }
        if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP))
                k->readable = true;
        if (events & EPOLLOUT) {
                k->writable = true;
                write_ring(b, k);
        }
}

void tunnel_turn(struct box *b, int64_t *nearest)
{
        struct box_tunnel *t = b->tunnel;

        if (!t)
                return;
        if (t->retry_at && b->now >= t->retry_at) {
                t->retry_at = 0;
                box_deadline(nearest, b->now);
        }
        box_deadline(nearest, t->retry_at);
        for (int i = 0; t->n_conns > 0 && i < TUNNEL_MAX_CONNS; i++) {
                struct tunnel_conn *k = &t->conns[i];

                if (k->state == TUNNEL_FREE || !k->deadline)
                        continue;
                if (b->now >= k->deadline) {
                        tunnel_lose(b, k, TUNNEL_RESET_IDLE);
                        box_deadline(nearest, b->now); /* another turn, to tell it */
                } else {
                        box_deadline(nearest, k->deadline);
                }
        }
}

void tunnel_detach(struct box *b)
{
        struct box_tunnel *t = b->tunnel;

        if (!t)
                return;
        for (int i = 0; i < TUNNEL_MAX_CONNS; i++)
                if (t->conns[i].state != TUNNEL_FREE)
                        tunnel_release(b, &t->conns[i]);
        for (int i = 0; i < TUNNEL_MAX_LISTENERS; i++)
                t->listeners[i].claimed = false;
        t->next_channel = 1;
        t->next_from_host = TUNNEL_FROM_HOST | 1;
}

void tunnel_close(struct box *b)
{
        struct box_tunnel *t = b->tunnel;

        if (!t)
                return;
        for (int i = 0; i < TUNNEL_MAX_LISTENERS; i++)
                if (t->listeners[i].used)
                        stop_listening(b, &t->listeners[i]);
        for (int i = 0; i < TUNNEL_MAX_CONNS; i++)
                service_end(&t->conns[i]);
}
