/* The operation pool: a bounded set of threads and a bounded queue in front of them.
 *
 * A job is submitted on the loop thread, runs as an operation on one of the pool's threads, and is
 * handed back to the loop thread (`done`). Threads start when they are first needed. A full queue
 * is ERR_BUSY at once: waiting callers are worth more than a longer queue.
 *
 * Lanes keep jobs that wait for another party from taking all threads. A lane is a kind and a key,
 * an environment's id for example. A job in a lane runs only while it has a seat there; each lane
 * has so many seats, and all lanes of a kind together have so many (pool_limit_lanes()). A job
 * without a seat waits in its lane's queue and has no thread; lanes take turns. Those seats are
 * threads beyond those of pool_new(), so jobs without a lane always find one. A job that learns
 * only while it runs that it has to wait for another party asks for a seat then (pool_take_seat()).
 *
 * A lane may have an owner, a company for example. An owner gets a seat only while it has fewer
 * than are free, and a place in the queue on the same condition: alone it has half of them, and
 * however many lanes it has, there is something left for another.
 *
 * A job that waits for its seat when its time is over, or when it is cancelled, is run at once,
 * without a seat: its operation sees that at its first step.
 *
 * Operations may wait for what a job does (the end of a command is recorded, a box is found dead).
 * Such jobs say so (`awaited`) and must not wait for a job themselves: they go before all others,
 * and there is a thread for them even when every other one waits.
 *
 * A job belongs to the pool from pool_submit() until `done` is called.
 * pool_submit(), pool_cancel(), pool_drain(), pool_free(): loop thread only. */
#pragma once

#include <uv.h>

#include "rt/op.h"

#define LANE_KEY_MAX   95
#define LANE_OWNER_MAX 63

struct pool;
struct lane;

enum lane_kind {
        LANE_NONE,     /* waits for nothing but the disk and the database */
        LANE_RUNS,     /* what runs need on this machine; within the threads of pool_new() */
        LANE_PEERS,    /* waits for a provider, a host, or a box */
        LANE_REQUESTS, /* waits for the answer of an agent that is an HTTP server */
        LANE_LINKS,    /* makes or mends the connections that jobs in LANE_PEERS wait for */
        LANE_STARTS,   /* starts a plugin's worker, which jobs in LANE_LINKS wait for */
        LANE_CLOSING,  /* as LANE_PEERS, for jobs that end something: jobs that begin something do
                          not take it */
        LANE_KINDS,
};

struct lane_limits {
        unsigned each;  /* seats of one lane */
        unsigned all;   /* seats of all lanes of the kind */
        unsigned queue; /* jobs that wait in one lane; a further one is ERR_BUSY */
};

/* Jobs with the same key name the same owner; "": none. */
struct lane_name {
        char key[LANE_KEY_MAX + 1];
        char owner[LANE_OWNER_MAX + 1];
};

enum pool_job_state { JOB_IDLE, JOB_QUEUED, JOB_WAITING, JOB_RUNNING, JOB_DONE };

struct pool_job {
        void (*run)(struct pool_job *job, struct op *op); /* on a pool thread */
        void (*done)(struct pool_job *job);               /* on the loop thread */
        int64_t timeout_ms; /* 0: none; counts from submit, and again from when it has a seat */
        bool urgent;  /* goes on with work that was accepted before: a full queue takes it still */
        bool awaited; /* operations may wait for it; it waits for none */
        enum lane_kind lane;
        struct lane_name lane_name;

        /* the pool's own */
        struct lane *seat;    /* NULL: none */
        int64_t submitted_ms; /* or since when it waits for its seat */
        struct pool_job *next;
        int64_t deadline_ms;
        enum pool_job_state state;
        bool cancelled;
        struct pool_worker *worker;
};

struct pool_stats {
        unsigned threads, busy, queued;
        unsigned seats[LANE_KINDS], waiting[LANE_KINDS]; /* by kind of lane: taken; jobs without */
        int64_t longest_wait_ms; /* of the jobs that wait now for a thread or a seat */
        uint64_t completed, refused;
};

/* Something has waited for so long that callers notice. */
#define POOL_SATURATED_MS 1000

static inline bool pool_is_saturated(const struct pool_stats *s)
{
        return s->longest_wait_ms >= POOL_SATURATED_MS;
}

int pool_new(uv_loop_t *loop, unsigned max_threads, unsigned max_queue, struct pool **ret,
             struct err *err);
/* Before the first job. Without it a kind of lane has no limits. */
void pool_limit_lanes(struct pool *p, enum lane_kind kind, struct lane_limits limits);
/* Without a key (NULL) the lane is one of the owner's as a whole. */
struct lane_name lane_name(const char *owner, const char *key);
/* The lane of a job that is not submitted yet. */
void pool_job_lane(struct pool_job *job, enum lane_kind kind, struct lane_name name);
int pool_submit(struct pool *p, struct pool_job *job, struct err *err);
/* From the job's own operation: change to a seat in that lane. False when none is free: then the
 * job has the seat that it had, if any, and should end, to be submitted again with that lane. An
 * operation that is not the pool's needs no seat. */
bool pool_take_seat(const struct op *op, enum lane_kind kind, const struct lane_name *name);
/* A job that is about to wait for a provider, a host, a box or a vault says so. In the build with
 * crash points an operation without a seat ends the daemon there: its route or its job lacks a
 * lane. */
void pool_needs_seat(const struct op *op, const char *what);
/* Tell a job that its caller no longer waits; its operation sees ERR_CANCELLED at its next wait.
 * Harmless for a job that is done. */
void pool_cancel(struct pool *p, struct pool_job *job);
void pool_stats(struct pool *p, struct pool_stats *ret);
/* Whether nothing is queued or running. */
bool pool_idle(struct pool *p);
/* Refuse new jobs; cancel what runs when `cancel` is set. */
void pool_drain(struct pool *p, bool cancel);
/* End what pool_drain() left: shielded work is cancelled as well. Its intent is recorded, and the
 * next start takes it up. */
void pool_stop(struct pool *p);
/* Join the threads (they must be idle) and free the pool once the loop has closed its handle. */
void pool_free(struct pool *p);
