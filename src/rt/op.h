/* One operation: ordinary blocking C on a pool thread, with everything it must carry.
 *
 * Every wait inside an operation also watches its deadline and its cancel descriptor; op_check() is
 * the test between steps. Compensation that has to happen although the caller gave up runs under a
 * shield: a copy of the operation with a deadline of its own and no cancel. The daemon's stop ends
 * that as well: intent is recorded before every outside effect, so the next start goes on with it.
 *
 * The arena lives as long as the operation. One thread at a time; op_cancel_set() is for any
 * thread. */
#pragma once

#include <stdatomic.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/uuid.h"

#define OP_NO_DEADLINE INT64_MAX

struct actor; /* who asks: core/access/access.h */
struct pool_job;

struct op_cancel {
        _Atomic bool set;
        int fd; /* eventfd, readable once set */
};

struct op {
        struct arena *arena;
        int64_t deadline_ms;      /* monotonic */
        struct op_cancel *cancel; /* NULL: cannot be cancelled */
        struct op_cancel *stop;   /* set when the daemon ends, shield or not; NULL: none */
        struct pool_job *job;     /* whose operation it is; NULL: not the pool's */
        const struct actor *actor;
        const char *run_id; /* the caller's run, for the audit trail; may be NULL */
};

int op_cancel_init(struct op_cancel *c, struct err *err);
void op_cancel_done(struct op_cancel *c);
void op_cancel_set(struct op_cancel *c);
void op_cancel_reset(struct op_cancel *c);

/* 0, ERR_CANCELLED or ERR_TIMEOUT. */
int op_check(const struct op *op, struct err *err);

/* Milliseconds left, at most `limit_ms`; never negative. */
int64_t op_time_left(const struct op *op, int64_t limit_ms);

/* The same operation for work that must still be done: `ms` from now, deaf to cancel but not to a
 * stop of the daemon. */
struct op op_shield(const struct op *op, int64_t ms);
/* The same operation for a step with a limit of its own, which holds also where it is longer than
 * what is left; 0: none. */
struct op op_with_time(const struct op *op, int64_t ms);

/* Wait until fd has one of `events` (poll(2)), or the operation ends. fd -1 waits for the time
 * only. `limit_ms` < 0: as long as the operation may take. 1 ready, 0 limit passed, or ERR_*. */
int op_wait_fd(const struct op *op, int fd, short events, int64_t limit_ms, struct err *err);
