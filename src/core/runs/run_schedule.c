/* Decides when agents with a timer are due, and wakes them; then looks at runs that print nothing.
 */
#include "core/runs/run_schedule.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "codec/cron.h"
#include "core/access/run_policy.h"
#include "core/runs/run_silence.h"
#include "core/runs/run_wake.h"
#include "rt/pool.h"
#include "store/wakeups.h"

#define DAY_US      (INT64_C(86400) * US_PER_S)
#define REASON      "heartbeat_timer"
#define PASS_MAX_MS 60000

/* -- When an agent is due --------------------------------------------------------------------- */

enum due_action {
        DUE_LATER,  /* nothing to do before `at` */
        DUE_NOW,    /* `at` has come */
        DUE_BEGIN,  /* remember `at` as the time to count from */
        DUE_FORGET, /* there is no schedule any more */
};

struct due {
        const char *agent_id;
        enum due_action action;
        int64_t at;
        struct due *next;
};

static void interval_due(int64_t last, int64_t step, int64_t now, struct due *ret)
{
        if (last == 0 || last > now) {
                ret->action = DUE_BEGIN;
                ret->at = now;
        } else if (now - last < step) {
                ret->action = DUE_LATER;
                ret->at = last + step;
        } else {
                ret->action = DUE_NOW;
                ret->at = now - (now - last) % step;
        }
}

static void cron_due(int64_t last, const struct cron *cron, int64_t now, struct due *ret)
{
        int64_t latest = cron_last(cron, now), next = cron_next(cron, now);

        if (last == 0 || last > now + DAY_US) {
                ret->action = DUE_BEGIN;
                ret->at = now;
        } else if (latest > last) {
                ret->action = DUE_NOW;
                ret->at = latest;
        } else {
                ret->action = DUE_LATER;
                ret->at = next && next <= last ? cron_next(cron, last) : next;
        }
}

static void find_due(const struct agent *g, int64_t last, int64_t now, struct arena *arena,
                     struct due *ret)
{
        struct run_policy policy;
        struct cron cron;

        run_policy_read(g, arena, &policy);
        ret->agent_id = g->id;
        if (!policy.timer || !run_agent_is_invokable(g) ||
            (policy.cron && cron_parse(policy.cron, &cron, NULL) < 0)) {
                ret->action = last ? DUE_FORGET : DUE_LATER;
                ret->at = 0;
        } else if (policy.cron) {
                cron_due(last, &cron, now, ret);
        } else {
                interval_due(last, policy.interval_s * US_PER_S, now, ret);
        }
}

/* -- A pass ----------------------------------------------------------------------------------- */

/* A run that waited for another attempt. */
struct retry {
        struct run run;
        struct retry *next;
};

struct pass {
        struct op *op;
        struct runtime *rt;
        int64_t now, next;
        struct due *due; /* what has to be written; in the arena */
        bool has_retries, deferred;
        bool kick;
        struct retry *retries; /* in the arena */
};

static int look_at(void *ctx, const struct agent_schedule *row)
{
        struct pass *p = ctx;
        struct agent g = { .id = row->agent_id,
                           .status = row->status,
                           .runtime_config = row->runtime_config };
        struct due due = { 0 }, *kept;

        find_due(&g, row->last_due_at, p->now, p->op->arena, &due);
        if (due.action == DUE_LATER) {
                if (due.at)
                        p->next = MIN(p->next, due.at);
                return 0;
        }
        kept = arena_new(p->op->arena, struct due);
        *kept = due;
        kept->next = p->due;
        p->due = kept;
        return 0;
}

/* What is due, and when the next is. */
static int look_at_schedules(struct pass *p, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int64_t retry_at = 0, n = 0;
        int r = store_read_begin(p->op, p->rt->store, &db, err);

        if (r >= 0)
                r = agent_schedules_list(db, p->op->arena, look_at, p, err);
        if (r >= 0)
                r = wakeups_next_retry(db, &retry_at, err);
        if (r >= 0)
                r = wakeups_count_deferred(db, &n, err);
        p->deferred = n > 0;
        p->has_retries = retry_at && retry_at <= p->now;
        if (retry_at > p->now)
                p->next = MIN(p->next, retry_at);
        return r;
}

static int wake_by_timer(struct db *db, struct pass *p, const struct due *due, struct err *err)
{
        struct wake_request req = { .agent_id = due->agent_id,
                                    .source = WAKE_TIMER,
                                    .trigger_detail = "system",
                                    .reason = REASON };
        struct wake_result result;
        int r = agent_schedules_advance(db, due->agent_id, due->at, err);

        if (r <= 0) /* 0: another pass was first */
                return r;
        r = run_wake_in(db, p->op, p->rt, &req, &result, err);
        p->kick = true;
        return r;
}

struct one {
        struct pass *pass;
        const struct due *due;
};

static int write_one(struct db *db, void *arg, struct err *err)
{
        const struct one *q = arg;
        const struct due *due = q->due;

        switch (due->action) {
        case DUE_NOW:
                return wake_by_timer(db, q->pass, due, err);
        case DUE_BEGIN:
                return agent_schedules_reset(db, due->agent_id, due->at, err);
        case DUE_FORGET:
                return agent_schedules_forget(db, due->agent_id, err);
        case DUE_LATER:
                break;
        }
        return 0;
}

static int note_retry(void *ctx, const struct run *row)
{
        struct pass *p = ctx;
        struct retry *x = arena_new(p->op->arena, struct retry);

        *x = (struct retry){ .run = *row, .next = p->retries };
        p->retries = x;
        return 0;
}

static int write_rest(struct db *db, void *arg, struct err *err)
{
        struct pass *p = arg;

        p->retries = NULL;
        int r = runs_due(db, p->now, p->op->arena, note_retry, p, err);

        for (struct retry *x = p->retries; r >= 0 && x; x = x->next) {
                r = runs_wake(db, x->run.id, p->now, err);
                if (r > 0)
                        run_announce_queued(db, &x->run);
                p->kick = true;
        }
        return r < 0 || !p->deferred ? r
                                     : run_wake_promote_in(db, p->op, p->rt, NULL, &p->kick, err);
}

/* An agent that cannot be woken does not keep the others from being woken. */
static int write_due(struct pass *p, struct err *err)
{
        int r = 0;

        for (const struct due *due = p->due; due && r != ERR_CANCELLED; due = due->next) {
                struct one q = { p, due };

                FAULT("schedule.before");
                r = store_write(p->op, p->rt->store, write_one, &q, err);
                FAULT("schedule.after");
                if (r < 0) {
                        log_warn("an agent could not be woken by its timer",
                                 LOG_S("agent", due->agent_id), LOG_S("error", err->msg));
                        err_clear(err);
                }
        }
        if (!p->has_retries && !p->deferred)
                return 0;
        return store_write(p->op, p->rt->store, write_rest, p, err);
}

/* Operation: one pass. *ret_next_us: when the next is due, in wall time; INT64_MAX for never. */
static int run_schedule_tick(struct op *op, struct runtime *rt, int64_t *ret_next_us,
                             struct err *err)
{
        struct pass p = { .op = op, .rt = rt, .now = clock_wall_us(), .next = INT64_MAX };
        CLEAN(err_done) struct err own = { 0 };
        int r = look_at_schedules(&p, &own);

        if (r >= 0)
                r = write_due(&p, &own);
        if (r >= 0)
                r = run_silence_watch(op, rt, p.now, &p.kick, &own);
        if (p.kick)
                run_host_kick(rt->runs);
        if (p.due)
                p.next = MIN(p.next, p.now + US_PER_S); /* look again soon */
        *ret_next_us = p.next;
        if (r < 0)
                err_move(err, &own);
        return r < 0 ? r : 0;
}

/* -- The clock -------------------------------------------------------------------------------- */

struct run_scheduler {
        struct runtime *rt;
        uv_timer_t timer;
        struct pool_job job;
        int64_t next_us;
        bool busy, stopping;
};

static void schedule_pass(struct pool_job *job, struct op *op)
{
        struct run_scheduler *s = container_of(job, struct run_scheduler, job);
        CLEAN(err_done) struct err err = { 0 };

        op->actor = &actor_system;
        if (run_schedule_tick(op, s->rt, &s->next_us, &err) < 0)
                log_error("schedules could not be looked after", LOG_S("error", err.msg));
}

static void schedule_tick(uv_timer_t *timer);

static void schedule_arm(struct run_scheduler *s)
{
        int64_t most = s->rt->settings.sweep_interval_ms, wait = most;

        if (s->stopping)
                return;
        if (s->next_us != INT64_MAX)
                wait = (s->next_us - clock_wall_us()) / US_PER_MS + 1;
        uv_timer_start(&s->timer, schedule_tick, (uint64_t)MAX(1, MIN(wait, most)), 0);
}

static void schedule_passed(struct pool_job *job)
{
        struct run_scheduler *s = container_of(job, struct run_scheduler, job);

        s->busy = false;
        schedule_arm(s);
}

static void schedule_tick(uv_timer_t *timer)
{
        struct run_scheduler *s = container_of(timer, struct run_scheduler, timer);

        if (s->busy || s->stopping)
                return;
        s->job = (struct pool_job){ .run = schedule_pass,
                                    .done = schedule_passed,
                                    .timeout_ms = PASS_MAX_MS };
        s->next_us = INT64_MAX;
        s->busy = pool_submit(s->rt->pool, &s->job, NULL) >= 0;
        if (!s->busy)
                schedule_arm(s);
}

int run_scheduler_new(struct runtime *rt, uv_loop_t *loop, struct run_scheduler **ret,
                      struct err *err UNUSED)
{
        struct run_scheduler *s = xcalloc(1, sizeof(*s));

        s->rt = rt;
        s->next_us = INT64_MAX;
        uv_timer_init(loop, &s->timer);
        *ret = s;
        return 0;
}

void run_scheduler_start(struct run_scheduler *s)
{
        uv_timer_start(&s->timer, schedule_tick, 0, 0);
}

void run_scheduler_stop(struct run_scheduler *s)
{
        if (!s)
                return;
        s->stopping = true;
        uv_timer_stop(&s->timer);
}

static void scheduler_closed(uv_handle_t *handle)
{
        free(container_of((uv_timer_t *)handle, struct run_scheduler, timer));
}

void run_scheduler_free(struct run_scheduler *s)
{
        if (s)
                uv_close((uv_handle_t *)&s->timer, scheduler_closed);
}
