/* Many boxes over one carrier: the host's end of the relay (docs/box-protocol.md, section 11).
 *
 * The carrier is a pair of descriptors, for example the standard streams of an ssh process whose
 * remote command is `berth-box --relay --dir BASE`. Each stream to a box is an ordinary connected
 * descriptor here, so box_link_open() takes it as it takes a local box's. Credit per stream bounds
 * how much is kept on either side; a stream that stalls does not stop the others. When the carrier
 * ends, every stream ends: descriptors read end-of-file, and questions are answered with ERR_BUSY.
 *
 * The relay is not trusted: a frame that codec/peer_state.h does not allow, or that exceeds the
 * credit, ends the carrier.
 *
 * Loop thread only, except mux_ask_wait(). */
#pragma once

#include <uv.h>

#include "base/uuid.h"
#include "codec/frame_tunnel.h"
#include "rt/mail.h"

#define MUX_MAX_STREAMS   1024
#define MUX_MAX_QUESTIONS 1024

struct mux;

struct mux_events {
        /* The relay answers: the way is open. Optional. */
        void (*on_ready)(void *ctx);
        /* The carrier ended or was given up; `why` is for people. `is_breach`: the relay does not
         * keep to the protocol. Nothing comes after it, and the mux frees itself. */
        void (*on_closed)(void *ctx, const char *why, bool is_breach);
};

/* Takes both descriptors, which may be one and the same; also when it fails. Whatever comes before
 * the relay's first frame is a login's chatter and is skipped, up to 64 KiB. */
int mux_open(uv_loop_t *loop, int take_in, int take_out, const struct mux_events *events, void *ctx,
             struct mux **ret, struct err *err);
/* No callback follows but those of questions. The memory goes when the loop has closed it. */
void mux_close(struct mux *m);
bool mux_is_ready(const struct mux *m);

/* A descriptor that speaks to the box. Never waits: bytes that are written are sent on when the
 * relay has reached the box. Where there is none, or it ends, it reads end-of-file. */
int mux_connect(struct mux *m, const char *box_id, int *ret_fd, struct err *err);

/* Other questions about a box on that host. */
enum mux_want {
        MUX_ENSURE = 1, /* it runs; started when it does not. Answer 0 */
        MUX_ALIVE = 2,  /* answer 1 or 0 */
        MUX_BURY = 3,   /* nothing of it is left, what it ran included. Answer 0 */
        MUX_LIST = 4,   /* the boxes after box_id: lines of text, and 1 when there are more */
};

/* Owned by the caller until `done`, which comes from the loop and exactly once. */
struct mux_question {
        enum mux_want want;
        char box_id[UUID_LEN + 1];
        /* MUX_BURY: what it ran, as far as known. MUX_ENSURE: the node that wants it, or none.
         * NULL-terminated. */
        const char *const *exec_ids;
        /* 0 or more, or ERR_* with a text: ERR_BUSY when the carrier ended first. */
        void (*done)(struct mux_question *q, int code, const char *text);
        /* the mux's own */
        struct mux_question *next;
        uint32_t channel;
};

void mux_ask(struct mux *m, struct mux_question *take_question);

/* Operation: ask, and wait for the answer within the operation's time. `find` is called on the loop
 * thread with a copy of `key` and names the mux, or NULL when there is none now (ERR_BUSY). */
int mux_ask_wait(struct op *op, struct mail *mail,
                 struct mux *(*find)(void *owner, const char *key), void *owner, const char *key,
                 enum mux_want want, const char *box_id, const char *const *exec_ids,
                 struct err *err);

/* Operation: all boxes of the host, with the node that had each made, or NULL where that is not
 * known. The relay's word. */
typedef int (*mux_box_fn)(void *ctx, const char *box_id, const char *node);
int mux_list_wait(struct op *op, struct mail *mail,
                  struct mux *(*find)(void *owner, const char *key), void *owner, const char *key,
                  mux_box_fn fn, void *ctx, struct err *err);
