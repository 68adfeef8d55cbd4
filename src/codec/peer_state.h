/* What a peer that is not trusted may say, and when: the one table that every frame from a box,
 * from a relay and every message of a file worker is held against before it is acted on.
 * docs/box-protocol.md, section 13, has it in words.
 *
 *   peer_frame_fits()  the payload is one of its type, and every number in it is in its range
 *   peer_move()        it may come in this phase; the phase that follows
 *
 * A frame that is not in the table is a breach. The side that finds one ends the connection with
 * the error's text and concludes nothing else from it: not that a command has ended, nor that a box
 * is gone.
 *
 * A phase belongs to one thing: a link, a channel of it, a connection, a stream, a question, a
 * worker, a slot. What bounds a frame beyond its own numbers (credit, offsets, lengths that only
 * grow) is checked by the owner of the phase, which knows them.
 *
 * Pure functions; any thread. */
#pragma once

#include "codec/frame.h"

#define PEER_MAX_TIME   UINT64_C(253402300799999) /* the end of the year 9999, in ms */
#define PEER_MAX_LENGTH ((uint64_t)1 << 62)       /* of a stream: offsets and limits up to here */

enum peer_phase {
        PEER_QUIET, /* of a slot: nothing may come */

        /* The link to a box (box/link.c) */
        LINK_GREETING, /* HELLO was sent */
        LINK_LISTING,  /* LIST was sent */
        LINK_READY,
        LINK_STOPPING, /* STOP was sent */
        LINK_OVER,     /* it said its last word */

        /* A channel of the link: one execution */
        CHANNEL_STARTING,  /* START was sent */
        CHANNEL_ATTACHING, /* ATTACH was sent */
        CHANNEL_RUNNING,
        CHANNEL_ENDED, /* EXIT came */
        CHANNEL_OVER,  /* FORGET was sent, or it failed to start */

        /* The tunnel of the link (box/tunnel.c), and one connection in it */
        TUNNEL_UP,
        CONN_ASKED, /* CONNECT was sent */
        CONN_OPEN,
        CONN_ENDED, /* END came */
        CONN_OVER,  /* reset, or closed here */

        /* A relay (box/mux.c), a question to it, and a stream through it */
        RELAY_READY,
        QUESTION_ASKED,
        STREAM_ASKED, /* OPEN was sent */
        STREAM_OPEN,
        STREAM_ENDED, /* END came */
        STREAM_OVER,

        /* A file worker (workspace/sync_session.c); messages of codec/sync_wire.h */
        WORKER_GREETING, /* HELLO and TREE were sent */
        WORKER_OPENING,  /* HELLO came */
        WORKER_SCANNING, /* READY came */
        WORKER_MOVING,   /* SCANNED came */
        WORKER_OVER,
        /* One file of it: asked for (GET), or offered to it (BIG) */
        GET_ASKED,
        GET_COMING, /* BIG came */
        PUT_OFFERED,
        PUT_SENT, /* BIG_END was sent */

        PEER_N_PHASES,
        PEER_SAME, /* in the table: the phase stays */
};

enum peer_often {
        PEER_ANY,   /* as often as it likes */
        PEER_ONCE,  /* the phase that follows does not allow it */
        PEER_ASKED, /* once for each time that it was asked for */
};

struct peer_rule {
        uint64_t phases; /* PEER_IN() of each */
        uint8_t type;    /* enum frame_type, or enum sync_type in the phases of a file worker */
        uint8_t next;    /* enum peer_phase */
        uint8_t often;   /* enum peer_often */
};

#define PEER_IN(phase) (UINT64_C(1) << (phase))

/* All that is allowed; ended by a row without phases. */
extern const struct peer_rule peer_rules[];

/* 0, or ERR_INVALID. */
int peer_frame_fits(const struct frame_header *h, const void *payload, struct err *err);

/* Move to the phase that follows; 0, or ERR_INVALID and nothing changed. *asked counts what was
 * asked for and not answered; NULL: nothing was. */
int peer_move(enum peer_phase *phase, uint8_t type, unsigned *asked, struct err *err);

/* "STARTED"; NULL for what no box, relay or host sends. */
const char *peer_frame_name(uint8_t type);
