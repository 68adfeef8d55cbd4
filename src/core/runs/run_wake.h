/* Wake-ups that were deferred because a run was working on their issue, and how the rows of a
 * wake-up fit together (run.h has the waking itself).
 *
 * Every wake-up is recorded, whatever becomes of it: store/wakeups.h has the statuses. A queued run
 * is announced when the transaction is committed; *ret_kick (may be NULL) is set when
 * run_host_kick() has to follow that. */
#pragma once

#include "core/runs/run.h"

/* In the transaction in which a run ends: wake-ups that waited for it become runs, one per issue.
 * For the issue that the run was for and for those it had checked out; with `ended` NULL for all
 * issues that no run works on any more, whatever the reason. */
int run_wake_promote_in(struct db *db, const struct op *op, struct runtime *rt,
                        const struct run *ended, bool *ret_kick, struct err *err);
/* heartbeat.run.queued, once it is committed. */
void run_announce_queued(struct db *db, const struct run *run);
