/* Asks the kernel which user owns the other end of a TCP connection. */
#define _GNU_SOURCE
#include "net/sock_owner.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"

#define ANSWER_MAX 4096
/* The same in every network namespace. A socket that is bound to the device is found only by a
 * question that names it. */
#define LOOPBACK_INDEX 1

union address {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
};

struct question {
        struct nlmsghdr head;
        struct inet_diag_req_v2 req;
};

int sock_owner_open(void)
{
        return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
}

static void put_address(const union address *a, __be16 *port, __be32 *address)
{
        if (a->any.sa_family == AF_INET) {
                *port = a->v4.sin_port;
                memcpy(address, &a->v4.sin_addr, sizeof(a->v4.sin_addr));
        } else {
                *port = a->v6.sin6_port;
                memcpy(address, &a->v6.sin6_addr, sizeof(a->v6.sin6_addr));
        }
}

/* The peer's socket has our addresses the other way round. */
static bool make_question(int fd, struct question *ret)
{
        union address own = { 0 }, peer = { 0 };
        socklen_t own_len = sizeof(own), peer_len = sizeof(peer);

        if (getsockname(fd, &own.any, &own_len) < 0 || getpeername(fd, &peer.any, &peer_len) < 0 ||
            (own.any.sa_family != AF_INET && own.any.sa_family != AF_INET6) ||
            own.any.sa_family != peer.any.sa_family)
                return false;
        *ret = (struct question){
                .head = { .nlmsg_len = sizeof(*ret),
                          .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                          .nlmsg_flags = NLM_F_REQUEST },
                .req = { .sdiag_family = (__u8)own.any.sa_family,
                         .sdiag_protocol = IPPROTO_TCP,
                         .idiag_states = ~0U,
                         .id = { .idiag_if = LOOPBACK_INDEX,
                                 .idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } } },
        };
        put_address(&peer, &ret->req.id.idiag_sport, ret->req.id.idiag_src);
        put_address(&own, &ret->req.id.idiag_dport, ret->req.id.idiag_dst);
        return true;
}

/* A socket that its process has closed has no inode, and its uid reads as root's: its owner is
 * unknown. Where there is no connection the kernel shows a listener of that port, which is not our
 * peer. And a socket that is only connecting belongs to another process, which got the port of a
 * peer that is gone, while our end does not know that yet. */
static bool read_answer(const struct question *q, const char *bytes, size_t len, uid_t *ret)
{
        struct nlmsghdr head;
        struct inet_diag_msg msg;

        if (len < sizeof(head) + sizeof(msg))
                return false;
        memcpy(&head, bytes, sizeof(head));
        memcpy(&msg, bytes + NLMSG_HDRLEN, sizeof(msg));
        if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY || msg.idiag_inode == 0 ||
            (msg.idiag_state != TCP_ESTABLISHED && msg.idiag_state != TCP_FIN_WAIT1 &&
             msg.idiag_state != TCP_FIN_WAIT2) ||
            msg.id.idiag_sport != q->req.id.idiag_sport ||
            msg.id.idiag_dport != q->req.id.idiag_dport)
                return false;
        *ret = msg.idiag_uid;
        return true;
}

/* While our end is up, no other connection can have the same two addresses: what the kernel found
 * is our peer, and not a later user of its port. */
static bool is_connected(int fd)
{
        struct tcp_info info = { 0 };
        socklen_t len = sizeof(info);

        return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
               (info.tcpi_state == TCP_ESTABLISHED || info.tcpi_state == TCP_CLOSE_WAIT);
}

bool sock_owner_of_peer(int netlink_fd, int fd, uid_t *ret)
{
        struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
        char answer[ANSWER_MAX] __attribute__((aligned(NLMSG_ALIGNTO)));
        struct question q;

        if (netlink_fd < 0 || !make_question(fd, &q))
                return false;
        /* An answer that an earlier question left unread would be taken for the answer to this one.
         */
        while (recv(netlink_fd, answer, sizeof(answer), 0) >= 0)
                ;
        if (sendto(netlink_fd, &q, sizeof(q), 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
                return false;
        /* The kernel has answered by the time sendto() returns. */
        ssize_t n = recv(netlink_fd, answer, sizeof(answer), 0);
        return n > 0 && read_answer(&q, answer, (size_t)n, ret) && is_connected(fd);
}
