/* Listening sockets. Addresses are numeric: no resolver runs in the daemon. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/fd.h"
#include "net/http_server.h"

union address {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
};

static bool parse_port(const char *text, in_port_t *ret)
{
        unsigned long port = 0;

        if (!*text || strlen(text) > 5)
                return false;
        for (; *text; text++) {
                if (*text < '0' || *text > '9')
                        return false;
                port = port * 10 + (unsigned long)(*text - '0');
        }
        if (port > 65535)
                return false;
        *ret = htons((uint16_t)port);
        return true;
}

static bool parse_tcp(const char *text, union address *ret, socklen_t *ret_len)
{
        const char *colon = strrchr(text, ':');
        char host[INET6_ADDRSTRLEN + 1];
        in_port_t port;

        *ret = (union address){ 0 };
        if (!colon || !parse_port(colon + 1, &port))
                return false;
        size_t len = (size_t)(colon - text);
        if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
                if (len - 2 >= sizeof(host))
                        return false;
                memcpy(host, text + 1, len - 2);
                host[len - 2] = '\0';
                ret->v6.sin6_family = AF_INET6;
                ret->v6.sin6_port = port;
                *ret_len = sizeof(ret->v6);
                return inet_pton(AF_INET6, host, &ret->v6.sin6_addr) == 1;
        }
        if (len >= sizeof(host))
                return false;
        memcpy(host, text, len);
        host[len] = '\0';
        ret->v4.sin_family = AF_INET;
        ret->v4.sin_port = port;
        *ret_len = sizeof(ret->v4);
        return inet_pton(AF_INET, streq(host, "localhost") ? "127.0.0.1" : host,
                         &ret->v4.sin_addr) == 1;
}

int http_listen_tcp(const char *address, int *ret_fd, struct err *err)
{
        int CLEAN(cleanup_fd) fd = -1;
        const int on = 1;
        union address a;
        socklen_t len;

        if (!parse_tcp(address, &a, &len))
                return err_set(err, ERR_INVALID, "Invalid listen address '%s'", address);
        fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return err_sys(err, ERR_INTERNAL, errno, "socket");
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (a.any.sa_family == AF_INET6)
                (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
        if (bind(fd, &a.any, len) < 0 || listen(fd, SOMAXCONN) < 0)
                return err_sys(err, errno == EADDRINUSE ? ERR_LOCKED : ERR_INTERNAL, errno,
                               "listen on %s", address);
        *ret_fd = take_fd(&fd);
        return 0;
}

/* Make room where a killed process left its socket; anything else is in use or not ours. */
static int remove_stale(const union address *a, socklen_t len, struct err *err)
{
        int CLEAN(cleanup_fd) fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        const char *path = a->local.sun_path;
        struct stat st;

        if (lstat(path, &st) >= 0 && !S_ISSOCK(st.st_mode))
                return err_set(err, ERR_LOCKED, "%s is in the way and not a socket; move it away",
                               path);
        if (fd < 0 || connect(fd, &a->any, len) >= 0 || errno != ECONNREFUSED)
                return err_set(err, ERR_LOCKED, "Another process listens on %s already", path);
        (void)unlink(path);
        return 0;
}

int http_listen_unix(const char *path, mode_t mode, int *ret_fd, struct err *err)
{
        int CLEAN(cleanup_fd) fd = -1;
        union address a = { .local.sun_family = AF_UNIX };

        if (!*path || strlen(path) >= sizeof(a.local.sun_path))
                return err_set(err, ERR_INVALID,
                               "Socket path too long: '%s' has %zu bytes, a socket's path has room "
                               "for %zu",
                               path, strlen(path), sizeof(a.local.sun_path) - 1);
        memcpy(a.local.sun_path, path, strlen(path) + 1);
        socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return err_sys(err, ERR_INTERNAL, errno, "socket");
        /* bind() gives the file the mode of the descriptor, less the umask: so it is at no moment
         * open to more than was asked for. */
        if (fchmod(fd, mode) < 0)
                return err_sys(err, ERR_INTERNAL, errno, "chmod %s", path);
        int r = bind(fd, &a.any, len);
        if (r < 0 && errno == EADDRINUSE) {
                r = remove_stale(&a, len, err);
                if (r < 0)
                        return r;
                r = bind(fd, &a.any, len);
        }
        if (r < 0 || chmod(path, mode) < 0 || listen(fd, SOMAXCONN) < 0)
                return err_sys(err, ERR_INTERNAL, errno, "listen on %s", path);
        *ret_fd = take_fd(&fd);
        return 0;
}
