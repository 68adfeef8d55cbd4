/* Decides which live events are kept in memory, and which are given up first. */
#include "core/live/live_ring.h"

#include <stdio.h>

#include "base/hash.h"

#define FIRST_SLOTS 8 /* a power of two, as all sizes of rings are */

struct live_ring {
        struct live_ring *next;          /* of the same bucket */
        struct live_ring *older, *newer; /* of about the same size */
        char company_id[UUID_LEN + 1];
        struct shared_event **slots;
        size_t n_slots, first, n;
        size_t bytes;
        unsigned size_class;
        int64_t gone;
};

void live_event_unref(struct shared_event *e)
{
        if (atomic_fetch_sub(&e->refs, 1) == 1)
                free(e);
}

/* The cost of keeping an event: its own memory, and a slot in a ring that is at least a quarter
 * full. */
static size_t cost(const struct shared_event *e)
{
        return sizeof(*e) + LIVE_HEAD_MAX + e->event.len + 4 * sizeof(void *);
}

/* By size */

static unsigned class_of(size_t bytes)
{
        unsigned n = 0;

        while (bytes >>= 1)
                n++;
        return n;
}

static void leave_class(struct live_rings *all, struct live_ring *r)
{
        struct live_ring **head = &all->sizes[r->size_class];

        r->older->newer = r->newer;
        r->newer->older = r->older;
        if (*head == r)
                *head = r->newer == r ? NULL : r->newer;
}

static void enter_class(struct live_rings *all, struct live_ring *r)
{
        r->size_class = class_of(r->bytes);
        struct live_ring **head = &all->sizes[r->size_class];
        if (!*head)
                *head = r->older = r->newer = r;
        r->newer = *head;
        r->older = (*head)->older;
        r->older->newer = r->newer->older = r;
}

static void resized(struct live_rings *all, struct live_ring *r)
{
        if (class_of(r->bytes) == r->size_class)
                return;
        leave_class(all, r);
        enter_class(all, r);
}

static struct live_ring *one_of_the_largest(const struct live_rings *all)
{
        size_t i = ARRAY_LEN(all->sizes);

        while (i-- > 0)
                if (all->sizes[i])
                        return all->sizes[i];
        return NULL;
}

/* By company */

static size_t bucket_of(const struct live_rings *all, const char *company_id)
{
        return (size_t)(hash_text(company_id) % ARRAY_LEN(all->buckets));
}

static struct live_ring *find_ring(const struct live_rings *all, const char *company_id)
{
        struct live_ring *r = all->buckets[bucket_of(all, company_id)];

        while (r && !streq(r->company_id, company_id))
                r = r->next;
        return r;
}

static struct live_ring *new_ring(struct live_rings *all, const char *company_id)
{
        struct live_ring **bucket = &all->buckets[bucket_of(all, company_id)];
        struct live_ring *r = xcalloc(1, sizeof(*r));

        snprintf(r->company_id, sizeof(r->company_id), "%s", company_id);
        r->n_slots = FIRST_SLOTS;
        r->slots = xcalloc(r->n_slots, sizeof(void *));
        r->gone = all->gone;
        r->bytes = sizeof(*r) + FIRST_SLOTS * sizeof(void *);
        all->bytes += r->bytes;
        r->next = *bucket;
        *bucket = r;
        enter_class(all, r);
        return r;
}

static void free_ring(struct live_rings *all, struct live_ring *r)
{
        struct live_ring **at = &all->buckets[bucket_of(all, r->company_id)];

        while (*at != r)
                at = &(*at)->next;
        *at = r->next;
        leave_class(all, r);
        all->bytes -= r->bytes;
        all->gone = MAX(all->gone, r->gone);
        free(r->slots);
        free(r);
}

/* One ring */

static struct shared_event **slot(const struct live_ring *r, size_t i)
{
        return &r->slots[(r->first + i) & (r->n_slots - 1)];
}

static void resize_slots(struct live_ring *r, size_t n_slots)
{
        struct shared_event **slots = xcalloc(n_slots, sizeof(void *));

        for (size_t i = 0; i < r->n; i++)
                slots[i] = *slot(r, i);
        free(r->slots);
        r->slots = slots;
        r->n_slots = n_slots;
        r->first = 0;
}

static void drop_oldest(struct live_rings *all, struct live_ring *r)
{
        struct shared_event *e = *slot(r, 0);

        r->gone = e->event.id;
        r->bytes -= cost(e);
        all->bytes -= cost(e);
        r->first = (r->first + 1) & (r->n_slots - 1);
        r->n--;
        live_event_unref(e);
        if (r->n_slots > FIRST_SLOTS && r->n <= r->n_slots / 4)
                resize_slots(r, r->n_slots / 2);
        resized(all, r);
        if (r->n == 0)
                free_ring(all, r);
}

void live_rings_add(struct live_rings *all, struct shared_event *take_event)
{
        struct live_ring *r = find_ring(all, take_event->event.company_id);
        size_t bytes = cost(take_event);

        if (!r)
                r = new_ring(all, take_event->event.company_id);
        if (r->n == LIVE_RING_EVENTS)
                drop_oldest(all, r);
        if (r->n == r->n_slots)
                resize_slots(r, 2 * r->n_slots);
        *slot(r, r->n++) = take_event;
        r->bytes += bytes;
        all->bytes += bytes;
        resized(all, r);
        while (r->n > 1 && r->bytes > LIVE_RING_BYTES)
                drop_oldest(all, r);
        while (all->bytes > LIVE_ALL_BYTES && (r = one_of_the_largest(all)))
                drop_oldest(all, r);
}

int64_t live_rings_gone(const struct live_rings *all, const char *company_id)
{
        const struct live_ring *r = find_ring(all, company_id);

        return r ? r->gone : all->gone;
}

struct shared_event *live_rings_find(const struct live_rings *all, const char *company_id,
                                     int64_t from)
{
        const struct live_ring *r = find_ring(all, company_id);
        size_t low = 0, high = r ? r->n : 0;

        while (low < high) {
                size_t middle = low + (high - low) / 2;

                if ((*slot(r, middle))->event.id < from)
                        low = middle + 1;
                else
                        high = middle;
        }
        if (!r || low == r->n)
                return NULL;
        struct shared_event *e = *slot(r, low);
        atomic_fetch_add(&e->refs, 1);
        return e;
}

/* Life */

void live_rings_init(struct live_rings *all, int64_t gone)
{
        *all = (struct live_rings){ .gone = gone };
}

void live_rings_done(struct live_rings *all)
{
        for (size_t b = 0; b < ARRAY_LEN(all->buckets); b++) {
                struct live_ring *r = all->buckets[b], *next;

                for (; r; r = next) {
                        next = r->next;
                        for (size_t i = 0; i < r->n; i++)
                                live_event_unref(*slot(r, i));
                        free(r->slots);
                        free(r);
                }
        }
        *all = (struct live_rings){ 0 };
}
