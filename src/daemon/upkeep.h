/* What the daemon does by itself at intervals: the sweeper's passes; after each of them, or when
 * one was taken, sandboxes in advance; and seldom, a look at the whole database for damage. One
 * pass of each kind at a time, on the pool. Loop thread, except upkeep_want_stock(). */
#ifndef BERTH_DAEMON_UPKEEP_H
#define BERTH_DAEMON_UPKEEP_H

#include <stdatomic.h>

#include "core/runtime.h"
#include "rt/mail.h"
#include "rt/pool.h"

struct upkeep {
        struct runtime *rt; /* with its pool and its mail */
        uv_loop_t *loop;
        /* Any thread, as the letter. Not beside the loop's own flags: compilers read several such
         * at a time. */
        _Atomic bool stock_posted;
        struct letter stock_letter;
        uv_timer_t timer;
        struct pool_job sweep_job, stock_job, scrub_job;
        int64_t scrub_due_ms; /* monotonic */
        bool sweeping, stocking, stock_again, scrubbing, stopping;
        bool told_damage; /* it is in the log */
};

/* The timer closes with the loop's other handles. */
void upkeep_init(struct upkeep *u, struct runtime *rt, uv_loop_t *loop);
/* One pass of the sweeper; runs the loop until it is over. */
void upkeep_sweep_now(struct upkeep *u);
void upkeep_start(struct upkeep *u);
void upkeep_stop(struct upkeep *u);
/* Somebody took a sandbox that was made in advance. arg: struct upkeep. Any thread. */
void upkeep_want_stock(void *arg);

#endif
