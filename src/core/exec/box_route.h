/* How the box of a place is reached: there is one box per place, wherever the place is.
 *
 * The hub (exec.h) speaks the box protocol over a descriptor and does not care what carries it. A
 * kind whose places are not on this machine says with a route of its own how a box there is
 * connected to, made, asked after and ended (kind.h, `route`). Everything else is the same, but
 * for output: a box that shares our file system writes it into our files; any other keeps it in a
 * spool of its own and sends it, and the hub writes the same files (exec_spool.c).
 *
 * A box that cannot be reached does not count as dead: its executions stay open, and it is tried
 * again with growing pauses.
 *
 * A route is immutable. Each function names its threads. */
#pragma once

#include <pthread.h>

#include "core/runtime.h"
#include "rt/op.h"
#include "store/places.h"

struct box_route {
        /* The box sees the same files as the daemon. */
        bool is_here;
        /* Loop thread; never waits. A connected stream socket that speaks to the box, or will as
         * soon as the way is open; it reads end-of-file when the way cannot be opened. Several
         * calls for one place are fine: the box serves the latest. ERR_BUSY: try again at once. */
        int (*connect)(struct runtime *rt, const struct place *place, int *ret_fd, struct err *err);
        /* Operation: make sure that a box runs; one is started in the place's directory when none
         * does. No other thread makes or ends the box of this place meanwhile. */
        int (*ensure)(struct op *op, struct runtime *rt, const struct place *place,
                      struct err *err);
        /* Operation: 1 when the box lives, 0 when it does not, or an error when that cannot be
         * known now. Answers soon: a way that is down is an error at once. An open stream to the
         * box may count as proof that it lives. */
        int (*is_alive)(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err);
        /* Operation: end the box and whatever it ran, the executions named (NULL-terminated) and
         * all others, and remove its directory. Idempotent, and fine when there is no box. */
        int (*bury)(struct op *op, struct runtime *rt, const struct place *place,
                    const char *const *exec_ids, struct err *err);
};

/* Boxes on this machine, those of sandboxes included. */
const struct box_route *box_route_here(void);

/* Any thread: the route of a place; the route of this machine when the place has no box. */
const struct box_route *box_route_of(const struct runtime *rt, const struct place *place);
/* Any thread: whether a box may exist for it. */
bool box_route_has_box(const struct runtime *rt, const struct place *place);

/* A place with memory of its own, so that the loop can keep it. */
struct kept_place {
        struct place place;
        struct arena arena;
};

struct kept_place *kept_place_new(const struct place *place);
void kept_place_free(struct kept_place *k);

/* A thread that makes or ends the box of a place holds the box's lock for as long as that takes. */
struct box_locks {
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct box_lock *held;
};

void box_locks_init(struct box_locks *l);
void box_locks_done(struct box_locks *l);
/* Operation: wait for it within the operation's time. */
int box_locks_take(struct op *op, struct box_locks *l, const char *place_id, struct err *err);
void box_locks_give(struct box_locks *l, const char *place_id);
