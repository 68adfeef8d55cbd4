/* The steps of a run and every move that exists between them. This is the only file that decides
 * which moves are allowed; the engine asks it before each compare-and-set, and the model in test/
 * checks it.
 *
 *   queued      nothing was done yet
 *   preparing   claimed: a place is leased, the workspace staged, the command recorded
 *   executing   the command runs, or has ended and its end was not processed yet
 *   finishing   the command ended: the workspace is brought home, the outcome decided
 *   releasing   the outcome is recorded; leases are given up
 *   done        nothing is left to do
 *
 * The status of a run (what users see) is separate: a cancelled run is terminal at once and still
 * has a command to end and a lease to give up.
 *
 * Pure functions; any thread. */
#pragma once

#include "base/err.h"
#include "core/transition.h"
#include "store/runs.h"

/* All allowed moves. */
extern const struct transition run_transitions[];

/* 0, or ERR_INTERNAL: asking for a move that does not exist is a bug of ours. */
int run_transition_check(const char *from, const char *to, struct err *err);
