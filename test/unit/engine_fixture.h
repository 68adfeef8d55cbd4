/* What the tests of the lease engine stand on: a store in which writes can fail and the daemon can
 * die, and a driver with a world of its own that does as it is told. */
#pragma once

#include "test.h"

#include "core/access/access.h"
#include "core/leases/lease.h"
#include "core/leases/sweeper.h"
#include "core/places/place.h"

#define WORLD_MAX 512

/* Environments: their id is their configuration, and their name the policy. */
#define ENV_ONCE   "once"   /* ephemeral, driver `listed` */
#define ENV_REUSE  "reuse"  /* reuse_by_environment, driver `listed` */
#define ENV_RETAIN "retain" /* retain_on_failure, driver `listed` */
#define ENV_BLIND  "blind"  /* reuse_by_environment, driver `blind`, which cannot list */

/* Something in the world. */
struct thing {
        char tag[UUID_LEN + 1];
        bool in_use; /* not parked */
};

enum effect { EFFECT_OPEN, EFFECT_RESUME, EFFECT_PARK, EFFECT_CLOSE, EFFECTS };

struct engine;

/* What the driver or the store does the next time; 0 and false mean: works. */
struct misdeed {
        int code;     /* the error that is returned */
        bool happens; /* ... after the effect */
        bool cancel;  /* the operation is cancelled meanwhile */
        bool die_before, die_after;
};

struct engine {
        struct runtime rt;
        struct store faulty;
        struct store *store; /* the one behind it */
        char url[SCRATCH_PATH_MAX + 16], scratch[SCRATCH_PATH_MAX];
        bool dead; /* the daemon crashed: nothing has an effect any more */
        struct thing world[WORLD_MAX];
        size_t n_world;
        unsigned calls[EFFECTS];

        /* Asked at each outside effect and each write; may run other operations first. */
        struct misdeed (*decide_effect)(struct engine *e, enum effect effect, struct op *op,
                                        const struct place *place);
        void (*after_effect)(struct engine *e, enum effect effect, const struct place *place);
        struct misdeed (*decide_write)(struct engine *e, const struct op *op);
        void *ctx;
};

void engine_start(struct engine *e);
void engine_stop(struct engine *e);
/* The daemon is started again: a new instance on the same store and the same world. */
void engine_restart(struct engine *e);
/* Time passes: everything that is due at some time comes nearer. */
void engine_advance(struct engine *e, int64_t seconds);

/* An operation without end, with its own arena. */
struct engine_op {
        struct op op;
        struct op_cancel cancel;
        struct arena arena;
};
void engine_op_init(struct engine_op *o);
void engine_op_done(struct engine_op *o);

int engine_acquire(struct engine *e, struct engine_op *o, const char *environment, const char *run,
                   const char *key, int64_t ttl_ms, struct lease_record *ret, struct err *err);
int engine_release(struct engine *e, const char *lease_id, const char *status);
void engine_sweep(struct engine *e);

/* Text of one value of one row, from outside the engine; in a static buffer. "-" for NULL or none.
 */
const char *engine_sql(struct engine *e, const char *sql, const char *arg);
int64_t engine_count(struct engine *e, const char *sql, const char *arg);
void engine_exec(struct engine *e, const char *sql, const char *arg);
struct thing *engine_find(struct engine *e, const char *tag);

/* The first of the invariants that does not hold, or NULL:
 *   what exists is named by a living row
 *   a place with a living lease is held, exists and is in use
 *   an idle place exists, is not in use, and has no living lease
 *   a place has the leases of one run only, and more than one only when it is reusable */
const char *engine_broken_invariant(struct engine *e);
