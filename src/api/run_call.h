/* What the routes of runs share. */
#ifndef BERTH_API_RUN_CALL_H
#define BERTH_API_RUN_CALL_H

#include "api/api.h"
#include "store/runs.h"

/* Whether nothing will be added to its log any more (run_log.c). */
bool run_log_is_whole(const struct run *run);

/* Handlers of run_log_stream.c: follow the log of the run in the path, as events or, for who does
 * not ask for those, as its lines. */
int run_log_follow(struct call *c, struct err *err);
int run_log_stream(struct call *c, struct err *err);

#endif
