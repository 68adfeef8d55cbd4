/* Shared by the files of the box's tunnel; see tunnel.c. */
#pragma once

#include "berth-box/box.h"
#include "codec/frame_tunnel.h"

#define TUNNEL_MAX_LISTENERS 64
#define TUNNEL_PROXY_CONNS   192 /* of all, so that callbacks find room whatever the proxy does */
#define TUNNEL_RING          ((size_t)256 << 10) /* bytes from the host that are not read yet */
#define TUNNEL_ACCEPT_MS     30000               /* for the host's ACCEPT */
#define TUNNEL_RETRY_MS      100 /* after an accept() that failed for want of descriptors */
#define TUNNEL_ACCEPTS       64  /* in one turn */
#define TUNNEL_MAX_WORKERS   8   /* that serve the host */

struct tunnel_listener {
        bool used;
        bool claimed; /* the host that is connected now asked for it */
        bool ready;   /* a connection may be waiting */
        uint8_t id[FRAME_UUID];
        uint8_t kind;
        uint16_t port;
        uint32_t idle_ms;
        int fd;
};

/* GONE: the socket is closed, and the host is still to be told. */
enum tunnel_state { TUNNEL_FREE, TUNNEL_OFFERED, TUNNEL_OPEN, TUNNEL_GONE };

struct tunnel_conn {
        enum tunnel_state state;
        int fd;
        struct tunnel_listener *listener;
        uint32_t channel;
        int64_t deadline; /* for ACCEPT, then for the next byte; 0: none */
        bool readable, writable;
        /* To the host. */
        uint64_t sent, send_limit;
        bool end_sent;
        /* From the host. Bytes in the ring were not written yet. */
        uint64_t got, told_limit;
        size_t ring_head, ring_len;
        bool end_got, shut;
        uint8_t reason; /* GONE */
        pid_t worker;   /* of a service, until it is reaped; 0: none */
};

struct box_tunnel {
        struct tunnel_listener listeners[TUNNEL_MAX_LISTENERS];
        struct tunnel_listener services; /* of connections that the host makes */
        struct tunnel_conn conns[TUNNEL_MAX_CONNS];
        char *rings;
        uint32_t n_conns;
        uint32_t next_channel;
        uint32_t next_from_host;
        int say_next;     /* where the next round begins */
        int64_t retry_at; /* accepting failed; 0: no */
};

/* The connection is broken: close it with a reset, and tell the host when there is room. */
void tunnel_lose(struct box *b, struct tunnel_conn *k, uint8_t reason);
/* Free it when both directions have ended. */
void tunnel_close_if_over(struct box *b, struct tunnel_conn *k);
void tunnel_release(struct box *b, struct tunnel_conn *k);
void tunnel_touch(struct box *b, struct tunnel_conn *k);

/* service.c */
void service_connect(struct box *b, struct conn *c, const struct tunnel_frame *f);
void service_end(struct tunnel_conn *k);
