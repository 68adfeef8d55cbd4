/* Host names as others write them, and patterns that say which of them are allowed.
 *
 * A name is taken only in the one form in which all parties read it alike: ASCII letters, digits,
 * '-' and '_', labels of 1 to 63 bytes, lower case after reading, no dot at the end, and nothing
 * that a resolver might take for an address. An address is taken only as we would write it.
 *
 * A pattern is a name ("api.example.com"), all names below one ("*.example.com", without
 * example.com itself), or an address, each with an optional ":port"; without it ports 80 and 443.
 *
 * Pure functions, any thread. */
#pragma once

#include "base/err.h"
#include "codec/net_addr.h"

#define HOST_NAME_SIZE 254 /* longest name and its end */

/* The host and port that a client wants to reach. */
struct host_target {
        char name[HOST_NAME_SIZE]; /* lower case; the address as text when is_addr */
        bool is_addr;
        struct net_addr addr;
        uint16_t port;
};

/* Read "name", "name:port", "[v6]" or "[v6]:port". `port` is what counts without one; 0: there must
 * be one. ERR_INVALID says what is wrong with it, without repeating it. */
int host_target_parse(const char *text, size_t len, uint16_t port, struct host_target *ret,
                      struct err *err);

struct host_pattern {
        char name[HOST_NAME_SIZE]; /* what follows "*." when any_below */
        bool any_below;
        uint16_t port; /* 0: 80 and 443 */
};

int host_pattern_parse(const char *text, size_t len, struct host_pattern *ret, struct err *err);
bool host_pattern_matches(const struct host_pattern *p, const struct host_target *t);
