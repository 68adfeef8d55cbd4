/* Both directions of one byte stream that shares its carrier with others: how much came and may
 * come, how much was sent and may be sent. The frames are the tunnel's (frame_tunnel.h); this is
 * what both ends of a relay check and count in the same way.
 *
 * Any thread; one stream belongs to one thread at a time. */
#pragma once

#include "codec/frame_tunnel.h"

#define CREDIT_WINDOW ((uint64_t)256 << 10)

struct credit {
        uint64_t got, told;   /* bytes that came; up to where the other side may send */
        uint64_t sent, limit; /* bytes that were sent; up to where we may */
        bool end_got, end_sent;
};

/* What BYTES, WINDOW and END say about the stream. ERR_INVALID for a gap, bytes past the credit or
 * the end, credit that is taken back, and other frames. */
int credit_take(struct credit *c, const struct tunnel_frame *f, struct err *err);

/* How many bytes may be sent now. */
static inline uint64_t credit_room(const struct credit *c)
{
        return c->end_sent || c->limit < c->sent ? 0 : c->limit - c->sent;
}

/* Append what there is to say to the buffer. */
void credit_send(struct credit *c, struct buf *out, uint32_t channel, const void *p, size_t len);
void credit_end(struct credit *c, struct buf *out, uint32_t channel);
/* `waiting` of the bytes that came were not passed on yet. Says so only when it is worth a frame.
 */
void credit_give(struct credit *c, struct buf *out, uint32_t channel, size_t waiting);
