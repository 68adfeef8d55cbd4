/* Watches whether a private daemon is still needed, and ends it when not. */
#include "daemon/idle.h"

#include "base/clock.h"
#include "store/leases.h"
#include "store/runs.h"

#define TICK_MS   250
#define LINGER_MS 3000

static int add_active(void *ctx, const char *status, int64_t n)
{
        if (streq(status, "active"))
                *(int64_t *)ctx += n;
        return 0;
}

static void idle_count(struct pool_job *job, struct op *op)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct idle *i = container_of(job, struct idle, job);

        if (store_read_begin(op, i->rt->store, &db, NULL) < 0 ||
            runs_count_open(db, &i->active, NULL) < 0 ||
            leases_count_by_status(db, op->arena, add_active, &i->active, NULL) < 0)
                i->active = -1;
}

/* A client may have come while we counted; then it has us. */
static void idle_counted(struct pool_job *job)
{
        struct idle *i = container_of(job, struct idle, job);

        i->asking = false;
        if (i->active != 0 || http_server_connections(i->http) > 0) {
                i->since_ms = clock_mono_ms();
                return;
        }
        idle_stop(i);
        i->over(i->arg);
}

static void idle_tick(uv_timer_t *timer)
{
        struct idle *i = container_of(timer, struct idle, timer);
        int64_t now = clock_mono_ms();

        if (http_server_connections(i->http) > 0)
                i->since_ms = now;
        if (i->asking || now - i->since_ms < LINGER_MS)
                return;
        i->job = (struct pool_job){ .run = idle_count, .done = idle_counted };
        i->asking = pool_submit(i->pool, &i->job, NULL) >= 0;
}

void idle_start(struct idle *i, uv_loop_t *loop)
{
        i->since_ms = clock_mono_ms();
        uv_timer_init(loop, &i->timer);
        uv_timer_start(&i->timer, idle_tick, TICK_MS, TICK_MS);
}

void idle_stop(struct idle *i)
{
        uv_timer_stop(&i->timer);
}
