/* The host's end of the tunnel (docs/box-protocol.md, section 8): connections made inside an
 * environment, and those that we make to a service of the box, become byte streams here.
 *
 * A tunnel belongs to one box and outlives its links: listeners are asked for again on each new
 * link; streams of a link that is gone are broken. Each connection has its own credit, given out as
 * the consumer reads, so the bytes kept for one that does not read are bounded. Writing is bounded
 * by the box's credit and by the bytes that the link still has to send.
 *
 * The box is not trusted: a frame that codec/peer_state.h does not allow, or that exceeds the
 * credit, is an error of tunnel_frame_in() and ends the link.
 *
 * Loop thread only. */
#pragma once

#include "box/link.h"
#include "codec/frame_tunnel.h"
#include "rt/byte_stream.h"

struct tunnel;

/* Embedded in what serves the connections. */
struct tunnel_listener {
        struct tunnel_listener *next;
        uint8_t id[FRAME_UUID];
        uint8_t kind;     /* TUNNEL_CALLBACK or TUNNEL_PROXY */
        uint16_t port;    /* asked for; 0: any */
        uint32_t idle_ms; /* without a byte; 0: no limit */
        /* Optional. On each link: the port, or 0 with the code (BOX_ERR_*) and why. */
        void (*on_listening)(struct tunnel_listener *l, uint16_t port, uint16_t code,
                             const char *text);
        /* A connection was made; the stream is the consumer's to close. */
        void (*on_stream)(struct tunnel_listener *l, struct byte_stream *take_stream);
};

int tunnel_new(uv_loop_t *loop, struct tunnel **ret, struct err *err);
/* Streams that are open break, and are still their consumers' to close. Frees once the last is
 * closed and the loop came round. */
void tunnel_free(struct tunnel *t);

/* The link says WELCOME with the feature; the link is gone. */
void tunnel_up(struct tunnel *t, struct box_link *link);
void tunnel_down(struct tunnel *t);
/* Frames of the tunnel from the link, and the link's word that it has room again. */
int tunnel_frame_in(struct tunnel *t, const struct frame_header *h, struct frame_in *in,
                    struct err *err);
void tunnel_drained(struct tunnel *t);

/* A connection to a service of the box (TUNNEL_FILES); the stream is the caller's to close. It is
 * broken when the box refuses. NULL without a link. */
struct byte_stream *tunnel_connect(struct tunnel *t, uint8_t service);

void tunnel_listen(struct tunnel *t, struct tunnel_listener *l);
/* The box stops listening, and its streams break. */
void tunnel_unlisten(struct tunnel *t, struct tunnel_listener *l);
/* Only this side forgets it; the box goes on listening for the next host. */
void tunnel_forget(struct tunnel *t, struct tunnel_listener *l);
