/* Ways out by sockets: families that reach the host or the kernel, addresses of the host. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "escape.h"

static void no_socket(int family, int type, int protocol, const char *what)
{
        int fd = socket(family, type | SOCK_CLOEXEC, protocol);

        must_fail(fd, what);
}

static void raw(char **args)
{
        no_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP, "raw ICMP");
        no_socket(AF_INET, SOCK_RAW, IPPROTO_RAW, "raw IP");
        no_socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6, "raw ICMPv6");
        no_socket(AF_PACKET, SOCK_RAW, 0, "packets");
        no_socket(AF_PACKET, SOCK_DGRAM, 0, "packets");
}

static void vsock(char **args)
{
        no_socket(AF_VSOCK, SOCK_STREAM, 0, "vsock");
        no_socket(AF_VSOCK, SOCK_DGRAM, 0, "vsock");
}

static void netlink(char **args)
{
        static const int protocols[] = { NETLINK_ROUTE,          NETLINK_SOCK_DIAG,
                                         NETLINK_XFRM,           NETLINK_AUDIT,
                                         NETLINK_CONNECTOR,      NETLINK_NETFILTER,
                                         NETLINK_KOBJECT_UEVENT, NETLINK_GENERIC };
        char what[32];

        for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++) {
                (void)snprintf(what, sizeof(what), "netlink %d", protocols[i]);
                no_socket(AF_NETLINK, SOCK_RAW, protocols[i], what);
                no_socket(AF_NETLINK, SOCK_DGRAM, protocols[i], what);
        }
}

/* All the others: each is a part of the kernel with a history. */
static void families(char **args)
{
        static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_RAW };
        char what[32];

        for (int family = 0; family < 48; family++) {
                if (family == AF_UNIX || family == AF_INET || family == AF_INET6)
                        continue;
                (void)snprintf(what, sizeof(what), "family %d", family);
                for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
                        if (socket(family, types[i] | SOCK_CLOEXEC, 0) >= 0)
                                escaped("%s, type %d", what, types[i]);
        }
        refused("all but Unix and Internet: %s", strerrorname_np(errno));
}

static int connect_within(int fd, const struct sockaddr *address, socklen_t size)
{
        struct pollfd p = { .fd = fd, .events = POLLOUT };
        socklen_t len = sizeof(int);
        int error;

        if (connect(fd, address, size) == 0)
                return 0;
        if (errno != EINPROGRESS)
                return -1;
        if (poll(&p, 1, 2000) == 0) {
                errno = ETIMEDOUT;
                return -1;
        }
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
                return -1;
        errno = error;
        return error ? -1 : 0;
}

static void unix_connect(const char *name, bool abstract)
{
        static const int types[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET };
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        size_t n = strlen(name);

        if (n + 1 > sizeof(address.sun_path))
                broken("the name is too long: %s", name);
        memcpy(address.sun_path + (abstract ? 1 : 0), name, n);
        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
                int fd = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);

                must_fail(connect(fd, (struct sockaddr *)&address,
                                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + 1 -
                                              (abstract ? 0 : 1))),
                          name);
                (void)close(fd);
        }
}

static void abstract(char **args)
{
        for (; *args; args++)
                unix_connect(*args, true);
}

static void unix_path(char **args)
{
        for (; *args; args++)
                unix_connect(*args, false);
}

static void tcp(char **args)
{
        struct sockaddr_in address = { .sin_family = AF_INET };
        struct sockaddr_in6 address6 = { .sin6_family = AF_INET6 };
        in_port_t port = htons((uint16_t)strtoul(args[0], NULL, 10));
        const struct sockaddr *to;
        socklen_t size;
        int fd;

        address.sin_port = address6.sin6_port = port;
        for (args++; *args; args++) {
                if (inet_pton(AF_INET, *args, &address.sin_addr) == 1) {
                        to = (struct sockaddr *)&address;
                        size = sizeof(address);
                } else if (inet_pton(AF_INET6, *args, &address6.sin6_addr) == 1) {
                        to = (struct sockaddr *)&address6;
                        size = sizeof(address6);
                } else {
                        broken("not an address: %s", *args);
                }
                fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                must_fail(fd < 0 ? -1 : connect_within(fd, to, size), *args);
                (void)close(fd);
        }
}

/* Only loopback may be there. Read from /proc, which needs no netlink. */
static void interfaces(char **args)
{
        FILE *file = fopen("/proc/net/dev", "re");
        char line[512], *colon, *name;

        if (!file) {
                refused("/proc/net/dev: %s", strerrorname_np(errno));
                return;
        }
        while (fgets(line, sizeof(line), file)) {
                colon = strchr(line, ':');
                if (!colon)
                        continue;
                *colon = '\0';
                name = line + strspn(line, " ");
                if (strcmp(name, "lo") != 0)
                        escaped("interface %s", name);
        }
        (void)fclose(file);
        refused("only loopback");
}

const struct escape_case socket_cases[] = {
        { "raw", "", 0, raw },
        { "vsock", "", 0, vsock },
        { "netlink", "", 0, netlink },
        { "families", "", 0, families },
        { "abstract", "NAME...", 1, abstract },
        { "unix", "PATH...", 1, unix_path },
        { "tcp", "PORT ADDRESS...", 2, tcp },
        { "interfaces", "", 0, interfaces },
        { 0 },
};
