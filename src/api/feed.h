/* A feed: an answer that lasts. Live events, the log of a run, the output of a command and
 * terminals are kinds of it; each is a table of operations, and everything else is decided here:
 *
 *   who may stay    with every beat the key is looked up again and kind->may() asked: streams last
 *                   for days, and keys, memberships and grants are taken away meanwhile
 *   the beat        half of live_ping_ms, at most 15 s: events get a comment. A WebSocket gets a
 *                   ping every live_ping_ms and has to answer before the next
 *   backpressure    kind->next() is called while less than FEED_AHEAD bytes wait for the client;
 *                   what the client does not read waits where it comes from
 *   failures        what cannot be read is tried again for 30 s; then the stream is cut
 *   the end         a WebSocket is told why (the table in feed.c). Of the others, events end
 *                   without their last event, and bytes are cut: what is missing must not look like
 *                   the end
 *   stopping        all streams end when the daemon stops; clients come back to the next one
 *
 * The handler checks rights, makes the struct that has the stream in it, and calls feed_open(). It
 * begins when the handler has returned. Where to go on is the client's to say; the kind reads it
 * (feed_position()).
 *
 * Loop thread, except feed_open(), kind->load() and kind->may(). The memory stays until the
 * connection is over, no job runs and there is no feed_hold(); kind->free() is the last call. */
#pragma once

#include "api/api.h"
#include "codec/websocket.h"
#include "core/live/live.h"

#define FEED_AHEAD ((size_t)512 * 1024)

struct feed;

enum feed_frame {
        FEED_EVENTS, /* text/event-stream */
        FEED_SOCKET, /* text messages of a WebSocket: ROUTE_SOCKET */
        FEED_BYTES,  /* as they are */
};

/* What next() found, in the order in which it counts when there is more than one source. */
enum feed_step {
        FEED_WAIT,   /* nothing now; the kind calls feed_pump() when there may be something */
        FEED_FAILED, /* it could not be read now: again in a moment */
        FEED_MORE,   /* it wrote something; again */
        FEED_LOAD,   /* load() has to run first */
        FEED_DONE,   /* everything is said */
        FEED_LOST,   /* it cannot go on: cut */
};

enum feed_end {
        FEED_END_DONE,
        FEED_END_GONE,    /* the client is */
        FEED_END_SILENT,  /* the last ping was not answered */
        FEED_END_REFUSED, /* the caller may no longer */
        FEED_END_STOPPED, /* the daemon stops */
        FEED_END_CUT,
        FEED_END_CONFUSED, /* the client sent something that is not understood */
};

struct feed_kind {
        const char *content_type; /* of FEED_BYTES */
        size_t max_message;       /* that a client may send over a WebSocket */

        /* Operation: whether the caller, op->actor, may still have it. */
        int (*may)(struct feed *f, struct op *op, struct err *err);
        /* The head is out. May be NULL. The client may be gone already: then `closed` follows. */
        void (*begin)(struct feed *f);
        enum feed_step (*next)(struct feed *f);
        /* Operation, for FEED_LOAD; next() is not called meanwhile. May be NULL. */
        void (*load)(struct feed *f, struct op *op);
        /* There may be events of the company: live_reader_take(). May be NULL. */
        void (*woken)(struct feed *f);
        /* Time has passed, and next() will be called. May be NULL. */
        void (*tick)(struct feed *f);
        /* A message of the client; false: it has no meaning. NULL: they are skipped. */
        bool (*message)(struct feed *f, const char *data, size_t len);
        const char *no_message; /* the text that the client gets for a message without meaning */
        /* The connection is over: let go of what wakes it. May be NULL. */
        void (*closed)(struct feed *f, enum feed_end why);
        /* The daemon stops while the stream is over and still held. May be NULL. */
        void (*stopped)(struct feed *f);
        void (*free)(struct feed *f);
};

struct feed {
        const struct feed_kind *kind;
        enum feed_frame frame;
        struct api *api;
        struct call *c; /* NULL once the connection is over */
        char company_id[UUID_LEN + 1];
        struct live_reader reader;
        struct buf out; /* framed; sent when begin() or next() returns */

        uv_timer_t timer;
        uint64_t beat_ms, beat_at;
        uint64_t again_at;      /* next() is to be called then; 0: when something happens */
        uint64_t failing_since; /* 0: the last read worked */
        unsigned holds;

        struct pool_job load_job, check_job;
        bool loading, checking;
        bool refused;        /* what the check found */
        char *authorization; /* a copy: the check may outlast the call */
        bool is_operator;
        int64_t last_id;

        /* of a WebSocket */
        struct websocket_decoder in;
        bool pinged; /* and no answer yet */
};

/* Operation, at the end of a handler: the call becomes this stream, whose kind has a zeroed struct
 * around it. last_id: where to begin with the company's events. */
void feed_open(struct feed *f, struct call *c, const struct feed_kind *kind, enum feed_frame frame,
               const char *company_id, int64_t last_id);

/* Take what next() gives, as far as the client has room for it. */
void feed_pump(struct feed *f);
/* The same later; also when nothing happens until then. */
void feed_pump_in(struct feed *f, uint64_t ms);
void feed_end(struct feed *f, enum feed_end why);

/* For begin() and next(). An event, with id and type; a message; or just the data. */
void feed_put(struct feed *f, const char *id, const char *type, const char *data, size_t len);
/* A sign of life: a comment, for those that have them. */
void feed_put_comment(struct feed *f);

/* Something outside refers to the stream. */
void feed_hold(struct feed *f);
void feed_release(struct feed *f);

/* A position as clients give it: digits. */
bool feed_position(const char *text, int64_t *ret);
