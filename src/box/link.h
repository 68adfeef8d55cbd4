/* The host's end of the box protocol (docs/box-protocol.md) on one byte stream.
 *
 * A link is made from a connected descriptor, says HELLO and is usable after on_welcome. Channels
 * are numbers of the caller's choice, each higher than the one before. Every callback may come
 * after any call; none comes before the call returns. After on_closed nothing comes any more;
 * box_link_close() is silent.
 *
 * The box is not trusted. The link knows the phase of each channel and holds every frame against
 * codec/peer_state.h before a callback sees it: on_started comes once and only after START, nothing
 * but on_taken after on_exit, and so on. A breach is told to the box (ERROR 3) and ends the link.
 * The caller bounds how much is sent (box_link_pending()).
 *
 * Loop thread only. */
#pragma once

#include <uv.h>

#include "codec/frame_tunnel.h"

struct box_link;

struct box_welcome {
        uint32_t features;
        uint32_t pid;
        uint8_t kill_method;
        uint64_t spool_limit;
};

struct box_start {
        uint8_t id[FRAME_UUID];
        uint32_t flags; /* BOX_START_* */
        uint64_t timeout_ms;
        uint32_t grace_ms;
        uint16_t columns, rows;
        const char *cwd, *spool_dir, *command; /* "" for none */
        const char *const *args;               /* NULL-terminated, without argv[0] */
        const char *const *env;                /* NULL-terminated NAME=value */
        struct box_output output;
        const char *const *acp;    /* the command is an ACP agent: what its client is told */
        const char *const *redact; /* values to keep out of the output; NULL-terminated, or NULL */
};

struct box_link_events {
        void (*on_welcome)(void *ctx, const struct box_welcome *welcome);
        void (*on_listed)(void *ctx);
        /* channel 0: an answer to LIST. Below 0: a breach, as for the others that return. */
        int (*on_state)(void *ctx, uint32_t channel, const struct box_state *state,
                        struct err *err);
        void (*on_started)(void *ctx, uint32_t channel, uint32_t pid, uint64_t started_ms,
                           uint8_t kill_method);
        void (*on_failed)(void *ctx, uint32_t channel, uint16_t code, const char *text);
        int (*on_data)(void *ctx, uint32_t channel, uint8_t stream, uint64_t offset,
                       const char *data, size_t len, struct err *err);
        void (*on_grew)(void *ctx, uint32_t channel, uint8_t stream, uint64_t len);
        void (*on_taken)(void *ctx, uint32_t channel, uint64_t taken, uint64_t limit);
        void (*on_exit)(void *ctx, uint32_t channel, const struct box_exit *e);
        void (*on_error)(void *ctx, uint32_t channel, uint16_t code, const char *text);
        void (*on_stopped)(void *ctx);
        void (*on_pong)(void *ctx, uint64_t token);
        /* A frame of the tunnel (box/tunnel.h). */
        int (*on_tunnel)(void *ctx, const struct frame_header *h, struct frame_in *f,
                         struct err *err);
        /* Some of what waited was sent. */
        void (*on_drained)(void *ctx);
        /* The stream ended or was given up; `why` is for people. `is_breach`: the box does not keep
         * to the protocol, which says nothing of what runs there. */
        void (*on_closed)(void *ctx, const char *why, bool is_breach);
};

/* Takes the descriptor (non-blocking or not). Members of *events that are NULL are skipped. */
int box_link_open(uv_loop_t *loop, int take_fd, const uint8_t node[FRAME_UUID], uint64_t epoch,
                  const struct box_link_events *events, void *ctx, struct box_link **ret,
                  struct err *err);
/* No callback follows. The memory goes when the loop has closed the handle. */
void box_link_close(struct box_link *l);
/* The same, and on_closed comes, before this returns: for a box that does not answer. */
void box_link_cut(struct box_link *l, const char *why);

void box_link_list(struct box_link *l);
void box_link_ping(struct box_link *l, uint64_t token);
void box_link_start(struct box_link *l, uint32_t channel, const struct box_start *start);
/* flags: BOX_START_SHARED when it was started so. */
void box_link_attach(struct box_link *l, uint32_t channel, const uint8_t id[FRAME_UUID],
                     uint32_t flags);
void box_link_ack(struct box_link *l, uint32_t channel, uint8_t stream, uint64_t stored,
                  uint64_t limit);
/* len at most FRAME_MAX_PAYLOAD / 2. */
void box_link_stdin(struct box_link *l, uint32_t channel, uint64_t offset, bool eof,
                    const void *data, size_t len);
void box_link_signal(struct box_link *l, uint32_t channel, uint8_t signal);
void box_link_resize(struct box_link *l, uint32_t channel, uint16_t columns, uint16_t rows);
void box_link_forget(struct box_link *l, uint32_t channel);
void box_link_stop(struct box_link *l, uint32_t grace_ms);
void box_link_tunnel(struct box_link *l, const struct tunnel_frame *f);

/* Bytes that the kernel did not take yet. */
size_t box_link_pending(const struct box_link *l);
/* Bytes that have come from the box. */
uint64_t box_link_heard(const struct box_link *l);
