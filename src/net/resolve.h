/* Names to addresses without blocking the loop, by the system's resolver.
 *
 * getaddrinfo() has no deadline and cannot be cancelled, so each lookup runs on a thread of its own
 * that may be abandoned: its answer is then dropped when it comes, and it does not keep the daemon
 * from stopping. At most RESOLVE_MAX threads exist; further lookups wait their turn, those of one
 * owner behind those of others once it has its share.
 *
 * Loop thread only. */
#pragma once

#include <uv.h>

#include "base/err.h"
#include "codec/net_addr.h"

#define RESOLVE_MAX       32
#define RESOLVE_MAX_OWNER 4 /* of them for one owner */
#define RESOLVE_ADDRS     16

struct resolver;
struct lookup;

struct lookup_answer {
        const char *error; /* NULL, or why there is none */
        size_t n;
        struct net_addr addrs[RESOLVE_ADDRS]; /* in the order to try them */
};

int resolver_new(uv_loop_t *loop, struct resolver **ret, struct err *err);
/* Lookups that are under way are abandoned. */
void resolver_free(struct resolver *r);

/* `done` is called from the loop, once, unless the lookup is abandoned before. */
struct lookup *resolver_look_up(struct resolver *r, const void *owner, const char *name,
                                void (*done)(void *arg, const struct lookup_answer *answer),
                                void *arg);
void lookup_abandon(struct lookup *l);
