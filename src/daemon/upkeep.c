/* When each pass of the upkeep runs, and for which environments. */
#include "daemon/upkeep.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/companies/erase.h"
#include "core/environments/env_secrets.h"
#include "core/exec/exec.h"
#include "core/images/image.h"
#include "core/kinds/berth/snapshot.h"
#include "core/leases/stock.h"
#include "core/leases/sweeper.h"
#include "core/places/age.h"
#include "core/secrets/secret.h"
#include "core/workspaces/workspace.h"
#include "rt/reserve.h"

/* How long the port stays closed for what the last daemon left in places that do not answer. */
#define FIRST_PASS_MS 5000

/* -- Sandboxes in advance ---------------------------------------------------------------------- */

static void stock_start(struct upkeep *u);

static void stock_run(struct pool_job *job, struct op *op)
{
        struct upkeep *u = container_of(job, struct upkeep, stock_job);
        CLEAN(err_done) struct err err = { 0 };
        unsigned made = 0;

        op->actor = &actor_system;
        int r = stock_fill(op, u->rt, &made, &err);
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
        pool_job_lane(&u->stock_job, LANE_PEERS, lane_name(NULL, "stock"));
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

/* -- Secrets ----------------------------------------------------------------------------------- */

static void secrets_run(struct pool_job *job, struct op *op)
{
        struct runtime *rt = container_of(job, struct upkeep, secrets_job)->rt;
        CLEAN(err_done) struct err err = { 0 };

        op->actor = &actor_system;
        if ((secret_sweep(op, rt, &err) < 0 || env_secrets_sweep(op, rt, &err) < 0) &&
            err.code != ERR_CANCELLED)
                log_error("could not look after left-over secrets", LOG_S("error", err.msg));
}

static void secrets_done(struct pool_job *job)
{
        container_of(job, struct upkeep, secrets_job)->tidying_secrets = false;
}

static void secrets_start(struct upkeep *u)
{
        if (u->tidying_secrets || u->stopping)
                return;
        u->secrets_job = (struct pool_job){ .run = secrets_run, .done = secrets_done };
        pool_job_lane(&u->secrets_job, LANE_PEERS, lane_name(NULL, "vaults"));
        u->tidying_secrets = pool_submit(u->rt->pool, &u->secrets_job, NULL) >= 0;
}

/* -- Sweeping: one environment ----------------------------------------------------------------- */

/* One pass: over when all environments are that it found something to do in. */
struct upkeep_pass {
        struct upkeep *u;
        unsigned open;
};

struct upkeep_due {
        char environment_id[UUID_LEN + 1], company_id[UUID_LEN + 1];
};

struct upkeep_sweep {
        struct upkeep_sweep *next;
        struct upkeep_pass *pass;
        struct pool_job job;
        char environment_id[UUID_LEN + 1];
};

static void pass_close(struct upkeep_pass *pass)
{
        if (--pass->open > 0)
                return;
        atomic_fetch_add(&pass->u->rt->counters.sweeps, 1);
        free(pass);
}

static void environment_run(struct pool_job *job, struct op *op)
{
        struct upkeep_sweep *s = container_of(job, struct upkeep_sweep, job);
        struct runtime *rt = s->pass->u->rt;
        CLEAN(err_done) struct err err = { 0 };
        struct sweep_result res;

        op->actor = &actor_system;
        int r = sweep(op, rt, s->environment_id, &res, &err);
        if (r >= 0)
                r = workspace_sweep(op, rt, s->environment_id, &err);
        if (r < 0 && r != ERR_CANCELLED)
                log_error("the sweeper could not finish", LOG_S("environment", s->environment_id),
                          LOG_S("error", err.msg));
        else if (res.expired + res.released + res.closed + res.parked + res.failed > 0)
                log_info("swept", LOG_S("environment", s->environment_id),
                         LOG_I("expired", res.expired), LOG_I("released", res.released),
                         LOG_I("closed", res.closed), LOG_I("parked", res.parked),
                         LOG_I("failed", res.failed));
}

static void environment_done(struct pool_job *job)
{
        struct upkeep_sweep *s = container_of(job, struct upkeep_sweep, job);
        struct upkeep_sweep **at = &s->pass->u->sweeps;

        while (*at != s)
                at = &(*at)->next;
        *at = s->next;
        pass_close(s->pass);
        free(s);
}

/* One that is still worked on is left alone: its provider is slow. */
static void environment_start(struct upkeep_pass *pass, const struct upkeep_due *due)
{
        struct upkeep *u = pass->u;
        struct upkeep_sweep *s = u->sweeps;

        while (s && !streq(s->environment_id, due->environment_id))
                s = s->next;
        if (s)
                return;
        s = xcalloc(1, sizeof(*s));
        s->pass = pass;
        s->job = (struct pool_job){ .run = environment_run, .done = environment_done };
        memcpy(s->environment_id, due->environment_id, sizeof(s->environment_id));
        pool_job_lane(&s->job, LANE_CLOSING,
                      due->environment_id[0] ? lane_name(due->company_id, due->environment_id)
                                             : lane_name(NULL, "nowhere"));
        if (pool_submit(u->rt->pool, &s->job, NULL) < 0) {
                free(s);
                return;
        }
        s->next = u->sweeps;
        u->sweeps = s;
        pass->open++;
}

/* -- Sweeping: a pass -------------------------------------------------------------------------- */

static void sweep_run(struct pool_job *job, struct op *op)
{
        struct upkeep *u = container_of(job, struct upkeep, sweep_job);
        struct sweep_list found = { .arena = op->arena };
        struct runtime *rt = u->rt;
        CLEAN(err_done) struct err err = { 0 };
        int64_t jump_us;

        op->actor = &actor_system;
        reserve_refill();
        room_hold(op, u->room, rt->store);
        int r = sweep_follow_clock(op, rt, &jump_us, &err);
        if (jump_us)
                log_warn("the wall clock was set; leases keep the time they had left",
                         LOG_I("seconds", jump_us / US_PER_S));
        if (r >= 0)
                r = age_mark(op, rt, &err);
        if (r >= 0)
                r = sweep_look(op, rt, &found, &err);
        if (r >= 0)
                r = workspace_sweep_look(op, rt, &found, &err);
        for (size_t i = 0; r >= 0 && i < found.n; i++) {
                u->due = xrealloc(u->due, (i + 1) * sizeof(*u->due));
                snprintf(u->due[i].environment_id, UUID_LEN + 1, "%s", found.at[i].environment_id);
                snprintf(u->due[i].company_id, UUID_LEN + 1, "%s", found.at[i].company_id);
                u->n_due = i + 1;
        }
        if (r >= 0)
                r = workspace_tidy(op, rt, &err);
        if (r >= 0)
                r = snapshot_sweep(op, rt, &err);
        if (r >= 0)
                r = image_sweep(op, rt, &err);
        if (r >= 0)
                r = exec_prune(op, rt, &err);
        if (r >= 0)
                r = erase_sweep(op, rt, &err);
        if (r < 0 && r != ERR_CANCELLED)
                log_error("the sweeper could not finish", LOG_S("error", err.msg));
}

static void sweep_done(struct pool_job *job)
{
        struct upkeep *u = container_of(job, struct upkeep, sweep_job);
        struct upkeep_pass *pass = xcalloc(1, sizeof(*pass));

        *pass = (struct upkeep_pass){ .u = u, .open = 1 };
        u->sweeping = false;
        for (size_t i = 0; i < u->n_due && !u->stopping; i++)
                environment_start(pass, &u->due[i]);
        free(u->due);
        u->due = NULL;
        u->n_due = 0;
        pass_close(pass);
        secrets_start(u);
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

/* Any transaction may meet damage; the log has it once. */
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

void upkeep_init(struct upkeep *u, struct runtime *rt, uv_loop_t *loop, struct room *room)
{
        *u = (struct upkeep){ .rt = rt, .loop = loop, .room = room };
        uv_timer_init(loop, &u->timer);
}

static void first_pass_over(uv_timer_t *timer)
{
        container_of(timer, struct upkeep, timer)->waited_enough = true;
}

void upkeep_sweep_now(struct upkeep *u)
{
        uv_timer_start(&u->timer, first_pass_over, FIRST_PASS_MS, 0);
        sweep_start(u);
        while (u->sweeping || ((u->sweeps || u->tidying_secrets) && !u->waited_enough))
                uv_run(u->loop, UV_RUN_ONCE);
        uv_timer_stop(&u->timer);
}

void upkeep_start(struct upkeep *u)
{
        uint64_t interval = (uint64_t)u->rt->settings.sweep_interval_ms;

        /* A database that was too large to be checked before is checked now. */
        u->scrub_due_ms = clock_mono_ms();
        if (store_is_checked(u->rt->store))
                u->scrub_due_ms += u->rt->settings.scrub_interval_ms;
        uv_timer_start(&u->timer, sweep_tick, interval, interval);
}

void upkeep_stop(struct upkeep *u)
{
        u->stopping = true;
        uv_timer_stop(&u->timer);
        /* The next start takes all of it up again, so the stop does not wait for it. */
        for (struct upkeep_sweep *s = u->sweeps; s; s = s->next)
                pool_cancel(u->rt->pool, &s->job);
        if (u->tidying_secrets)
                pool_cancel(u->rt->pool, &u->secrets_job);
        if (u->stocking)
                pool_cancel(u->rt->pool, &u->stock_job);
        if (u->scrubbing)
                pool_cancel(u->rt->pool, &u->scrub_job);
}
