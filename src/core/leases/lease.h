/* Leases: one holder's use of an environment, and the place in the world behind it.
 *
 * The life of one lease, with what is committed before what happens:
 *
 *   acquire   intended committed | provider opens | lease row and held committed together
 *   reuse     ready -> held committed | provider resumes | lease row committed
 *   fork      the kind keeps the files of a place | acquire, for each (lease_fork.c)
 *   release   lease ended and closing committed | provider closes | gone committed
 *   release   lease ended committed | provider parks | held -> ready committed   (reusable places)
 *
 * A second lease of a run that holds a place joins that place without moving it, as long as the
 * first lease lives.
 *
 * A crash between any two of these steps leaves a row from which the sweeper (sweeper.h) goes on.
 * Releasing always ends the lease: when the provider fails, the lease says so (cleanupStatus
 * failed) and the place stays `closing` until it is gone. A second attempt to end a lease changes
 * nothing.
 *
 * Operation threads. Records live in the operation's arena. */
#pragma once

#include "core/places/lease_record.h"

/* Claim an idle place that matches, or open a new one. */
int lease_acquire(struct op *op, struct runtime *rt, const struct environment *env,
                  const struct lease_request *req, struct lease_record *ret, struct err *err);

/* At most so many places are forked at once. */
#define LEASE_FORKS_MAX 32
/* Acquire `n` leases whose places have the files of a living lease's as they are now, and go their
 * own ways from there; all of them, or none. ret has room for n. */
int lease_fork(struct op *op, struct runtime *rt, const struct lease_record *source, size_t n,
               const struct lease_request *req, struct lease_record *ret, struct err *err);
/* Acquire `n` leases alike, all of them or none. `source` makes the keys of this request its own.
 */
int lease_acquire_many(struct op *op, struct runtime *rt, const struct environment *env,
                       const char *source, size_t n, const struct lease_request *req,
                       struct lease_record *ret, struct err *err);

/* End a lease with `status` (released, expired or failed). A lease that ended already is returned
 * as it is. */
int lease_release(struct op *op, struct runtime *rt, const char *lease_id, const char *status,
                  struct lease_record *ret, struct err *err);

/* Release every active lease of a run that op->actor may manage, going on past one that fails; fn
 * gets each lease that changed. ERR_FORBIDDEN when there are leases, but the actor may manage none
 * of them. */
int lease_release_run(struct op *op, struct runtime *rt, const char *run_id, const char *status,
                      int (*fn)(void *ctx, const struct lease_record *record), void *ctx,
                      struct err *err);

/* Set a new expiry; ERR_CONFLICT when the lease ended or its time is up. */
int lease_renew(struct op *op, struct runtime *rt, const char *lease_id, int64_t ttl_ms,
                struct lease_record *ret, struct err *err);

/* Destroy the place and end the lease as failed. */
int lease_destroy(struct op *op, struct runtime *rt, const char *lease_id, struct lease_record *ret,
                  struct err *err);

/* Pause, resume and realize give the provider's answer, a document that the arena keeps (kind.h).
 */
int lease_set_paused(struct op *op, struct runtime *rt, const char *lease_id, bool paused,
                     json_t **ret, struct err *err);
int lease_realize(struct op *op, struct runtime *rt, const char *lease_id, json_t *workspace,
                  json_t **ret, struct err *err);
/* For the sweeper and for operators: ask the provider to close a place in state `closing`, and
 * record how it went. The place must have been moved or claimed by the caller. Returns the
 * provider's error after recording it. */
int lease_finish_closing(struct op *op, struct runtime *rt, struct place *place, struct err *err);
/* Move it to `closing` first, with a note (NULL: the old one stays). */
int lease_close_place(struct op *op, struct runtime *rt, struct place *place, const char *note,
                      struct err *err);
/* A place in state `held` that no living lease uses goes back to `ready`, or to `closing`. */
int lease_finish_parking(struct op *op, struct runtime *rt, struct place *place, struct err *err);

/* Shared by the files of this module. */
json_t *lease_activity_details(const struct lease_record *record, bool released);
