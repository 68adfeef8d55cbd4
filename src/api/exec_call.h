/* What the routes of executions share. */
#pragma once

#include "api/lease_call.h"
#include "core/exec/exec.h"

/* The execution of the path's second parameter, in the lease of the first. Board callers. */
int call_execution(struct call *c, struct execution *ret, struct err *err);
/* The same for an id that came otherwise. */
int call_execution_of(struct call *c, const char *id, struct execution *ret, struct err *err);
/* Start what an execute request asks for in the lease of the first parameter. Board callers. */
int call_start_execution(struct call *c, json_t *body, const char **ret_id, struct err *err);

/* Handlers of exec_feed.c. */
int exec_stream_events(struct call *c, struct err *err);
int exec_stream_output(struct call *c, struct err *err);
