/* Which user of this machine is at the other end of a TCP connection: the kernel is asked for the
 * owner of the peer's socket by its two addresses (sock_diag(7)). One question and one answer over
 * a netlink socket, about ten microseconds; it is asked once for a connection.
 *
 * "Cannot tell" is an answer of its own, and code that decides about rights treats such a peer as a
 * stranger: the peer is in another network namespace, it has closed its socket already (the kernel
 * then shows uid 0), or the kernel was built without inet_diag. Any thread, one at a time for each
 * socket. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* The netlink socket to ask on; -1 when there is none. */
int sock_owner_open(void);

/* The owner of the socket that `fd`, a connected TCP socket of ours, is connected to. False: cannot
 * tell. */
bool sock_owner_of_peer(int netlink_fd, int fd, uid_t *ret);
