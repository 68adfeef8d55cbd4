/* The kept events of live.c: a ring for each company that had any, newest at its end.
 *
 * A company keeps so many events and so many bytes; all companies together keep so many bytes. When
 * that is exceeded, one of the companies that keep most gives up its oldest event. A company that
 * keeps less than half as much as the largest loses nothing, however many events the others
 * publish.
 *
 * A company without kept events has no ring. The last event given up is remembered as a number; for
 * companies without a ring there is one number for all of them together, so the answer of
 * live_rings_gone() may be too high for them, never too low.
 *
 * The caller holds the lock of live.c. */
#pragma once

#include <stdatomic.h>

#include "core/live/live.h"

#define LIVE_RING_EVENTS 16384
#define LIVE_RING_BYTES  ((size_t)8 << 20)
#define LIVE_ALL_BYTES   ((size_t)16 << 20)

#define LIVE_HEAD_MAX 24 /* {"id":NUMBER */

/* An event and its users: its ring, and readers. */
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
        int64_t gone; /* the newest event of rings that do not exist any more */
};

/* Numbers up to `gone` are from before this start. */
void live_rings_init(struct live_rings *all, int64_t gone);
void live_rings_done(struct live_rings *all);

/* Add the newest event; takes its reference. */
void live_rings_add(struct live_rings *all, struct shared_event *take_event);
/* Events of the company up to this number may have been given up; all later ones are kept. */
int64_t live_rings_gone(const struct live_rings *all, const char *company_id);
/* The company's first event with this number or a greater one, with a reference; or NULL. */
struct shared_event *live_rings_find(const struct live_rings *all, const char *company_id,
                                     int64_t from);
