#include "daemon/upkeep.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/exec/exec.h"
#include "core/leases/age.h"
#include "core/leases/sweeper.h"
#include "core/sandboxes/snapshot.h"
#include "core/sandboxes/stock.h"
#include "core/secrets/secret.h"
#include "core/workspaces/workspace.h"

/* -- Sandboxes in advance ---------------------------------------------------------------------- */

static void stock_start(struct upkeep *u);

static void stock_run(struct pool_job *job, struct op *op)
{
        struct upkeep *u = container_of(job, struct upkeep, stock_job);
        CLEAN(err_done) struct err err = { 0 };
        unsigned made = 0;
        int r;

        op->actor = &actor_system;
        r = stock_fill(op, u->rt, &made, &err);
        if (r < 0 && r != ERR_CANCELLED)
                log_error("could not look after sandboxes in advance", LOG_S("error", err.msg));
        else if (made > 0)
                log_debug("made sandboxes in advance", LOG_I("made", made));
}

static void stock_done(struct pool_job *job)
{
        struct upkeep *u = container_of(job, struct upkeep, stock_job);

        u->stocking = false;
        if (u->stock_again)
                stock_start(u);
}

static void stock_start(struct upkeep *u)
{
        u->stock_again = u->stocking;
        if (u->stocking || u->stopping)
                return;
        u->stock_job = (struct pool_job){ .run = stock_run, .done = stock_done };
        u->stocking = pool_submit(u->rt->pool, &u->stock_job, NULL) >= 0;
}

static void stock_on_loop(struct letter *letter)
{
        struct upkeep *u = container_of(letter, struct upkeep, stock_letter);

        atomic_store(&u->stock_posted, false);
        stock_start(u);
}

void upkeep_want_stock(void *arg)
{
        struct upkeep *u = arg;

        if (!atomic_exchange(&u->stock_posted, true))
                mail_post(u->rt->mail, &u->stock_letter, stock_on_loop);
}

/* -- Sweeping ---------------------------------------------------------------------------------- */

static void sweep_run(struct pool_job *job, struct op *op)
{
        struct runtime *rt = container_of(job, struct upkeep, sweep_job)->rt;
        CLEAN(err_done) struct err err = { 0 };
        struct sweep_result res;
        int64_t jump_us;
        int r;

        op->actor = &actor_system;
        r = sweep_follow_clock(op, rt, &jump_us, &err);
        if (jump_us)
                log_warn("the wall clock was set; leases keep the time they had left",
                         LOG_I("seconds", jump_us / US_PER_S));
        if (r >= 0)
                r = age_mark(op, rt, &err);
        if (r >= 0)
                r = sweep(op, rt, &res, &err);
        if (r >= 0)
                r = workspace_sweep(op, rt, &err);
        if (r >= 0)
                r = snapshot_sweep(op, rt, &err);
        if (r >= 0)
                r = exec_prune(op, rt, &err);
        if (r >= 0)
                r = secret_sweep(op, rt, &err);
        if (r < 0)
                log_error("the sweeper could not finish", LOG_S("error", err.msg));
        else if (res.expired + res.released + res.closed + res.parked + res.failed > 0)
                log_info("swept", LOG_I("expired", res.expired), LOG_I("released", res.released),
                         LOG_I("closed", res.closed), LOG_I("parked", res.parked),
                         LOG_I("failed", res.failed));
}

static void sweep_done(struct pool_job *job)
{
        struct upkeep *u = container_of(job, struct upkeep, sweep_job);

        u->sweeping = false;
        stock_start(u);
}

static void sweep_start(struct upkeep *u)
{
        u->sweep_job = (struct pool_job){ .run = sweep_run, .done = sweep_done };
        u->sweeping = pool_submit(u->rt->pool, &u->sweep_job, NULL) >= 0;
}

/* -- The database ------------------------------------------------------------------------------ */

static void scrub_run(struct pool_job *job, struct op *op)
{
        struct upkeep *u = container_of(job, struct upkeep, scrub_job);
        CLEAN(err_done) struct err err = { 0 };
        int r = store_scrub(op, u->rt->store, &err);

        if (r < 0 && r != ERR_CANCELLED)
                log_error("the check of the database", LOG_S("error", err.msg));
        else if (r >= 0)
                log_debug("checked the database");
}

static void scrub_done(struct pool_job *job)
{
        struct upkeep *u = container_of(job, struct upkeep, scrub_job);

        u->scrubbing = false;
        u->scrub_due_ms = clock_mono_ms() + u->rt->settings.scrub_interval_ms;
}

/* Damage may be met by anybody; the log has it once. */
static void look_at_database(struct upkeep *u)
{
        bool is_damaged = store_is_damaged(u->rt->store);

        if (is_damaged && !u->told_damage)
                log_error("the database file is damaged: what is in it can be wrong, and health "
                          "says so until it is mended. Stop the daemon, run `berth db check`, and "
                          "put a backup in its place with `berth db restore`");
        u->told_damage = is_damaged;
        if (u->scrubbing || clock_mono_ms() < u->scrub_due_ms)
                return;
        u->scrub_job = (struct pool_job){ .run = scrub_run, .done = scrub_done };
        u->scrubbing = pool_submit(u->rt->pool, &u->scrub_job, NULL) >= 0;
}

static void sweep_tick(uv_timer_t *timer)
{
        struct upkeep *u = container_of(timer, struct upkeep, timer);

        if (!u->stopping)
                look_at_database(u);
        if (!u->sweeping && !u->stopping)
                sweep_start(u);
}

/* -- Beginning and end ------------------------------------------------------------------------- */

void upkeep_init(struct upkeep *u, struct runtime *rt, uv_loop_t *loop)
{
        *u = (struct upkeep){ .rt = rt, .loop = loop };
        uv_timer_init(loop, &u->timer);
}

void upkeep_sweep_now(struct upkeep *u)
{
        sweep_start(u);
        while (u->sweeping)
                uv_run(u->loop, UV_RUN_ONCE);
}

void upkeep_start(struct upkeep *u)
{
        uint64_t interval = (uint64_t)u->rt->settings.sweep_interval_ms;

        /* What was too large to be looked at before is looked at now. */
        u->scrub_due_ms = clock_mono_ms();
        if (store_is_checked(u->rt->store))
                u->scrub_due_ms += u->rt->settings.scrub_interval_ms;
        uv_timer_start(&u->timer, sweep_tick, interval, interval);
}

void upkeep_stop(struct upkeep *u)
{
        u->stopping = true;
        uv_timer_stop(&u->timer);
        if (u->scrubbing)
                pool_cancel(u->rt->pool, &u->scrub_job);
}
