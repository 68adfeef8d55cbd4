/* Server-sent events: bytes of a text/event-stream in, events out, as WHATWG HTML 9.2.6 reads them.
 *
 * Bytes may be cut anywhere. One event holds at most SSE_MAX_EVENT bytes; more is ERR_TOO_LARGE and
 * the stream is of no use any more. No I/O. One thread at a time. */
#ifndef BERTH_CLIENT_SSE_H
#define BERTH_CLIENT_SSE_H

#include "base/buf.h"
#include "base/err.h"

#define SSE_MAX_EVENT ((size_t)16 << 20)

struct sse_event {
        const char *id;
        const char *event;
        const char *data;
        size_t data_len;
};

/* 0 to go on; anything else stops the parser and is returned by sse_feed(). */
typedef int sse_event_fn(void *arg, const struct sse_event *event);

struct sse {
        struct buf line;
        struct buf data;
        struct buf event;
        struct buf id; /* outlives the event, as the standard wants */
        bool last_was_cr;
        bool has_data;
        bool started; /* past a byte order mark */
        sse_event_fn *fn;
        void *arg;
};

void sse_init(struct sse *s, sse_event_fn *fn, void *arg);
void sse_done(struct sse *s);
int sse_feed(struct sse *s, const char *data, size_t len, struct err *err);

#endif
