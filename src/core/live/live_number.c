/* Reserves blocks of event numbers in the store. */
#include "core/live/live_number.h"

#include "base/clock.h"
#include "base/util.h"
#include "store/settings.h"

#define BLOCK ((int64_t)1 << 20)

struct reservation {
        int64_t least;
        int64_t first;
};

static int reserve(struct db *db, void *arg, struct err *err)
{
        struct reservation *v = arg;
        int64_t end;
        int r = settings_get_event_numbers(db, &end, err);

        if (r < 0)
                return r;
        v->first = MAX(end, v->least);
        return settings_put_event_numbers(db, v->first + BLOCK, clock_now_us(), err);
}

int live_numbers_init(struct op *op, struct live_numbers *n, struct store *store, struct pool *pool,
                      int64_t *ret_first, struct err *err)
{
        struct reservation v = { .least = clock_wall_us() };
        int r = store_write(op, store, reserve, &v, err);

        if (r < 0)
                return err_wrap(err, r, "reserve numbers for events");
        *n = (struct live_numbers){ .store = store, .pool = pool, .end = v.first + BLOCK };
        *ret_first = v.first;
        return 0;
}

/* A failed reservation is tried again with the next event. */
static void job_run(struct pool_job *job, struct op *op)
{
        struct live_numbers *n = container_of(job, struct live_numbers, job);
        struct reservation v = { .least = n->end };

        if (store_write(op, n->store, reserve, &v, NULL) >= 0)
                n->end = v.first + BLOCK;
}

static void job_done(struct pool_job *job)
{
        container_of(job, struct live_numbers, job)->reserving = false;
}

void live_numbers_used(struct live_numbers *n, int64_t last)
{
        if (!n->store || n->reserving || last < n->end - BLOCK / 2)
                return;
        n->job = (struct pool_job){ .run = job_run, .done = job_done };
        n->reserving = pool_submit(n->pool, &n->job, NULL) >= 0;
}
