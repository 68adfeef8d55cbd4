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

struct count {
        struct op *op;
        int64_t active;
};

static int count_active(struct db *db, void *arg, struct err *err)
{
        struct count *c = arg;

        int64_t runs;
        int r = runs_count_open(db, &runs, err);

        c->active = r < 0 ? 0 : runs;
        return r < 0 ? r : leases_count_by_status(db, c->op->arena, add_active, &c->active, err);
}

static void job_run(struct pool_job *job, struct op *op)
{
        struct idle *i = container_of(job, struct idle, job);
        struct count c = { .op = op };

        i->active = store_read(op, i->rt->store, count_active, &c, NULL) < 0 ? -1 : c.active;
}

static bool is_connected(const struct idle *i)
{
        return http_server_connections(i->http) > 0;
}

/* A client may have come while we counted; then it has us. */
static void job_done(struct pool_job *job)
{
        struct idle *i = container_of(job, struct idle, job);

        i->asking = false;
        if (i->active != 0 || is_connected(i)) {
                i->since_ms = clock_mono_ms();
                return;
        }
        idle_stop(i);
        i->over(i->arg);
}

static void tick(uv_timer_t *timer)
{
        struct idle *i = container_of(timer, struct idle, timer);
        int64_t now = clock_mono_ms();

        if (is_connected(i))
                i->since_ms = now;
        if (i->asking || now - i->since_ms < LINGER_MS)
                return;
        i->job = (struct pool_job){ .run = job_run, .done = job_done };
        i->asking = pool_submit(i->pool, &i->job, NULL) >= 0;
}

void idle_start(struct idle *i, uv_loop_t *loop)
{
        i->since_ms = clock_mono_ms();
        uv_timer_init(loop, &i->timer);
        uv_timer_start(&i->timer, tick, TICK_MS, TICK_MS);
}

void idle_stop(struct idle *i)
{
        uv_timer_stop(&i->timer);
}
