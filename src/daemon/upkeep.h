/* What the daemon does by itself at intervals: the sweeper's passes, left-over secrets, and after
 * each pass, or when one was taken, sandboxes in advance; and seldom, a look at the whole database
 * for damage. On the pool, one of each kind at a time. A pass only finds out where something is to
 * be done; that is a job for each environment, in the environment's lane, so that one whose
 * provider is silent does not hold up the others. Loop thread, except upkeep_want_stock(). */
#pragma once

#include <stdatomic.h>

#include "core/runtime.h"
#include "daemon/room.h"
#include "rt/mail.h"
#include "rt/pool.h"

struct upkeep {
        struct runtime *rt; /* with its pool and its mail */
        uv_loop_t *loop;
        struct room *room; /* the pass's */
        /* Any thread, as the letter. Not beside the loop's own flags: compilers read several such
         * at a time. */
        _Atomic bool stock_posted;
        struct letter stock_letter;
        uv_timer_t timer;
        struct pool_job sweep_job, stock_job, secrets_job, scrub_job;
        /* Environments that a pass found, with their companies; the job's until it is done. */
        struct upkeep_due *due;
        size_t n_due;
        struct upkeep_sweep *sweeps; /* under way */
        bool sweeping, stocking, stock_again, tidying_secrets, scrubbing, waited_enough, stopping;
        int64_t scrub_due_ms; /* monotonic */
        bool told_damage;     /* it is in the log */
};

/* The timer closes with the loop's other handles. */
void upkeep_init(struct upkeep *u, struct runtime *rt, uv_loop_t *loop, struct room *room);
/* One pass of the sweeper; runs the loop until it is over, or until nothing but environments that
 * do not answer is left of it. */
void upkeep_sweep_now(struct upkeep *u);
void upkeep_start(struct upkeep *u);
void upkeep_stop(struct upkeep *u);
/* A sandbox that was made in advance was taken. arg: struct upkeep. Any thread. */
void upkeep_want_stock(void *arg);
