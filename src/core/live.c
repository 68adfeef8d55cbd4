/* The ring is an array of the newest events; an event's place in it follows from its number,
 * because numbers have no gaps while the daemon runs. The first number is the wall clock in
 * microseconds at the start: no daemon publishes a million events a second, so the numbers of the
 * next one are greater. What a reader of an earlier daemon asks for is then older than the ring:
 * `reset`. */
#include "core/live.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"

#define RING_EVENTS 16384 /* a power of two */
#define RING_BYTES  ((size_t)8 << 20)
#define HEAD_MAX    24 /* {"id":NUMBER */

/* An event and who uses it: the ring, and readers. */
struct shared_event {
        struct live_event event;
        _Atomic unsigned refs;
        char memory[]; /* what event.text points into */
};

struct live {
        uv_async_t wake;
        struct live_reader readers; /* the head of a circular list; loop thread */
        bool stopped;

        pthread_mutex_t lock;
        struct shared_event *ring[RING_EVENTS];
        int64_t oldest, next; /* numbers in the ring: oldest <= number < next */
        size_t bytes;
};

/* Events */

static void unref(struct shared_event *e)
{
        if (atomic_fetch_sub(&e->refs, 1) == 1)
                free(e);
}

void live_event_done(struct live_event **event)
{
        if (*event)
                unref(container_of(*event, struct shared_event, event));
        *event = NULL;
}

/* Everything but the number, which is put in front later: HEAD_MAX bytes are left for it. */
static struct shared_event *new_event(const char *company_id, const char *type,
                                      const json_t *payload)
{
        struct buf rest = { .max = RING_BYTES };
        struct shared_event *e;
        struct jw w;

        buf_puts(&rest, ",\"companyId\":");
        jw_init(&w, &rest);
        jw_string(&w, company_id);
        jw_kstring(&w, "type", type);
        jw_key(&w, "createdAt");
        jw_time(&w, clock_now_us());
        jw_key(&w, "payload");
        jw_value(&w, payload);
        buf_putc(&rest, '}');
        if (buf_failed(&rest)) {
                buf_done(&rest);
                return NULL;
        }
        e = xcalloc(1, sizeof(*e) + HEAD_MAX + rest.len + 1);
        memcpy(e->memory + HEAD_MAX, rest.data, rest.len);
        e->event.len = rest.len;
        snprintf(e->event.company_id, sizeof(e->event.company_id), "%s", company_id);
        snprintf(e->event.type, sizeof(e->event.type), "%s", type);
        atomic_init(&e->refs, 1);
        buf_done(&rest);
        return e;
}

static void number_event(struct shared_event *e, int64_t id)
{
        char head[HEAD_MAX + 1];
        size_t n = (size_t)snprintf(head, sizeof(head), "{\"id\":%lld", (long long)id);

        e->event.id = id;
        e->event.text = e->memory + HEAD_MAX - n;
        e->event.len += n;
        memcpy(e->event.text, head, n);
}

/* The ring */

static struct shared_event **slot(struct live *live, int64_t id)
{
        return &live->ring[(uint64_t)id % RING_EVENTS];
}

/* With the lock held. */
static void drop_oldest(struct live *live)
{
        struct shared_event **at = slot(live, live->oldest++);

        live->bytes -= (*at)->event.len;
        unref(take_ptr(at));
}

static void append(struct live *live, struct shared_event *take_event)
{
        pthread_mutex_lock(&live->lock);
        number_event(take_event, live->next);
        while (live->oldest < live->next && (live->next - live->oldest >= RING_EVENTS ||
                                             live->bytes + take_event->event.len > RING_BYTES))
                drop_oldest(live);
        *slot(live, live->next++) = take_event;
        live->bytes += take_event->event.len;
        pthread_mutex_unlock(&live->lock);
}

void live_publish(struct live *live, const char *company_id, const char *type, json_t *take_payload)
{
        struct shared_event *e = live ? new_event(company_id, type, take_payload) : NULL;

        json_decref(take_payload);
        if (!e)
                return;
        append(live, e);
        (void)uv_async_send(&live->wake);
}

static void announced(void *ctx, const char *company_id, const char *type, json_t *take_payload)
{
        live_publish(ctx, company_id, type, take_payload);
}

void live_attach(struct live *live, struct store *store)
{
        store_listen(store, live ? announced : NULL, live);
}

int64_t live_last_id(struct live *live)
{
        int64_t id;

        pthread_mutex_lock(&live->lock);
        id = live->next - 1;
        pthread_mutex_unlock(&live->lock);
        return id;
}

/* Readers */

/* Tell each of them one thing: that there is something, or that it is over. */
static void each_reader(struct live *live, bool stopped)
{
        struct live_reader end = { 0 };

        /* A reader may remove itself or others meanwhile: walk behind a mark that moves along. */
        end.next = live->readers.next;
        end.prev = &live->readers;
        end.prev->next = end.next->prev = &end;
        while (end.next != &live->readers) {
                struct live_reader *r = end.next;

                live_reader_remove(&end);
                end.next = r->next;
                end.prev = r;
                r->next->prev = &end;
                r->next = &end;
                if (stopped && r->stopped)
                        r->stopped(r);
                else if (!stopped && r->ready)
                        r->ready(r);
        }
        live_reader_remove(&end);
}

static void tell_readers(uv_async_t *wake)
{
        each_reader(container_of(wake, struct live, wake), false);
}

void live_stop(struct live *live)
{
        live->stopped = true;
        each_reader(live, true);
}

bool live_is_stopped(const struct live *live)
{
        return live->stopped;
}

void live_reader_add(struct live *live, struct live_reader *reader, const char *company_id,
                     int64_t last_id)
{
        snprintf(reader->company_id, sizeof(reader->company_id), "%s", company_id);
        reader->is_behind = false;
        reader->lost = LIVE_NOW;
        pthread_mutex_lock(&live->lock);
        reader->at = live->next;
        if (last_id >= live->oldest - 1 && last_id < live->next)
                reader->at = last_id + 1;
        else if (last_id != LIVE_NOW)
                reader->lost = last_id;
        pthread_mutex_unlock(&live->lock);
        reader->prev = live->readers.prev;
        reader->next = &live->readers;
        reader->prev->next = reader->next->prev = reader;
}

void live_reader_remove(struct live_reader *reader)
{
        reader->prev->next = reader->next;
        reader->next->prev = reader->prev;
        reader->prev = reader->next = reader;
}

static struct live_event *lost_event(struct live_reader *reader)
{
        json_t *payload = json_object();
        struct shared_event *e;

        json_object_set_new(payload, "after", json_integer(reader->lost));
        json_object_set_new(payload, "before", json_integer(reader->at));
        e = new_event(reader->company_id, reader->is_behind ? "missed" : "reset", payload);
        json_decref(payload);
        /* Who comes back with this number goes on where this reader does. */
        number_event(e, reader->at - 1);
        reader->lost = LIVE_NOW;
        reader->is_behind = false;
        return &e->event;
}

/* The next of its company that is in the ring, with a reference; with the lock held. */
static struct shared_event *find_next(struct live *live, struct live_reader *reader)
{
        while (reader->at < live->next) {
                struct shared_event *e = *slot(live, reader->at++);

                if (streq(e->event.company_id, reader->company_id)) {
                        atomic_fetch_add(&e->refs, 1);
                        return e;
                }
        }
        return NULL;
}

struct live_event *live_reader_take(struct live *live, struct live_reader *reader)
{
        struct shared_event *e = NULL;

        pthread_mutex_lock(&live->lock);
        if (reader->at < live->oldest) {
                reader->is_behind = reader->is_behind || reader->lost == LIVE_NOW;
                reader->lost = reader->lost == LIVE_NOW ? reader->at - 1 : reader->lost;
                reader->at = live->oldest;
        }
        if (reader->lost == LIVE_NOW)
                e = find_next(live, reader);
        pthread_mutex_unlock(&live->lock);
        if (e)
                return &e->event;
        return reader->lost != LIVE_NOW ? lost_event(reader) : NULL;
}

/* Life */

int live_new(uv_loop_t *loop, struct live **ret, struct err *err)
{
        struct live *live = xcalloc(1, sizeof(*live));
        int r = uv_async_init(loop, &live->wake, tell_readers);

        if (r < 0) {
                free(live);
                return err_sys(err, ERR_INTERNAL, -r, "start live events");
        }
        pthread_mutex_init(&live->lock, NULL);
        live->readers.prev = live->readers.next = &live->readers;
        live->oldest = live->next = clock_wall_us();
        *ret = live;
        return 0;
}

static void freed(uv_handle_t *handle)
{
        struct live *live = container_of((uv_async_t *)handle, struct live, wake);

        while (live->oldest < live->next)
                drop_oldest(live);
        pthread_mutex_destroy(&live->lock);
        free(live);
}

void live_free(struct live *live)
{
        if (live)
                uv_close((uv_handle_t *)&live->wake, freed);
}
