/* Telling providers that places are still wanted: `renew` of their descriptors, so that a place
 * whose daemon is gone ends by itself. Loop thread; the commands run in a job of the pool. */
#pragma once

#include <uv.h>

#include "core/runtime.h"

struct command_keeper;

/* NULL where no kind renews. */
struct command_keeper *command_keeper_start(struct runtime *rt, uv_loop_t *loop);
/* Nothing is renewed any more. The memory goes with command_keeper_free(), once the pool is idle
 * and the loop has closed the timer. */
void command_keeper_stop(struct command_keeper *k);
void command_keeper_free(struct command_keeper *k);
