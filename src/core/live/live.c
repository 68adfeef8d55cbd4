/* Numbers and publishes live events, and decides which of them each reader gets.
 *
 * No number is used twice, even over restarts and with clocks that are set back. A block of numbers
 * is reserved in the store before the first of them is used; when half of it is used, the next is
 * reserved. A new daemon begins behind the last block, or at the wall clock in microseconds where
 * that is further: a block is about a second of it. With a store that cannot be written to for half
 * a million events, numbers go on without a reserve. */
#include "core/live/live.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "core/live/live_ring.h"
#include "rt/pool.h"
#include "store/settings.h"

#define NUMBERS_BLOCK ((int64_t)1 << 20)

struct live {
        uv_async_t wake;
        struct live_reader readers; /* the head of a circular list; loop thread */
        bool stopped;

        pthread_mutex_t lock;
        struct live_rings rings;
        int64_t next; /* the number of the next event */

        /* Reserved numbers; loop thread */
        struct store *store; /* NULL: nothing is reserved */
        struct pool *pool;
        struct pool_job job;
        bool reserving;
        int64_t reserved; /* the reserved numbers lie before it */
};

/* Events */

void live_event_done(struct live_event **event)
{
        if (*event)
                live_event_unref(container_of(*event, struct shared_event, event));
        *event = NULL;
}

/* Everything but the number, which is put in front later: LIVE_HEAD_MAX bytes are left for it. */
static struct shared_event *new_event(const char *company_id, const char *type,
                                      const json_t *payload)
{
        struct buf rest = { .max = LIVE_RING_BYTES };
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
        e = xcalloc(1, sizeof(*e) + LIVE_HEAD_MAX + rest.len + 1);
        memcpy(e->memory + LIVE_HEAD_MAX, rest.data, rest.len);
        e->event.len = rest.len;
        snprintf(e->event.company_id, sizeof(e->event.company_id), "%s", company_id);
        snprintf(e->event.type, sizeof(e->event.type), "%s", type);
        atomic_init(&e->refs, 1);
        buf_done(&rest);
        return e;
}

static void number_event(struct shared_event *e, int64_t id)
{
        char head[LIVE_HEAD_MAX + 1];
        size_t n = (size_t)snprintf(head, sizeof(head), "{\"id\":%lld", (long long)id);

        e->event.id = id;
        e->event.text = e->memory + LIVE_HEAD_MAX - n;
        e->event.len += n;
        memcpy(e->event.text, head, n);
}

void live_publish(struct live *live, const char *company_id, const char *type, json_t *take_payload)
{
        struct shared_event *e = live ? new_event(company_id, type, take_payload) : NULL;

        json_decref(take_payload);
        if (!e)
                return;
        pthread_mutex_lock(&live->lock);
        number_event(e, live->next++);
        live_rings_add(&live->rings, e);
        pthread_mutex_unlock(&live->lock);
        (void)uv_async_send(&live->wake);
}

static void live_announced(void *ctx, const char *company_id, const char *type,
                           json_t *take_payload)
{
        live_publish(ctx, company_id, type, take_payload);
}

void live_attach(struct live *live, struct store *store)
{
        store_listen(store, live ? live_announced : NULL, live);
}

int64_t live_last_id(struct live *live)
{
        pthread_mutex_lock(&live->lock);
        int64_t id = live->next - 1;
        pthread_mutex_unlock(&live->lock);
        return id;
}

/* Numbers */

struct reservation {
        int64_t least, first;
};

static int live_reserve(struct db *db, void *arg, struct err *err)
{
        struct reservation *v = arg;
        int64_t end;
        int r = settings_get_event_numbers(db, &end, err);

        if (r < 0)
                return r;
        v->first = MAX(end, v->least);
        return settings_put_event_numbers(db, v->first + NUMBERS_BLOCK, clock_now_us(), err);
}

/* A failed reservation is tried again with the next event. */
static void live_reserve_job(struct pool_job *job, struct op *op)
{
        struct live *live = container_of(job, struct live, job);
        struct reservation v = { .least = live->reserved };

        if (store_write(op, live->store, live_reserve, &v, NULL) >= 0)
                live->reserved = v.first + NUMBERS_BLOCK;
}

static void live_reserve_done(struct pool_job *job)
{
        container_of(job, struct live, job)->reserving = false;
}

int live_number(struct op *op, struct live *live, struct store *store, struct pool *pool,
                struct err *err)
{
        struct reservation v = { .least = clock_wall_us() };
        int r = store_write(op, store, live_reserve, &v, err);

        if (r < 0)
                return err_wrap(err, r, "reserve numbers for events");
        live->store = store;
        live->pool = pool;
        live->reserved = v.first + NUMBERS_BLOCK;
        pthread_mutex_lock(&live->lock);
        live_rings_done(&live->rings);
        live_rings_init(&live->rings, v.first - 1);
        live->next = v.first;
        pthread_mutex_unlock(&live->lock);
        return 0;
}

/* Readers */

/* Call each reader: either there may be events, or the daemon stops. */
static void live_each_reader(struct live *live, bool stopped)
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

static void live_tell_readers(uv_async_t *wake)
{
        struct live *live = container_of(wake, struct live, wake);

        if (live->store && !live->reserving &&
            live_last_id(live) >= live->reserved - NUMBERS_BLOCK / 2) {
                live->job = (struct pool_job){ .run = live_reserve_job, .done = live_reserve_done };
                live->reserving = pool_submit(live->pool, &live->job, NULL) >= 0;
        }
        live_each_reader(live, false);
}

void live_stop(struct live *live)
{
        live->stopped = true;
        live_each_reader(live, true);
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
        if (last_id >= live_rings_gone(&live->rings, company_id) && last_id < live->next)
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

        json_object_set_new(payload, "after", json_integer(reader->lost));
        json_object_set_new(payload, "before", json_integer(reader->at));
        struct shared_event *e =
                new_event(reader->company_id, reader->is_behind ? "missed" : "reset", payload);
        json_decref(payload);
        /* A reader that comes back with this number goes on at the same event. */
        number_event(e, reader->at - 1);
        reader->lost = LIVE_NOW;
        reader->is_behind = false;
        return &e->event;
}

/* The next event of the reader's company, with a reference; with the lock held. Afterwards the
 * reader is past the numbers of other companies: when those are given up, the reader loses
 * nothing. */
static struct shared_event *find_next(struct live *live, struct live_reader *reader)
{
        struct shared_event *e = live_rings_find(&live->rings, reader->company_id, reader->at);

        reader->at = e ? e->event.id + 1 : live->next;
        return e;
}

struct live_event *live_reader_take(struct live *live, struct live_reader *reader)
{
        struct shared_event *e = NULL;

        pthread_mutex_lock(&live->lock);
        int64_t gone = live_rings_gone(&live->rings, reader->company_id);
        if (reader->at <= gone) {
                reader->is_behind = reader->is_behind || reader->lost == LIVE_NOW;
                reader->lost = reader->lost == LIVE_NOW ? reader->at - 1 : reader->lost;
                reader->at = gone + 1;
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
        int r = uv_async_init(loop, &live->wake, live_tell_readers);

        if (r < 0) {
                free(live);
                return err_sys(err, ERR_INTERNAL, -r, "start live events");
        }
        pthread_mutex_init(&live->lock, NULL);
        live->readers.prev = live->readers.next = &live->readers;
        live->next = clock_wall_us();
        live_rings_init(&live->rings, live->next - 1);
        *ret = live;
        return 0;
}

static void live_closed(uv_handle_t *handle)
{
        struct live *live = container_of((uv_async_t *)handle, struct live, wake);

        live_rings_done(&live->rings);
        pthread_mutex_destroy(&live->lock);
        free(live);
}

void live_free(struct live *live)
{
        if (live)
                uv_close((uv_handle_t *)&live->wake, live_closed);
}
