/* Agents that work by the clock: runtimeConfig.heartbeat {enabled, intervalSec | cron}.
 *
 * Each due time wakes an agent once, also over restarts and when the wall clock is set: the last
 * due time is a row (agent_schedules), and going on to the next is a compare-and-set in the
 * transaction that wakes. Missed times are made up for by one wake-up, not by many. An agent that
 * gets a schedule, or comes back from a pause, is due for the first time when that time comes.
 *
 *   interval   so long after the last time; a clock that was set back begins anew
 *   cron       in UTC; a time that was due is not due again when the clock is set back, unless by
 *              more than a day, when the clock must have been wrong before
 *
 * A pass also takes up retries that are due, and wake-ups that were deferred for a run that ended
 * unnoticed, and looks at runs that print nothing (run_silence.h). */
#pragma once

#include <uv.h>

#include "core/runs/run.h"

/* The clock that makes the passes: when something is due, and as often as the sweeper. Loop thread.
 */
struct run_scheduler;

int run_scheduler_new(struct runtime *rt, uv_loop_t *loop, struct run_scheduler **ret,
                      struct err *err);
void run_scheduler_start(struct run_scheduler *s);
/* No pass begins any more. NULL: nothing happens. */
void run_scheduler_stop(struct run_scheduler *s);
/* When no pass is under way; freed once the loop closed its handle. */
void run_scheduler_free(struct run_scheduler *s);
