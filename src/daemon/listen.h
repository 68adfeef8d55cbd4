/* Where the daemon is reached: its Unix socket, and a TCP port unless it is private. Main thread,
 * before the loop runs. */
#pragma once

#include "daemon/config.h"
#include "net/http_server.h"

/* How many connections to hold: of clients, and of those that boxes carry. */
struct listen_capacity {
        unsigned connections, carried;
};

/* By the limit of descriptors, which it raises where that is of use. */
struct listen_capacity listen_capacity(void);
/* *ret_port and *ret_url are 0 and NULL for a private daemon. The URL is in the arena. */
int listen_open(const struct config *config, struct http_server *http, struct arena *arena,
                unsigned *ret_port, const char **ret_url, struct err *err);
/* The line on standard output that people and scripts wait for. */
void listen_announce(const struct config *config, unsigned port);
