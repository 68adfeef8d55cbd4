/* Shared by the files of the proxy; no other file includes it.
 *
 *     proxy.c          life cycle, deadlines, refusals
 *     proxy_conn.c     one connection: from head to relaying, bytes in both directions
 *     proxy_connect.c  who may be reached, at which addresses, and reaching it
 *     proxy_http.c     plain requests: heads written anew, bodies followed to their end */
#pragma once

#include "codec/http1.h"
#include "net/proxy.h"

#define PROXY_MAX_HEAD      16384
#define PROXY_MAX_RESP_HEAD 65536
#define PROXY_CHUNK         65536 /* bytes read at a time */
#define PROXY_ROUNDS        16    /* so many of them before others have their turn */
#define PROXY_LINGER_MS     5000
#define PROXY_LOGGED        64

/* HEAD -> RESOLVE -> CONNECT -> RELAY -> LINGER -> CLOSED; any -> LINGER (refused) -> CLOSED; any
 * -> CLOSED. */
enum proxy_phase {
        PROXY_HEAD,
        PROXY_RESOLVE,
        PROXY_CONNECT,
        PROXY_RELAY,
        PROXY_LINGER, /* everything is said; the client's input is dropped until its end */
        PROXY_CLOSED,
};

/* A message body on its way: followed to its end by its framing, written anew where chunked. */
struct proxy_body {
        enum http1_framing framing;
        uint64_t left;
        struct http1_chunked chunked;
        bool write_chunks;
};

/* One direction. Bytes are read into `in`, moved to `out` as understood, and written. */
struct proxy_flow {
        struct buf in, out;
        size_t out_sent;
        bool eof;   /* its source has ended */
        bool done;  /* nothing more will be moved */
        bool ended; /* and its sink was told */
};

struct proxy_conn {
        struct proxy_conn *prev, *next;
        struct proxy *proxy;
        enum proxy_phase phase;
        struct byte_stream *client;
        struct socket_stream *upstream; /* NULL: none now */
        struct lookup *lookup;
        uv_timer_t timer;
        uint64_t last_byte; /* uv_now() */
        struct host_target target;
        struct lookup_answer answer;
        size_t next_addr;
        uint16_t port; /* to connect to */
        bool is_connect, is_head, is_old;
        bool malformed; /* the request's body */
        bool answered;  /* a byte of the answer went to the client */
        bool response_head_done;
        size_t head_seen;
        struct proxy_flow up, down;
        struct proxy_body request, response;
};

struct proxy {
        struct proxy_config config;
        char *name;
        struct host_pattern *patterns;
        struct proxy_conn conns; /* head of the circular list */
        unsigned n_conns;
        unsigned refs; /* connections whose timer is not closed yet, and the owner */
        uint64_t logged[PROXY_LOGGED];
        unsigned next_logged;
};

/* proxy.c */
void proxy_conn_close(struct proxy_conn *c);
void proxy_deadline(struct proxy_conn *c, unsigned ms);
/* Answer in words and close. When the answer has begun, only close. */
void proxy_refuse(struct proxy_conn *c, int status, const char *fmt, ...) PRINTF(3, 4);
/* The same, counted and logged as a refusal of the target. */
void proxy_forbid(struct proxy_conn *c, const char *fmt, ...) PRINTF(2, 3);
void proxy_fail(struct proxy_conn *c, int status, const char *fmt, ...) PRINTF(3, 4);

/* proxy_conn.c */
void proxy_conn_start(struct proxy_conn *c);
void proxy_conn_connected(struct proxy_conn *c);
void proxy_conn_expired(struct proxy_conn *c);
void proxy_conn_linger(struct proxy_conn *c);

/* proxy_connect.c */
void proxy_reach(struct proxy_conn *c);
void proxy_drop_upstream(struct proxy_conn *c);

/* proxy_http.c */
void proxy_write_request(struct proxy_conn *c, const struct http1_proxy_request *req);
/* Move what can be moved; false when it is malformed. */
bool proxy_move_request(struct proxy_conn *c);
bool proxy_move_response(struct proxy_conn *c);

static inline size_t flow_pending(const struct proxy_flow *f)
{
        return f->out.len - f->out_sent;
}
