/* The states of a place and every move that exists between them. This is the only file that decides
 * which moves are allowed; the engine asks it before each compare-and-set, and the model in test/
 * checks it.
 *
 *   intended   the provider is about to be asked; the place may or may not exist yet
 *   held       it exists and a lease uses it (or is just being given or taken back)
 *   ready      it exists and no lease uses it
 *   closing    it must go; the provider is asked until it is gone
 *   uncertain  it is unknown whether it exists; the sweeper looks, else an operator decides
 *   gone       it does not exist
 *
 * Pure functions; any thread. */
#pragma once

#include "base/err.h"
#include "core/transition.h"

#define PLACE_INTENDED  "intended"
#define PLACE_READY     "ready"
#define PLACE_HELD      "held"
#define PLACE_CLOSING   "closing"
#define PLACE_GONE      "gone"
#define PLACE_UNCERTAIN "uncertain"

/* All allowed moves. */
extern const struct transition place_transitions[];

/* 0, or ERR_INTERNAL: asking for a move that does not exist is a bug of ours. */
int place_transition_check(const char *from, const char *to, struct err *err);
