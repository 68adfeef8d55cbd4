/* Waking agents from inside transactions that are about something else: an issue is assigned, a
 * comment is posted, a run ends. What such a transaction queued is told after its commit.
 *
 *     struct run_wakes wakes = { .arena = op->arena };
 *     r = store_write(op, rt->store, change, &q, err);     // calls run_wake_in() and
 * run_wakes_add() if (r >= 0) run_wakes_tell(rt, &wakes);                  // heartbeat.run.queued,
 * and kick
 *
 * A wake-up is written down whatever becomes of it: store/wakeups.h has the statuses. */
#ifndef BERTH_CORE_RUN_WAKE_H
#define BERTH_CORE_RUN_WAKE_H

#include "core/run.h"

/* What is to be told. One thread at a time. */
struct run_wakes {
        struct arena *arena;
        struct wake_result *at;
        size_t n, room;
        bool kick; /* there is something for the host to do, whatever was queued */
};

void run_wakes_add(struct run_wakes *wakes, const struct wake_result *result);
/* After the commit; any thread. Again: nothing. */
void run_wakes_tell(struct runtime *rt, struct run_wakes *wakes);

/* In the transaction in which a run ends: wake-ups that waited for it become runs, one per issue.
 * Both the issue that the run was for and those it had checked out. */
int run_wake_promote_in(struct db *db, const struct op *op, struct runtime *rt,
                        const struct run *ended, struct run_wakes *wakes, struct err *err);
/* The same for all issues that nobody works on any more, whatever the reason. */
int run_wake_promote_all(struct db *db, const struct op *op, struct runtime *rt,
                         struct run_wakes *wakes, struct err *err);

#endif
