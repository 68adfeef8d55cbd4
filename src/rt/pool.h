/* The operation pool: a bounded set of threads and a bounded queue in front of them.
 *
 * A job is submitted on the loop thread, runs as an operation on one of the pool's threads, and is
 * handed back to the loop thread (`done`). Threads start when they are first needed. A full queue
 * is ERR_BUSY at once: waiting callers are worth more than a longer queue.
 *
 * Operations may wait for what a job does (the end of a command is recorded, a box is found dead).
 * Such jobs say so (`awaited`) and must not wait for a job themselves: they go before all others,
 * and there is a thread for them even when every other one waits.
 *
 * A job belongs to the pool from pool_submit() until `done` is called.
 * pool_submit(), pool_cancel(), pool_close(): loop thread only. */
#ifndef BERTH_RT_POOL_H
#define BERTH_RT_POOL_H

#include <uv.h>

#include "rt/op.h"

struct pool;

enum pool_job_state { JOB_IDLE, JOB_QUEUED, JOB_RUNNING, JOB_DONE };

struct pool_job {
        void (*run)(struct pool_job *job, struct op *op); /* on a pool thread */
        void (*done)(struct pool_job *job);               /* on the loop thread */
        int64_t timeout_ms;                               /* 0: none; counts from submit */
        bool urgent;  /* goes on with work that was accepted before: a full queue takes it still */
        bool awaited; /* operations may wait for it; it waits for none */

        /* the pool's own */
        struct pool_job *next;
        int64_t deadline_ms;
        enum pool_job_state state;
        bool cancelled;
        struct pool_worker *worker;
};

struct pool_stats {
        unsigned threads, busy, queued;
        uint64_t completed, refused;
};

int pool_new(uv_loop_t *loop, unsigned max_threads, unsigned max_queue, struct pool **ret,
             struct err *err);
int pool_submit(struct pool *p, struct pool_job *job, struct err *err);
/* Tell a job that nobody waits for it any more; its operation sees ERR_CANCELLED at its next wait.
 * Harmless for a job that is done. */
void pool_cancel(struct pool *p, struct pool_job *job);
void pool_stats(struct pool *p, struct pool_stats *ret);
/* Whether nothing is queued or running. */
bool pool_idle(struct pool *p);
/* Refuse new jobs; cancel what runs when `cancel` is set. */
void pool_drain(struct pool *p, bool cancel);
/* Join the threads (they must be idle) and free the pool once the loop has closed its handle. */
void pool_free(struct pool *p);

#endif
