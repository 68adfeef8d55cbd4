/* Addresses of the daemon, and connecting, reading and writing with a deadline. */
#define _GNU_SOURCE
#include "client/conn.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fd.h"

#define DEFAULT_PORT "3100"

void conn_address_done(struct conn_address *a)
{
        free(a->path);
        free(a->host);
        free(a->port);
        free(a->prefix);
        free(a->text);
        *a = (struct conn_address){ 0 };
}

void conn_address_unix(const char *path, struct conn_address *ret)
{
        *ret = (struct conn_address){
                .path = xstrdup(path),
                .prefix = xstrdup(""),
                .text = xasprintf("unix:%s", path),
        };
}

static bool is_port(const char *s)
{
        char *end;
        unsigned long n = strtoul(s, &end, 10);

        return *s >= '0' && *s <= '9' && *end == '\0' && n > 0 && n <= 65535;
}

/* Control characters and spaces in a host or prefix would end up in the request head. */
static bool is_plain(const char *s)
{
        for (; *s; s++)
                if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7f)
                        return false;
        return true;
}

/* Split "host[:port]" or "[v6]:port"; false when it is neither. */
static bool split_authority(char *authority, struct conn_address *a)
{
        char *colon;

        if (authority[0] == '[') {
                char *end = strchr(authority, ']');

                if (!end || (end[1] != ':' && end[1] != '\0'))
                        return false;
                *end = '\0';
                a->host = xstrdup(authority + 1);
                a->port = xstrdup(end[1] == ':' ? end + 2 : DEFAULT_PORT);
        } else {
                colon = strchr(authority, ':');
                if (colon)
                        *colon = '\0';
                a->host = xstrdup(authority);
                a->port = xstrdup(colon ? colon + 1 : DEFAULT_PORT);
        }
        return a->host[0] && is_port(a->port) && !strchr(a->host, '@');
}

static char *without_suffix(const char *s, size_t len, const char *suffix)
{
        size_t n = strlen(suffix);

        while (len > 0 && s[len - 1] == '/')
                len--;
        if (len >= n && memcmp(s + len - n, suffix, n) == 0)
                len -= n;
        return xstrndup(s, len);
}

int conn_address_parse(const char *url, struct conn_address *ret, struct err *err)
{
        CLEAN(conn_address_done) struct conn_address a = { 0 };
        CLEAN(cleanup_free) char *authority = NULL;

        if (str_starts(url, "unix:")) {
                if (url[5] != '/')
                        return err_set(err, ERR_INVALID, "'%s': unix: needs an absolute path", url);
                conn_address_unix(url + 5, ret);
                return 0;
        }
        if (str_starts(url, "https://"))
                return err_set(err, ERR_INVALID,
                               "'%s': https is not spoken here; use http:// on a trusted network, "
                               "or forward the daemon's Unix socket with ssh -L",
                               url);
        if (!str_starts(url, "http://") || !is_plain(url) || strpbrk(url, "?#"))
                return err_set(err, ERR_INVALID, "'%s' is not a URL like http://127.0.0.1:3100",
                               url);
        const char *rest = url + strlen("http://");
        const char *slash = strchrnul(rest, '/');
        authority = xstrndup(rest, (size_t)(slash - rest));
        if (!split_authority(authority, &a))
                return err_set(err, ERR_INVALID, "'%s': host and port do not make sense", url);
        a.prefix = without_suffix(slash, strlen(slash), "/api");
        a.text = xstrdup(url);
        *ret = a;
        a = (struct conn_address){ 0 };
        return 0;
}

static int wait_ready(int fd, short events, int64_t deadline_ms, struct err *err)
{
        for (;;) {
                struct pollfd p = { .fd = fd, .events = events };
                int timeout = -1, n;

                if (deadline_ms != CONN_FOREVER) {
                        int64_t left = deadline_ms - clock_mono_ms();

                        timeout = left <= 0 ? 0 : (int)MIN(left, INT32_MAX);
                }
                n = poll(&p, 1, timeout);
                if (n > 0)
                        return 0;
                if (n == 0)
                        return err_set(err, ERR_TIMEOUT, "no answer in time");
                if (errno != EINTR)
                        return err_sys(err, ERR_INTERNAL, errno, "poll");
        }
}

/* 0 or an errno value. */
static int connect_one(int fd, const struct sockaddr *sa, socklen_t len, int64_t deadline_ms)
{
        struct err ignored = { 0 };
        int result = 0;
        socklen_t n = sizeof(result);

        if (connect(fd, sa, len) == 0)
                return 0;
        if (errno != EINPROGRESS && errno != EINTR)
                return errno;
        if (wait_ready(fd, POLLOUT, deadline_ms, &ignored) < 0)
                return ETIMEDOUT;
        return getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &n) < 0 ? errno : result;
}

static int daemon_unreachable(const struct conn_address *a, const char *why, struct err *err)
{
        return err_set(err, ERR_UNREACHABLE,
                       "no daemon answers at %s (%s); start one with: berth serve", a->text, why);
}

static int open_unix(const struct conn_address *a, int64_t deadline_ms, int *ret_fd,
                     struct err *err)
{
        struct sockaddr_un sa = { .sun_family = AF_UNIX };
        CLEAN(cleanup_fd) int fd = -1;

        if (strlen(a->path) >= sizeof(sa.sun_path))
                return err_set(err, ERR_INVALID,
                               "%s: a socket's path has at most %zu bytes; "
                               "use a shorter data directory",
                               a->path, sizeof(sa.sun_path) - 1);
        memcpy(sa.sun_path, a->path, strlen(a->path) + 1);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return err_sys(err, ERR_INTERNAL, errno, "socket");
        int e = connect_one(fd, (const struct sockaddr *)&sa, sizeof(sa), deadline_ms);
        if (e != 0)
                return daemon_unreachable(a, strerror(e), err);
        *ret_fd = take_fd(&fd);
        return 0;
}

static void free_addresses(struct addrinfo **list)
{
        if (*list)
                freeaddrinfo(*list);
}

int conn_open(const struct conn_address *address, int64_t deadline_ms, int *ret_fd, struct err *err)
{
        if (address->path)
                return open_unix(address, deadline_ms, ret_fd, err);
        const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
        CLEAN(free_addresses) struct addrinfo *list = NULL;
        int e = getaddrinfo(address->host, address->port, &hints, &list);

        if (e != 0)
                return daemon_unreachable(address, gai_strerror(e), err);
        e = EADDRNOTAVAIL;
        for (const struct addrinfo *ai = list; ai; ai = ai->ai_next) {
                CLEAN(cleanup_fd)
                int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

                e = fd < 0 ? errno : connect_one(fd, ai->ai_addr, ai->ai_addrlen, deadline_ms);
                if (e != 0)
                        continue;
                (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
                *ret_fd = take_fd(&fd);
                return 0;
        }
        return daemon_unreachable(address, strerror(e), err);
}

bool conn_is_stale(int fd)
{
        char c;
        ssize_t n = recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);

        return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

int conn_write(int fd, const void *data, size_t len, int64_t deadline_ms, struct err *err)
{
        const char *at = data;

        while (len > 0) {
                ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

                if (n >= 0) {
                        at += n;
                        len -= (size_t)n;
                } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                        int r = wait_ready(fd, POLLOUT, deadline_ms, err);

                        if (r < 0)
                                return r;
                } else if (errno != EINTR) {
                        return err_sys(err, ERR_UNCERTAIN, errno, "connection to the daemon lost");
                }
        }
        return 0;
}

ssize_t conn_read(int fd, void *data, size_t len, int64_t deadline_ms, struct err *err)
{
        for (;;) {
                ssize_t n = recv(fd, data, len, 0);
                int r;

                if (n >= 0)
                        return n;
                if (errno == EINTR)
                        continue;
                if (errno != EAGAIN && errno != EWOULDBLOCK)
                        return err_sys(err, ERR_UNCERTAIN, errno, "connection to the daemon lost");
                r = wait_ready(fd, POLLIN, deadline_ms, err);
                if (r < 0)
                        return r;
        }
}
