/* The server's life: accepting, deadlines, work that is put off to the end of a turn of the loop,
 * and the end. The timer runs only while some connection has a deadline, and the idle handle only
 * while something is due, so a server without connections never wakes. */
#define _GNU_SOURCE
#include "net/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "net/http_internal.h"
#include "net/sock_owner.h"

#define ACCEPT_BATCH 64 /* clients taken per turn, so that the others get theirs */
#define IDLE_TRIES   16 /* connections looked at to find one that may be closed for another */
/* The least time between two runs of the timer: a thousand deadlines are not a thousand wake-ups.
 */
#define TIMER_GRAIN_MS 20

static void on_accept(uv_poll_t *handle, int status, int events);

/* --- deferred work --- */

static void on_due(uv_idle_t *handle)
{
        struct http_server *s = handle->data;
        struct http_link now;

        /* Only what is due by now: what a handler adds meanwhile waits for the next turn. */
        link_init(&now);
        while (!link_is_empty(&s->due)) {
                struct http_link *l = s->due.next;

                link_remove(l);
                link_append(&now, l);
        }
        while (!link_is_empty(&now)) {
                struct http_conn *c = container_of(now.next, struct http_conn, due);

                link_remove(&c->due);
                http_conn_advance(c);
        }
        if (link_is_empty(&s->due))
                (void)uv_idle_stop(handle);
}

void http_conn_due(struct http_conn *c)
{
        struct http_server *s = c->server;

        if (c->running || c->phase == CONN_CLOSED || !link_is_empty(&c->due))
                return;
        link_append(&s->due, &c->due);
        (void)uv_idle_start(&s->due_idle, on_due);
}

void http_server_shed_answers(struct http_server *s, const struct http_conn *except)
{
        struct http_link *list = &s->deadlines[DEADLINE_WRITE];
        size_t over = s->answers > s->config.max_answers ? s->answers - s->config.max_answers : 0;

        for (struct http_link *l = list->next; l != list && over > 0; l = l->next) {
                struct http_conn *c = container_of(l, struct http_conn, deadline);

                if (c == except)
                        continue;
                over -= MIN(over, c->tail.len);
                c->broken = true;
                http_conn_due(c);
        }
}

/* --- deadlines --- */

static void on_timer(uv_timer_t *timer);

static void timer_start(struct http_server *s, uint64_t at)
{
        uint64_t now = uv_now(s->config.loop);

        if (s->closing || (uv_is_active((uv_handle_t *)&s->timer) && s->timer_at <= at))
                return;
        s->timer_at = at;
        (void)uv_timer_start(&s->timer, on_timer, at > now ? at - now : 0, 0);
}

void http_deadline_clear(struct http_conn *c)
{
        http_client_ended(c);
        link_remove(&c->deadline);
        c->deadline_kind = DEADLINE_NONE;
}

void http_deadline_set(struct http_conn *c, enum http_deadline kind)
{
        struct http_server *s = c->server;

        http_deadline_clear(c);
        c->deadline_kind = kind;
        c->deadline_at = uv_now(s->config.loop) + s->limits_ms[kind];
        link_append(&s->deadlines[kind], &c->deadline);
        http_client_began(c);
        timer_start(s, c->deadline_at);
}

static void on_timer(uv_timer_t *timer)
{
        struct http_server *s = timer->data;
        uint64_t now = uv_now(s->config.loop), next = UINT64_MAX;

        for (int kind = 0; kind < N_DEADLINES; kind++) {
                struct http_link *list = &s->deadlines[kind];

                while (!link_is_empty(list)) {
                        struct http_conn *c = container_of(list->next, struct http_conn, deadline);

                        if (c->deadline_at > now) {
                                next = MIN(next, c->deadline_at);
                                break;
                        }
                        http_deadline_clear(c);
                        http_conn_expired(c, (enum http_deadline)kind);
                }
        }
        if (next != UINT64_MAX)
                timer_start(s, MAX(next, now + TIMER_GRAIN_MS));
}

/* --- accepting --- */

static void fill_unix_peer(int fd, struct http_peer *ret)
{
        struct ucred cred;
        socklen_t len = sizeof(cred);

        *ret = (struct http_peer){ .is_unix = true, .uid = (uid_t)-1, .address = "unix" };
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0)
                ret->uid = cred.uid;
        http_client_name(&(struct sockaddr){ .sa_family = AF_UNIX }, ret->uid, ret->client,
                         sizeof(ret->client));
}

/* Limits are counted by the owner whether or not an owner is trusted. */
static void fill_tcp_peer(const struct http_server *s, int fd, const struct sockaddr_storage *from,
                          struct http_peer *ret)
{
        const struct in6_addr *v6 = &((const struct sockaddr_in6 *)from)->sin6_addr;
        uid_t owner = (uid_t)-1;

        *ret = (struct http_peer){ .uid = (uid_t)-1 };
        (void)sock_owner_of_peer(s->netlink_fd, fd, &owner);
        if (s->config.find_owner)
                ret->uid = owner;
        if (from->ss_family == AF_INET)
                (void)inet_ntop(AF_INET, &((const struct sockaddr_in *)from)->sin_addr,
                                ret->address, sizeof(ret->address));
        else if (from->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(v6))
                (void)inet_ntop(AF_INET, &v6->s6_addr[12], ret->address, sizeof(ret->address));
        else if (from->ss_family == AF_INET6)
                (void)inet_ntop(AF_INET6, v6, ret->address, sizeof(ret->address));
        http_client_name((const struct sockaddr *)from, owner, ret->client, sizeof(ret->client));
}

/* Answers are written whole, so Nagle would only delay them. Keep-alive probes find clients that
 * vanished without a word while they wait for a long answer. */
static void tune_tcp(int fd)
{
        const int on = 1, idle_s = 60, interval_s = 15, count = 4;

        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
        (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

/* Which connections may be closed to make room: all, those of a carrier, or those of a client. */
struct idle_of {
        const void *via;
        const char *client;
};

/* Close the connection that has been idle longest, so that no client can shut the others out by
 * holding connections open. One that has just sent something is not idle, only not read yet. */
static bool close_an_idle_one(struct http_server *s, enum http_deadline kind, struct idle_of of)
{
        struct http_link *list = &s->deadlines[kind];
        int tries = IDLE_TRIES;

        for (struct http_link *l = list->next; l != list && tries > 0; l = l->next) {
                struct http_conn *c = container_of(l, struct http_conn, deadline);

                if ((of.via && c->peer.via != of.via) ||
                    (of.client && !streq(c->peer.client, of.client)))
                        continue;
                if (!stream_has_input(c->stream)) {
                        http_conn_close(c);
                        return true;
                }
                tries--;
        }
        return false;
}

/* Room for one more of this client, among its own and among all. Connections that are being told
 * that there are too many take a place as well, so their number is bounded too. */
static enum http_admission find_room(struct http_server *s, unsigned limit, const char *client)
{
        unsigned own = http_client_connections(s, client);

        if (own >= s->config.max_per_client &&
            !close_an_idle_one(s, DEADLINE_IDLE, (struct idle_of){ .client = client }))
                return own - s->config.max_per_client < CARRIER_SURPLUS_MAX ? HTTP_ADMIT_REFUSED
                                                                            : HTTP_ADMIT_DROPPED;
        if (s->n_conns - s->n_carried < limit ||
            close_an_idle_one(s, DEADLINE_IDLE, (struct idle_of){ 0 }) ||
            http_client_shed_for(s, client))
                return HTTP_ADMIT;
        if (s->n_conns - s->n_carried >= limit + SURPLUS_MAX)
                return HTTP_ADMIT_DROPPED;
        return s->config.reserved_path && own < FEW_CONNECTIONS ? HTTP_ADMIT_RESERVED
                                                                : HTTP_ADMIT_REFUSED;
}

/* The client has a descriptor of the reserve. The operator is let in; another one when an
 * unfinished request gives way to it; else it may ask how we are, as long as half of the reserve is
 * left. */
static enum http_admission find_reserved(struct http_server *s, bool is_unix, const char *client)
{
        if (is_unix || http_client_shed_for(s, client))
                return HTTP_ADMIT;
        return s->config.reserved_path && s->n_reserve >= ACCEPT_RESERVE / 2 ? HTTP_ADMIT_RESERVED
                                                                             : HTTP_ADMIT_DROPPED;
}

/* Clients of the Unix socket have places of their own: clients that fill the port must not lock the
 * operator out. */
static void admit_client(struct http_listener *l, int take_fd, const struct sockaddr_storage *from,
                         bool by_reserve)
{
        struct http_server *s = l->server;
        unsigned limit = s->config.max_connections;
        struct http_peer peer;

        if (l->is_unix)
                limit += SURPLUS_MAX + UNIX_PLACES;
        if (l->is_unix)
                fill_unix_peer(take_fd, &peer);
        else
                fill_tcp_peer(s, take_fd, from, &peer);
        enum http_admission admission = by_reserve ? find_reserved(s, l->is_unix, peer.client)
                                                   : find_room(s, limit, peer.client);
        if (admission == HTTP_ADMIT_DROPPED) {
                close(take_fd);
                return;
        }
        if (!l->is_unix)
                tune_tcp(take_fd);
        http_conn_open(s, take_fd, &peer, admission);
}

static unsigned count_of(const struct http_server *s, const void *via)
{
        unsigned n = 0;

        for (const struct http_link *l = s->carried.next; l != &s->carried; l = l->next)
                n += container_of(l, struct http_conn, kin)->peer.via == via;
        return n;
}

/* Whether one more is taken, be it only to be told that it is one too many. */
static bool admits_carried(struct http_server *s, const void *via, enum http_admission *ret)
{
        bool full = false;

        if (count_of(s, via) >= s->config.max_per_carrier)
                full = !close_an_idle_one(s, DEADLINE_CARRIED_IDLE, (struct idle_of){ .via = via });
        else if (s->n_carried >= s->config.max_carried)
                full = !close_an_idle_one(s, DEADLINE_CARRIED_IDLE, (struct idle_of){ 0 });
        *ret = full ? HTTP_ADMIT_REFUSED : HTTP_ADMIT;
        return !s->draining && s->n_carried < s->config.max_carried + SURPLUS_MAX &&
               count_of(s, via) < s->config.max_per_carrier + CARRIER_SURPLUS_MAX;
}

void http_server_serve(struct http_server *s, struct byte_stream *take_stream,
                       const struct http_peer *peer)
{
        enum http_admission admission;

        if (admits_carried(s, peer->via, &admission))
                http_conn_open_stream(s, take_stream, peer, admission);
        else
                stream_close(take_stream, NULL, NULL);
}

void http_server_serve_fd(struct http_server *s, int take_fd, const struct http_peer *peer)
{
        enum http_admission admission;

        if (admits_carried(s, peer->via, &admission))
                http_conn_open(s, take_fd, peer, admission);
        else
                close(take_fd);
}

static void watch_listeners(struct http_server *s, bool on)
{
        for (struct http_listener *l = s->listeners; l; l = l->next)
                (void)(on ? uv_poll_start(&l->poll, UV_READABLE, on_accept)
                          : uv_poll_stop(&l->poll));
}

static void fill_reserve(struct http_server *s)
{
        while (s->n_reserve < ACCEPT_RESERVE) {
                int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

                if (fd < 0)
                        return;
                s->reserve[s->n_reserve++] = fd;
        }
}

static void empty_reserve(struct http_server *s)
{
        while (s->n_reserve > 0)
                close(s->reserve[--s->n_reserve]);
}

static void on_accept_retry(uv_timer_t *timer)
{
        struct http_server *s = timer->data;

        fill_reserve(s);
        if (!s->draining)
                watch_listeners(s, true);
}

/* Out of descriptors: a client that stays in the queue would wake us for ever. Use one that is kept
 * for this to take it; one is always left to drop a client with, so that it hears of it. When even
 * that fails, look away for a while. */
static void accept_failed(struct http_listener *l, int errno_value)
{
        struct http_server *s = l->server;

        if (!s->is_short)
                log_error("cannot accept", LOG_S("error", strerror(errno_value)));
        s->is_short = true;
        if ((errno_value == EMFILE || errno_value == ENFILE) && s->n_reserve > 0) {
                struct sockaddr_storage from = { 0 };
                socklen_t len = sizeof(from);
                int fd;

                close(s->reserve[--s->n_reserve]);
                fd = accept4(l->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (fd >= 0 && s->n_reserve > 0)
                        admit_client(l, fd, &from, true);
                else
                        cleanup_fd(&fd);
                fill_reserve(s);
                if (s->n_reserve > 0)
                        return;
        }
        watch_listeners(s, false);
        (void)uv_timer_start(&s->accept_retry, on_accept_retry, ACCEPT_RETRY_MS, 0);
}

static void on_accept(uv_poll_t *handle, int status, int events)
{
        struct http_listener *l = handle->data;
        struct http_server *s = l->server;

        (void)events;
        fill_reserve(s);
        if (status < 0) {
                accept_failed(l, -status);
                return;
        }
        for (int i = 0; i < ACCEPT_BATCH && !s->draining; i++) {
                struct sockaddr_storage from = { 0 };
                socklen_t len = sizeof(from);
                int fd = accept4(l->fd, (struct sockaddr *)&from, &len,
                                 SOCK_NONBLOCK | SOCK_CLOEXEC);

                if (fd >= 0) {
                        admit_client(l, fd, &from, false);
                        if (s->n_reserve == ACCEPT_RESERVE)
                                s->is_short = false;
                } else if (errno == EAGAIN) {
                        return;
                } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
                           errno == ENOMEM) {
                        accept_failed(l, errno);
                        return;
                } /* else the client's misfortune (ECONNABORTED, network errors): the next one */
        }
}

static bool socket_is_unix(int fd)
{
        int domain = 0;
        socklen_t len = sizeof(domain);

        return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX;
}

int http_server_listen(struct http_server *s, int take_fd, struct err *err)
{
        struct http_listener *l;
        int r;

        if (s->draining) {
                close(take_fd);
                return err_set(err, ERR_BUSY, "the server is stopping");
        }
        if (fcntl(take_fd, F_SETFL, O_NONBLOCK) < 0) {
                r = err_sys(err, ERR_INTERNAL, errno, "listen");
                close(take_fd);
                return r;
        }
        l = xcalloc(1, sizeof(*l));
        l->server = s;
        l->fd = take_fd;
        l->is_unix = socket_is_unix(take_fd);
        r = uv_poll_init(s->config.loop, &l->poll, l->fd);
        if (r < 0) {
                close(l->fd);
                free(l);
                return err_sys(err, ERR_INTERNAL, -r, "listen");
        }
        l->poll.data = l;
        l->next = s->listeners;
        s->listeners = l;
        s->n_handles++;
        (void)uv_poll_start(&l->poll, UV_READABLE, on_accept);
        return 0;
}

/* --- life --- */

static void set_defaults(struct http_server *s, const struct http_server_config *config)
{
        struct http_server_config *c = &s->config;

        *c = *config;
        c->max_head = c->max_head ? c->max_head : 16384;
        c->max_body = c->max_body ? c->max_body : (size_t)10 << 20;
        c->max_answers = c->max_answers ? c->max_answers : (size_t)256 << 20;
        c->max_bodies = c->max_bodies ? c->max_bodies : (size_t)256 << 20;
        c->max_connections = c->max_connections ? c->max_connections : 4096;
        c->max_per_client = c->max_per_client ? c->max_per_client : UINT_MAX;
        c->max_unfinished = c->max_unfinished ? c->max_unfinished : UINT_MAX;
        c->max_carried = c->max_carried ? c->max_carried : 4096;
        c->max_per_carrier = c->max_per_carrier ? c->max_per_carrier : 96;
        c->head_timeout_ms = c->head_timeout_ms ? c->head_timeout_ms : 10000;
        c->body_timeout_ms = c->body_timeout_ms ? c->body_timeout_ms : 30000;
        c->idle_timeout_ms = c->idle_timeout_ms ? c->idle_timeout_ms : 185000;
        c->write_timeout_ms = c->write_timeout_ms ? c->write_timeout_ms : 30000;
        s->limits_ms[DEADLINE_HEAD] = c->head_timeout_ms;
        s->limits_ms[DEADLINE_BODY] = c->body_timeout_ms;
        s->limits_ms[DEADLINE_IDLE] = c->idle_timeout_ms;
        s->limits_ms[DEADLINE_CARRIED_IDLE] = c->idle_timeout_ms;
        s->limits_ms[DEADLINE_WRITE] = c->write_timeout_ms;
        s->limits_ms[DEADLINE_LINGER] = LINGER_MS;
        s->limits_ms[DEADLINE_PROBE] = PROBE_MS;
        (void)snprintf(s->keep_alive, sizeof(s->keep_alive),
                       "Connection: keep-alive\r\nKeep-Alive: timeout=%u\r\n",
                       c->idle_timeout_ms / 1000);
}

int http_server_new(const struct http_server_config *config, struct http_server **ret,
                    struct err *err)
{
        struct http_server *s;

        if (!config->loop || !config->handler || !config->handler->on_request)
                return err_set(err, ERR_INTERNAL, "HTTP server without loop or handler");
        s = xcalloc(1, sizeof(*s));
        set_defaults(s, config);
        link_init(&s->conns);
        link_init(&s->carried);
        link_init(&s->due);
        for (int kind = 0; kind < N_DEADLINES; kind++)
                link_init(&s->deadlines[kind]);
        http_clients_init(s);
        fill_reserve(s);
        s->netlink_fd = sock_owner_open();
        (void)uv_timer_init(config->loop, &s->timer);
        (void)uv_timer_init(config->loop, &s->accept_retry);
        (void)uv_idle_init(config->loop, &s->due_idle);
        s->timer.data = s->accept_retry.data = s->due_idle.data = s;
        s->n_handles = 3;
        *ret = s;
        return 0;
}

unsigned http_server_connections(const struct http_server *s)
{
        return s->n_conns;
}

/* Take a closing connection out of every list. */
void http_server_forget(struct http_conn *c)
{
        struct http_server *s = c->server;

        link_remove(&c->all);
        link_remove(&c->kin);
        link_remove(&c->due);
        http_deadline_clear(c);
        http_client_leave(c);
        s->n_carried -= http_conn_is_carried(c);
        if (--s->n_conns == 0)
                (void)uv_timer_stop(&s->timer);
}

void http_server_handle_closed(struct http_server *s)
{
        void (*on_closed)(void *) = s->on_closed;
        void *arg = s->on_closed_arg;

        if (--s->n_handles > 0)
                return;
        empty_reserve(s);
        cleanup_fd(&s->netlink_fd);
        free(s);
        if (on_closed)
                on_closed(arg);
}

static void on_own_handle_closed(uv_handle_t *handle)
{
        http_server_handle_closed(handle->data);
}

static void on_listener_closed(uv_handle_t *handle)
{
        struct http_listener *l = handle->data;
        struct http_server *s = l->server;

        free(l);
        http_server_handle_closed(s);
}

static void close_listeners(struct http_server *s)
{
        struct http_listener *next;

        for (struct http_listener *l = s->listeners; l; l = next) {
                next = l->next;
                uv_close((uv_handle_t *)&l->poll, on_listener_closed);
                close(l->fd);
        }
        s->listeners = NULL;
}

void http_server_drain(struct http_server *s)
{
        if (s->draining)
                return;
        s->draining = true;
        (void)uv_timer_stop(&s->accept_retry);
        close_listeners(s);
        for (struct http_link *l = s->conns.next; l != &s->conns; l = l->next)
                http_conn_due(container_of(l, struct http_conn, all));
}

void http_server_close(struct http_server *s, void (*done)(void *), void *arg)
{
        if (s->closing)
                return;
        http_server_drain(s);
        s->closing = true;
        s->on_closed = done;
        s->on_closed_arg = arg;
        while (!link_is_empty(&s->conns))
                http_conn_close(container_of(s->conns.next, struct http_conn, all));
        uv_close((uv_handle_t *)&s->timer, on_own_handle_closed);
        uv_close((uv_handle_t *)&s->accept_retry, on_own_handle_closed);
        uv_close((uv_handle_t *)&s->due_idle, on_own_handle_closed);
}
