/* Decides which addresses may be reached, and connects to them. The addresses that were judged are
 * those that are connected to; nothing is resolved twice. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

#include "net/proxy_internal.h"
#include "net/proxy_test_hosts.h"

/* Connecting */

void proxy_drop_upstream(struct proxy_conn *c)
{
        struct linger now = { .l_onoff = 1 };
        struct socket_stream *s = take_ptr(&c->upstream);

        if (!s)
                return;
        /* Cut short, not ended: its other side must not take what it has for everything. */
        if (!c->up.ended)
                (void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        stream_close(&s->stream, free, s);
}

static socklen_t fill_address(const struct net_addr *a, uint16_t port, struct sockaddr_storage *ret)
{
        struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;

        *ret = (struct sockaddr_storage){ 0 };
        if (a->is_v6) {
                v6->sin6_family = AF_INET6;
                v6->sin6_port = htons(port);
                memcpy(&v6->sin6_addr, a->bytes, 16);
                return sizeof(*v6);
        }
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        memcpy(&v4->sin_addr, a->bytes, 4);
        return sizeof(*v4);
}

static void try_next(struct proxy_conn *c, int error);

static void on_upstream(void *ctx, int events)
{
        struct proxy_conn *c = ctx;
        int error = 0;
        socklen_t len = sizeof(error);

        if (getsockopt(c->upstream->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
                error = errno;
        if (!error && (events & STREAM_BROKEN))
                error = ECONNRESET;
        if (error)
                try_next(c, error);
        else
                proxy_conn_connected(c);
}

/* 0 under way, or -errno. */
static int connect_to(struct proxy_conn *c, const struct net_addr *a)
{
        struct sockaddr_storage address;
        socklen_t len = fill_address(a, c->port, &address);
        int on = 1;
        int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct socket_stream *s;

        if (fd < 0)
                return -errno;
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (connect(fd, (struct sockaddr *)&address, len) < 0 && errno != EINPROGRESS) {
                int error = errno;

                close(fd);
                return -error;
        }
        s = xcalloc(1, sizeof(*s));
        if (socket_stream_init(s, c->proxy->config.loop, fd) < 0) {
                free(s);
                return -ENOMEM;
        }
        c->upstream = s;
        stream_on_ready(&s->stream, on_upstream, c);
        stream_watch(&s->stream, STREAM_WRITABLE);
        return 0;
}

/* `error` says why the last one failed. */
static void try_next(struct proxy_conn *c, int error)
{
        char address[NET_ADDR_TEXT];

        proxy_drop_upstream(c);
        while (c->next_addr < c->answer.n) {
                error = -connect_to(c, &c->answer.addrs[c->next_addr++]);
                if (error == 0)
                        return;
        }
        net_addr_format(&c->answer.addrs[c->answer.n - 1], address);
        proxy_fail(c, 502, "Could not connect to \"%s\" (%s, port %u): %s.", c->target.name,
                   address, c->target.port, strerror(error));
}

static void connect_first(struct proxy_conn *c)
{
        c->phase = PROXY_CONNECT;
        proxy_deadline(c, c->proxy->config.connect_timeout_ms);
        try_next(c, 0);
}

/* Judging */

/* One address that may not be reached is enough: the owner of the name decides which one comes
 * first.
 */
static bool all_reachable(struct proxy_conn *c)
{
        for (size_t i = 0; i < c->answer.n; i++) {
                const char *special = private_hosts_refusal(c->proxy->config.private_hosts,
                                                            &c->answer.addrs[i], c->port);
                char address[NET_ADDR_TEXT];

                if (!special)
                        continue;
                net_addr_format(&c->answer.addrs[i], address);
                proxy_forbid(c,
                             "The host \"%s\" has the address %s, which is not public (%s). "
                             "\"allowedHosts\" opens the way to public addresses only.",
                             c->target.name, address, special);
                return false;
        }
        return true;
}

static void on_answer(void *arg, const struct lookup_answer *answer)
{
        struct proxy_conn *c = arg;

        c->lookup = NULL;
        c->answer = *answer;
        if (answer->error)
                proxy_fail(c, 502, "The host \"%s\" could not be resolved: %s.", c->target.name,
                           answer->error);
        else if (all_reachable(c))
                connect_first(c);
}

static void resolve_target(struct proxy_conn *c)
{
        switch (test_hosts_find(c->target.name, &c->answer, &c->port)) {
        case TEST_HOST_ANSWER:
                if (all_reachable(c))
                        connect_first(c);
                return;
        case TEST_HOST_EXEMPT:
                connect_first(c);
                return;
        case TEST_HOST_SILENT:
                return;
        case TEST_HOST_NONE:
                break;
        }
        c->lookup =
                resolver_look_up(c->proxy->config.resolver, c->proxy, c->target.name, on_answer, c);
}

void proxy_reach(struct proxy_conn *c)
{
        const struct host_target *t = &c->target;
        char entry[HOST_NAME_SIZE + 16];
        bool allowed = false;

        for (size_t i = 0; i < c->proxy->config.n_patterns && !allowed; i++)
                allowed = host_pattern_matches(&c->proxy->patterns[i], t);
        if (!allowed) {
                (void)snprintf(entry, sizeof(entry), t->is_addr && t->addr.is_v6 ? "[%s]" : "%s",
                               t->name);
                if (t->port != 80 && t->port != 443)
                        (void)snprintf(entry + strlen(entry), 8, ":%u", t->port);
                proxy_forbid(c,
                             "The host \"%s\" (port %u) is not among the allowed hosts of this "
                             "environment. To allow it, add \"%s\" to \"allowedHosts\" in the "
                             "environment's configuration.",
                             t->name, t->port, entry);
                return;
        }
        c->phase = PROXY_RESOLVE;
        c->port = c->target.port;
        proxy_deadline(c, c->proxy->config.resolve_timeout_ms);
        if (!c->target.is_addr) {
                resolve_target(c);
                return;
        }
        c->answer = (struct lookup_answer){ .n = 1, .addrs = { c->target.addr } };
        if (all_reachable(c))
                connect_first(c);
}
