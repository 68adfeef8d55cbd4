/* Comparing the record with the world, in both directions.
 *
 *   unknown      exists in the world; no living row names it
 *   missing      a row says that it exists; the world does not have it
 *   uncertain    nobody can know; an operator decides
 *   cleanupDue   closing was tried and failed, and will be tried again
 *
 * Work under way is none of these. Everything is looked at twice where the two sides cannot be read
 * at one instant, so that a place that just came or went is not reported. Operation threads. */
#ifndef BERTH_CORE_LEAKS_H
#define BERTH_CORE_LEAKS_H

#include "codec/json.h"
#include "core/runtime.h"

/* The document of GET /api/leaks. */
int leaks_report(struct op *op, struct runtime *rt, struct buf *ret_json, struct err *err);

/* An operator's decisions on one place: close it now, or write it off. `forget` is for uncertain
 * places and for closing ones that failed; what exists then is the operator's business. A place of
 * another node (store/home.h) is uncertain, and closed only with `take_over`. */
int leaks_close(struct op *op, struct runtime *rt, const char *place_id, bool take_over,
                struct err *err);
int leaks_forget(struct op *op, struct runtime *rt, const char *place_id, struct err *err);

#endif
