/* What the first parameter of a path names, by the beginning of the path: one table, in thing.c. It
 * has the text for a parameter that is no id, and the lane of the pool (rt/pool.h) of routes that
 * may wait for a provider, a host, a box or a vault (ROUTE_WAITS). All that waits for one
 * environment shares that environment's seats; an object without an environment has the seats of
 * its company or its plugin. */
#pragma once

#include "api/api.h"

/* Operation: ERR_NOT_FOUND with the thing's text when the first parameter is no id, for no row can
 * have it. An agent may be named by its slug: params[0] is its id afterwards. */
int call_check_thing(struct call *c, struct err *err);
/* Operation, once the caller is known. 1: go on; 0: no seat is free and c->lane says where one is
 * to be waited for. */
int call_take_lane(struct call *c, struct err *err);

/* Whether a route may have ROUTE_WAITS. */
bool thing_has_lane(const struct route *route);

/* call.c: into c->body, when it is not there yet. */
int call_read_body(struct call *c, struct err *err);
