/* Internet addresses: reading every spelling of one, and telling which of them belong to the public
 * internet.
 *
 * A program that fetches for others must not be talked into reaching what only it can reach. So the
 * question is never "is it forbidden" by the look of a name but "is this address public", asked of
 * the bytes that are connected to; an address that carries another inside (mapped, translated,
 * tunnelled) is judged by both.
 *
 * Pure functions, any thread. */
#pragma once

#include "base/util.h"

struct net_addr {
        bool is_v6;
        uint8_t bytes[16]; /* 4 of them for IPv4; network order */
};

#define NET_ADDR_TEXT 46 /* longest text and its end */

/* What kind of address it is: NULL for one of the public internet, else a few words such as
 * "private" or "loopback". */
const char *net_addr_special(const struct net_addr *a);

/* Exactly as we would write it: "192.0.2.1", "2001:db8::1"; no brackets, no zone. */
bool net_addr_parse(const char *text, size_t len, struct net_addr *ret);
/* Whether a resolver somewhere would take the text for an address rather than a name: all numbers,
 * in decimal, octal or hexadecimal, one to four parts, or anything with a colon. Such a thing is no
 * host name, well-formed or not. */
bool net_addr_is_numeric(const char *text, size_t len);
void net_addr_format(const struct net_addr *a, char ret[NET_ADDR_TEXT]);
bool net_addr_equal(const struct net_addr *a, const struct net_addr *b);
