/* When a private daemon ends: no client has been connected for a few seconds, and no lease is
 * active, and no run is left. Loop thread. */
#pragma once

#include "core/runtime.h"
#include "net/http_server.h"
#include "rt/pool.h"

struct idle {
        uv_timer_t timer;
        struct pool *pool;
        struct runtime *rt;
        struct http_server *http;
        void (*over)(void *arg); /* once */
        void *arg;

        int64_t since_ms; /* without connections since then */
        struct pool_job job;
        bool asking;
        int64_t active; /* leases and runs, as the job counted them; -1: could not */
};

/* Fill in pool, rt, http, over and arg first. The timer closes with the loop's other handles. */
void idle_start(struct idle *i, uv_loop_t *loop);
void idle_stop(struct idle *i);
