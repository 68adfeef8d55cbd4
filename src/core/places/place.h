/* Moving places. Every move is one compare-and-set inside a write transaction: it names the state
 * and epoch it starts from, bumps the epoch and signs the row with this node and instance. The
 * second of two movers gets ERR_CONFLICT and has changed nothing; an effect that carries an old
 * epoch is refused in the same way.
 *
 * A place of another node is not moved. Every effect on the world follows a move, so what another
 * instance has in the world stays as it is. Only the place's record may end (`gone`), or an
 * operator takes the place over.
 *
 * The move to `gone` also gives back what the place held of this machine (kind.h, `unclaim`).
 *
 * next_attempt_at and deadline_at are times of clock_steady_us().
 *
 * Inside a store_write() function. */
#pragma once

#include "core/places/place_state.h"
#include "core/runtime.h"
#include "store/places.h"

/* Insert a new row in state `intended` or `held`; fills owner, epoch and times of *place. */
int place_create(struct db *db, const struct runtime *rt, struct place *place, const char *state,
                 struct err *err);

/* Move *place (as it was read) to `state`, writing its other members along. On success *place is
 * the row as it is now. */
int place_move(struct db *db, const struct runtime *rt, struct place *place, const char *state,
               struct err *err);

/* Operation: the same in a transaction of its own. `note` NULL: the old one stays. The sweeper
 * leaves it alone until place_closing_until(), unless nothing follows (`ready`, `gone`). */
int place_commit_move(const struct op *op, struct runtime *rt, struct place *place,
                      const char *state, const char *note, struct err *err);

/* Whether the place belongs to another node: the record is a copy, and the instance that it was
 * copied from may still run (store/home.h). */
bool place_is_foreign(const struct runtime *rt, const struct place *place);
/* On an operator's word: the next move makes it ours. */
void place_take_over(const struct runtime *rt, struct place *place);

/* Whether the row was last touched by this very process, so that work on it may be under way. */
bool place_is_ours(const struct runtime *rt, const struct place *place);

/* Until when the sweeper leaves a place alone that this process works on: while the place is given
 * up, and while a whole operation may still be busy with it and undo it. Microseconds. */
int64_t place_closing_until(const struct runtime *rt);
int64_t place_busy_until(const struct runtime *rt);

/* Make the very first attempt at closing as thorough as every further attempt: a provider that
 * knows both is asked to destroy the place, not only to release it. */
static inline void place_insist(struct place *place)
{
        place->attempts = MAX(place->attempts, 1);
}

/* When to try again after `attempts` failures: 1 s doubling to 5 min. Microseconds. */
int64_t place_retry_pause(int64_t attempts);

/* Operation: the row by its id, in the operation's arena. */
int place_load(struct op *op, struct runtime *rt, const char *id, struct place *ret,
               struct err *err);
