/* The sweeper repairs what crashes, lost calls and forgetful callers leave behind: one pass looks
 * at every living place and every lease whose time is up, and takes up those that no thread works
 * on.
 *
 *   lease past its expiry                      released as expired
 *   lease of a run that ended                  released, as failed when the run failed
 *   intended, abandoned                        closed if the driver can find it, else uncertain
 *   held without a lease, abandoned            back to ready (reusable) or closed
 *   closing and due                            the provider is asked again, with growing pauses
 *   uncertain                                  looked for again where the driver can list
 *   ready past its time, not wanted, or dead   closed
 *   held by a lease, but dead                  its leases end as failed
 *
 * "Abandoned" means that the place belongs to an earlier instance of this node, or to this one with
 * its time window over. A pass may run beside any other work: each step is a compare-and-set.
 *
 * A provider or a host may be slow, and only its own environment waits for it: sweep_look() finds
 * the environments where something is to be done, and each gets a pass of its own.
 *
 * Operation threads; one pass at a time for each environment. */
#pragma once

#include "core/places/sweep_list.h"
#include "core/runtime.h"

struct sweep_result {
        unsigned expired, released, closed, parked, failed;
};

/* Add the environments where a pass would find something to do. Changes nothing and never waits. */
int sweep_look(struct op *op, struct runtime *rt, struct sweep_list *list, struct err *err);
/* One pass over an environment, or over all (NULL). Goes on past single failures; an error means
 * that the store did not work. */
int sweep(struct op *op, struct runtime *rt, const char *environment_id, struct sweep_result *ret,
          struct err *err);

/* Before each pass: when the wall clock was set, move the deadlines of leases and places along, so
 * that each keeps the time it had left. *ret_jump_us is how far they moved (positive: forward), 0
 * when it was not set. */
int sweep_follow_clock(struct op *op, struct runtime *rt, int64_t *ret_jump_us, struct err *err);
