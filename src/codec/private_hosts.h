/* Addresses that are not public and may be reached all the same: the setting `private_hosts`, a
 * list of "address:port" for model servers and the like in the operator's own network.
 *
 * Code that connects on behalf of an agent or a sandbox asks private_hosts_refusal() about the
 * address that it is about to connect to, after resolving: a name says nothing.
 *
 * Pure functions, any thread. */
#pragma once

#include "base/err.h"
#include "codec/net_addr.h"

#define PRIVATE_HOSTS_MAX 64

struct private_hosts {
        size_t n;
        struct private_host {
                struct net_addr addr;
                uint16_t port;
        } at[PRIVATE_HOSTS_MAX];
};

/* Read "10.0.0.5:8000,[fd00::1]:8000"; blanks around an entry are fine. ERR_INVALID says which
 * entry is wrong, and why. */
int private_hosts_parse(const char *text, struct private_hosts *ret, struct err *err);

/* NULL when the address is public or listed with this port, else the kind of address that it is
 * ("loopback"). `list` may be NULL. */
const char *private_hosts_refusal(const struct private_hosts *list, const struct net_addr *addr,
                                  uint16_t port);

/* The entry that would allow it, as text: "10.0.0.5:8000". */
#define PRIVATE_HOST_TEXT (NET_ADDR_TEXT + 8)
void private_host_format(const struct net_addr *addr, uint16_t port, char ret[PRIVATE_HOST_TEXT]);
