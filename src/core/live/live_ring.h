/* The kept events of live.c: a ring for each company that had any, newest at its end.
 *
 * A company keeps so many events and so many bytes; all companies together keep so many bytes. When
 * that is exceeded, one of the companies that keep most gives up its oldest: one that keeps less
 * than half of what the largest does loses nothing, however much others have to say.
 *
 * A company without kept events has no ring. What was given up is remembered as a number, here for
 * all that have none together: the answer of live_rings_gone() may be too high for them, never too
 * low.
 *
 * Whoever calls holds the lock of live.c. */
#ifndef BERTH_CORE_LIVE_RING_H
#define BERTH_CORE_LIVE_RING_H

#include <stdatomic.h>

#include "core/live/live.h"

#define LIVE_RING_EVENTS 16384
#define LIVE_RING_BYTES  ((size_t)8 << 20)
#define LIVE_ALL_BYTES   ((size_t)16 << 20)

#define LIVE_HEAD_MAX 24 /* {"id":NUMBER */

/* An event and who uses it: its ring, and readers. */
struct shared_event {
        struct live_event event;
        _Atomic unsigned refs;
        char memory[]; /* what event.text points into */
};

void live_event_unref(struct shared_event *e);

struct live_ring;

struct live_rings {
        struct live_ring *buckets[256];
        struct live_ring *sizes[32]; /* by the power of two of their bytes; circular lists */
        size_t bytes;
        int64_t gone; /* the newest of rings that are no more */
};

/* Numbers up to `gone` are of earlier times. */
void live_rings_init(struct live_rings *all, int64_t gone);
void live_rings_done(struct live_rings *all);

/* The newest event there is; takes its reference. */
void live_rings_add(struct live_rings *all, struct shared_event *take_event);
/* Up to this number events of the company may have been given up; after it all are there. */
int64_t live_rings_gone(const struct live_rings *all, const char *company_id);
/* The first of the company with this number or a greater one, with a reference; or NULL. */
struct shared_event *live_rings_find(const struct live_rings *all, const char *company_id,
                                     int64_t from);

#endif
