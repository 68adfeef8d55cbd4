/* Messages (codec/sync_wire.h) over a descriptor, each direction one zstd stream.
 *
 * Neither side can hold the other up for ever: the daemon's side has `on_message` and reads
 * whenever it waits, also while it sends, and what it gets it only notes (it does not send from
 * within). The worker's side has none; it reads when it asks for a message.
 *
 * What is kept is bounded: one message in, a little more than SYNC_OUT_HIGH out.
 *
 * Part of berth and of berth-box. Blocking; one thread. */
#pragma once

#include <zstd.h>

#include "codec/sync_wire.h"

#define SYNC_OUT_HIGH ((size_t)256 << 10)

struct sync_io {
        int fd;
        /* Wait until fd has one of `events`: 1, or ERR_* when it is not worth it any more. */
        int (*wait)(void *ctx, int fd, short events, struct err *err);
        /* 0, or why to stop; between steps of long work. May be NULL. */
        int (*check)(void *ctx, struct err *err);
        void *ctx;
        int (*on_message)(void *ctx, const struct sync_msg *m, struct err *err);
        void *message_ctx;

        ZSTD_CCtx *enc;
        ZSTD_DCtx *dec;
        struct buf plain; /* one message, before it is compressed */
        struct buf out;
        size_t out_sent;
        bool unflushed; /* the encoder holds something back */
        struct buf in;  /* as read */
        size_t in_used;
        bool dec_full;   /* the decoder may hold more than fitted */
        struct buf msgs; /* decompressed */
        size_t msgs_used;
        bool ended;
        uint64_t sent_bytes, got_bytes; /* on the wire */
};

/* Set fd, wait, check, ctx first. */
int sync_io_init(struct sync_io *io, struct err *err);
void sync_io_done(struct sync_io *io);

int sync_io_check(const struct sync_io *io, struct err *err);
int sync_send(struct sync_io *io, const struct sync_msg *m, struct err *err);
/* Everything that was sent is on its way. */
int sync_flush(struct sync_io *io, struct err *err);

/* The worker's side: 1 with a message, borrowed until the next call; 0 at the end. */
int sync_receive(struct sync_io *io, struct sync_msg *ret, struct err *err);

/* The daemon's side: send what there is, wait for something, hand it to on_message. The end of the
 * stream is an error. */
int sync_step(struct sync_io *io, struct err *err);

static inline struct frame_bytes sync_text(const char *s)
{
        return (struct frame_bytes){ s, strlen(s) };
}
