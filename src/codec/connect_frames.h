/* Messages of a stream of Connect's protocol: a byte of flags, the length in four bytes, the
 * highest first, and so many bytes. Bytes are fed as they come, in pieces of any size. Pure; one
 * thread. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define FRAMES_LAST 0x02 /* of the flags: the message that ends the stream */

struct frames {
        struct buf rest; /* a message that has begun */
        size_t max;
        int (*fn)(void *ctx, unsigned flags, const char *data, size_t len, struct err *err);
        void *ctx;
};

void frames_init(struct frames *f, size_t max,
                 int (*fn)(void *ctx, unsigned flags, const char *data, size_t len,
                           struct err *err),
                 void *ctx);
void frames_done(struct frames *f);
/* 0, ERR_TOO_LARGE, ERR_INVALID for a message that is compressed, or what fn returned. */
int frames_feed(struct frames *f, const void *bytes, size_t len, struct err *err);
void frames_put(struct buf *b, unsigned flags, const char *data, size_t len);
