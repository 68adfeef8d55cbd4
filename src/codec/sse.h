/* text/event-stream, both ways, as browsers define it.
 *
 * Writing: sse_put() appends one event to a buf. Reading: bytes are fed as they come, in pieces of
 * any size, and the callback is called once for each event that is complete. An event that is
 * unfinished when the stream ends is dropped.
 *
 * Invariant of the decoder: it holds at most max_event bytes for the line it is in and as many for
 * the data that it has collected; past that the stream is refused, and stays refused.
 *
 * One thread at a time. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* id and event may be NULL: no such line. Line ends in data become lines of their own; in id and
 * event, where they cannot be said, they are left out, and so is NUL. data needs no NUL at its end.
 */
void sse_put(struct buf *b, const char *id, const char *event, const char *data, size_t len);
/* ": text", which readers skip: proof of life. */
void sse_put_comment(struct buf *b, const char *text);

struct sse_event {
        const char *id;    /* the last one that the stream gave; "" before the first */
        const char *event; /* "message" when the stream did not say */
        const char *data;  /* NUL-terminated, lines joined by \n */
        size_t len;
};

struct sse_decoder {
        /* Less than 0 stops the decoder, and sse_feed() returns it. The event is borrowed. */
        int (*on_event)(void *ctx, const struct sse_event *event, struct err *err);
        void *ctx;
        size_t max_event;
        struct buf line;
        struct buf data;
        struct buf event;
        struct buf id;    /* of the event that is being read */
        int64_t retry_ms; /* what the stream asked for, or -1 */
        bool has_data;    /* a data line was seen, be it empty */
        bool after_cr;    /* a \n right now belongs to the \r before */
        bool after_start; /* past the place for a byte order mark */
        int failed;       /* what ended the stream */
};

void sse_decoder_init(struct sse_decoder *d, size_t max_event,
                      int (*on_event)(void *ctx, const struct sse_event *event, struct err *err),
                      void *ctx);
void sse_decoder_done(struct sse_decoder *d);

/* 0, ERR_TOO_LARGE, or what the callback returned; after a failure always that failure. */
int sse_feed(struct sse_decoder *d, const void *bytes, size_t len, struct err *err);
