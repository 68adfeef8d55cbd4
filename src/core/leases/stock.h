/* Places made in advance (`poolSize` of an environment's configuration), so that a lease only has
 * to take one.
 *
 * They are places in state `ready` with the policy `stock`, opened with the environment's
 * configuration and never used. The lease that takes one gives it its own policy in the same
 * transaction, so a used place never gets back here. The sweeper closes places that the environment
 * no longer wants; stock_fill() makes the missing ones, after a take and after each pass of the
 * sweeper.
 *
 * Operation threads. */
#pragma once

#include "core/kinds/kind.h"

/* Find a place that serves `config`: 1 and *ret, or 0 when there is none. The place is not taken
 * yet. */
int stock_find(struct op *op, struct runtime *rt, const struct environment *env,
               const struct kind *kind, const char *config, struct place *ret, struct err *err);
/* Close a place that turned out to be dead. */
void stock_discard(struct op *op, struct runtime *rt, struct place *place);
/* A lease took one: make another soon. */
void stock_want(struct runtime *rt);

/* While an environment is held, no place is made in advance for it: it is about to be deleted, and
 * its places are being given up. The caller owns *hold; a place that was intended before is
 * finished. */
struct stock_hold {
        struct stock_hold *next;
        const char *environment_id;
};
void stock_hold(struct runtime *rt, struct stock_hold *hold, const char *environment_id);
void stock_unhold(struct runtime *rt, struct stock_hold *hold);

/* Make the missing places in all environments. Goes on past single failures. *ret_made is how many.
 */
int stock_fill(struct op *op, struct runtime *rt, unsigned *ret_made, struct err *err);

/* Whether the environment, as it is, still wants this one of its places. Inside a transaction. */
int stock_is_wanted(struct db *db, struct runtime *rt, const struct environment *env,
                    const struct place *place, struct arena *arena, bool *ret, struct err *err);
