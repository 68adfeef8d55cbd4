/* Live events: what happens in a company, as it happens (docs/events.md, http-api 4).
 *
 * Each event has a number that only grows, also over restarts of the daemon (live.c), and is
 * kept for a while in memory (the company's ring: live_ring.h), so that a reader that comes back
 * with the last number it saw misses nothing. A reader is only a number: a slow reader costs no
 * memory and slows no other reader or publisher down.
 *
 *   reset    it came back with a number that is not in the ring (any more): it may have missed
 *            events that are not kept; it goes on with the events from now on
 *   missed   it fell behind, and the ring went on without it: it goes on with the oldest kept event
 *
 * Both are events of the reader alone. Their payload is {"after", "before"}: the reader lost
 * everything between these two numbers.
 *
 * Changes of a transaction are announced inside it (db_announce(), store/db.h) and published when
 * it is committed; live_attach() connects the two. Everything else calls live_publish().
 *
 * Publishing: any thread, never blocks. Reading: loop thread. */
#pragma once

#include <uv.h>

#include "codec/json.h"
#include "core/runtime.h"

struct live;
struct pool;

/* Numbers begin at the wall clock in microseconds, until live_number(). */
int live_new(uv_loop_t *loop, struct live **ret, struct err *err);
/* Before anything is published: from now on numbers come from the store, so that no number is given
 * twice, even when the clock was set back. The pool is for reserving more. */
int live_number(struct op *op, struct live *live, struct store *store, struct pool *pool,
                struct err *err);
/* Loop thread, after the last publisher and reader. Frees once the loop closed its handle. */
void live_free(struct live *live);
/* Loop thread: tell the readers that the daemon stops, so that the daemon need not wait for
 * them. */
void live_stop(struct live *live);
/* Publish the announcements of the store's transactions. */
void live_attach(struct live *live, struct store *store);

/* live may be NULL: nothing happens. take_payload is an object; its reference is taken. */
void live_publish(struct live *live, const char *company_id, const char *type,
                  json_t *take_payload);

/* The number of the last event; for tests and metrics. */
int64_t live_last_id(struct live *live);

/* Reading. */

#define LIVE_NOW (-1) /* no number: from now on */

/* One event; immutable, shared. `text` is {"id", "companyId", "type", "createdAt", "payload"}. */
struct live_event {
        int64_t id;
        char company_id[UUID_LEN + 1];
        char type[48];
        size_t len;
        char *text;
};
/* For CLEAN(). */
void live_event_done(struct live_event **event);

struct live_reader {
        struct live_reader *prev, *next;
        char company_id[UUID_LEN + 1];
        int64_t at;   /* the number that it looks at next */
        int64_t lost; /* its number when it lost events, until it is told; LIVE_NOW: it lost none */
        bool is_behind; /* lost while it was connected */
        /* There may be something to take. Never called from within live_reader_take(). */
        void (*ready)(struct live_reader *reader);
        /* The daemon stops: let go. May be NULL. */
        void (*stopped)(struct live_reader *reader);
};

/* `last_id`: the last event that the reader knows of, or LIVE_NOW. */
void live_reader_add(struct live *live, struct live_reader *reader, const char *company_id,
                     int64_t last_id);
bool live_is_stopped(const struct live *live);
void live_reader_remove(struct live_reader *reader);
/* The next event of the reader's company, or NULL. */
struct live_event *live_reader_take(struct live *live, struct live_reader *reader);
