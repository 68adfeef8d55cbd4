/* Events of a run, as its readers see them: a row, and a live event. */
#pragma once

#include "codec/json.h"
#include "core/runtime.h"
#include "store/runs.h"

/* An entry in the run's event list, in a transaction that is under way; published when it is
 * committed. take_payload is an object or NULL. */
int run_event_add(struct db *db, struct runtime *rt, const struct run *run, const char *type,
                  const char *level, const char *message, json_t *take_payload, struct err *err);
