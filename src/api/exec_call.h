/* What the routes of executions share. */
#ifndef BERTH_API_EXEC_CALL_H
#define BERTH_API_EXEC_CALL_H

#include "api/lease_call.h"
#include "core/exec.h"

/* The execution of the path's second parameter, in the lease of the first. Board callers. */
int call_execution(struct call *c, struct execution *ret, struct err *err);

/* Handlers of exec_stream.c. */
int exec_stream_events(struct call *c, struct err *err);
int exec_stream_output(struct call *c, struct err *err);

#endif
