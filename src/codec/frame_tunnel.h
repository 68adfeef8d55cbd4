/* The tunnel's frames (docs/box-protocol.md, section 8): connections that are made inside an
 * environment and served by the host. Both sides use the same reader, which checks everything that
 * can be checked without knowing the connection: the channel, the lengths, the ranges.
 *
 * Any thread. */
#pragma once

#include "codec/frame.h"

#define TUNNEL_BYTES_MAX (FRAME_MAX_PAYLOAD - 8) /* of one BYTES frame */
#define TUNNEL_MAX_CONNS 256                     /* of one box at a time */
#define TUNNEL_FROM_HOST 0x80000000U             /* set in the channels that the host numbers */

enum { TUNNEL_CALLBACK = 1, TUNNEL_PROXY = 2 };

/* What a box serves to the host (CONNECT). */
enum { TUNNEL_FILES = 1 };

/* Why a connection was reset. */
enum {
        TUNNEL_RESET_PEER = 1, /* the other end of the connection did */
        TUNNEL_RESET_REFUSED = 2,
        TUNNEL_RESET_IDLE = 3,
        TUNNEL_RESET_UNLISTEN = 4,
        TUNNEL_RESET_LIMIT = 5,
};

/* One frame; which fields count is said beside them. */
struct tunnel_frame {
        uint8_t type;
        uint32_t channel;       /* 0 for LISTEN, LISTENING and UNLISTEN */
        uint8_t id[FRAME_UUID]; /* LISTEN, LISTENING, UNLISTEN, OPEN: the listener */
        uint8_t kind;           /* LISTEN; CONNECT: the service */
        uint16_t port;          /* LISTEN; LISTENING */
        uint32_t idle_ms;       /* LISTEN */
        uint16_t code;          /* LISTENING: 0, or why not */
        struct frame_bytes text;
        uint64_t limit;  /* OPEN, ACCEPT, WINDOW, CONNECT: bytes up to this offset may be sent */
        uint64_t offset; /* BYTES: of the first byte; END: of the byte that will not come */
        struct frame_bytes data; /* BYTES */
        uint8_t reason;          /* RESET */
};

static inline bool frame_is_tunnel(uint8_t type)
{
        return type >= FRAME_LISTEN && type <= FRAME_TUNNEL_LAST;
}

/* Bytes are borrowed from the payload. ERR_INVALID for what is no tunnel frame. */
int tunnel_frame_read(const struct frame_header *h, struct frame_in *f, struct tunnel_frame *ret,
                      struct err *err);
/* Append the frame to the buffer. */
void tunnel_frame_write(struct buf *b, const struct tunnel_frame *t);
