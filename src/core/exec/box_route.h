/* How the box of a place is reached: there is one box per place, wherever the place is.
 *
 * The hub (exec.h) speaks the box protocol over a descriptor and does not care what carries it. A
 * kind whose places are not on this machine says with a route of its own how a box there is
 * connected to, made, asked after and ended (kind.h, `route`). Everything else is the same, but
 * for output: a box that shares our file system writes it into our files; any other keeps it in a
 * spool of its own and sends it, and the hub writes the same files (exec_spool.c).
 *
 * A box that cannot be asked is not a box that is dead: its executions stay open, and it is asked
 * again with growing pauses.
 *
 * A route is immutable. Threads are said beside each function. */
#ifndef BERTH_CORE_BOX_ROUTE_H
#define BERTH_CORE_BOX_ROUTE_H

#include <pthread.h>

#include "core/runtime.h"
#include "rt/op.h"
#include "store/places.h"

struct box_route {
        /* It sees the files that we see. */
        bool is_here;
        /* Loop thread; never waits. A connected stream socket that speaks to the box, or will as
         * soon as the way is open; it reads end-of-file when that comes to nothing. Several calls
         * for one place are fine: the box serves the latest. ERR_BUSY: at once again. */
        int (*connect)(struct runtime *rt, const struct place *place, int *ret_fd, struct err *err);
        /* Operation: a box runs; one is started in the place's directory when none does. Nobody
         * else makes or ends the box of this place meanwhile. */
        int (*ensure)(struct op *op, struct runtime *rt, const struct place *place,
                      struct err *err);
        /* Operation: 1 when it lives, 0 when it does not, or an error when that cannot be known
         * now. Soon: a way that is down is an error at once. A stream that is open to it may be
         * taken for its life. */
        int (*is_alive)(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err);
        /* Operation: end the box and whatever it ran, the executions named (NULL-terminated) and
         * all others, and remove its directory. Comes to the same end when called again, and when
         * there is none. */
        int (*bury)(struct op *op, struct runtime *rt, const struct place *place,
                    const char *const *exec_ids, struct err *err);
};

/* Boxes on this machine, those of sandboxes included. */
const struct box_route *box_route_here(void);

/* Any thread: the route of a place; that of this machine where it has no box. */
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

/* Whoever makes or ends the box of a place holds its lock, for as long as that takes. */
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

#endif
