/* The allow-list proxy: how programs in an environment without network reach the hosts that its
 * configuration names, and nothing else.
 *
 * It speaks HTTP/1.1 as a proxy to byte streams: CONNECT, and requests for whole http:// URLs. A
 * host is read strictly (codec/host_pattern.h), looked for among the patterns, and resolved once;
 * every address of the answer has to be a public one or one that the operator allows
 * (codec/private_hosts.h), and it is these addresses
 * that are connected to, so a name cannot mean something else a moment later.
 *
 * A plain request is not passed on but written anew from what our parser understood, one per
 * connection, without hop-by-hop headers; so is the head of its answer. No server behind us can
 * find a second request in it.
 *
 * One proxy serves one environment's place. Everything is bounded and has a deadline. Refusals are
 * answered in words and logged once per host.
 *
 * Loop thread only; the counters are read by any thread. */
#pragma once

#include "codec/host_pattern.h"
#include "codec/private_hosts.h"
#include "net/proxy_counters.h"
#include "net/resolve.h"
#include "rt/byte_stream.h"

struct proxy;

struct proxy_config {
        uv_loop_t *loop;
        struct resolver *resolver;
        struct proxy_counters *counters;
        const char *name; /* of the place, for the log */
        const struct host_pattern *patterns;
        size_t n_patterns;
        const struct private_hosts *private_hosts; /* allowed although not public; NULL: none. Lives
                                                    * longer than the proxy */
        /* A host was refused, for the first time in a while; `ctx` lives as long as the proxy. */
        void (*on_refused)(void *ctx, const char *host, uint16_t port, const char *why);
        void *ctx;
        unsigned max_connections;    /* default 256; the next is closed */
        unsigned head_timeout_ms;    /* default 10000 */
        unsigned resolve_timeout_ms; /* default 10000; 504 */
        unsigned connect_timeout_ms; /* default 10000 for all addresses together; 504 */
        unsigned idle_timeout_ms;    /* default 300000 without a byte in either direction */
};

/* Strings and patterns are copied. */
struct proxy *proxy_new(const struct proxy_config *config);
void proxy_serve(struct proxy *p, struct byte_stream *take_stream);
/* Closes what there is; the memory goes when the loop came round. */
void proxy_free(struct proxy *p);
