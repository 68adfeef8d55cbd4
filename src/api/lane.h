/* Which lane of the pool (rt/pool.h) a call belongs to: calls that may wait for a provider, a host,
 * a box or a vault. A route says what its first parameter names (ROUTE_OF_*), and all that waits
 * for one environment shares that environment's seats; what has no environment has the seats of its
 * company or its plugin. */
#ifndef BERTH_API_LANE_H
#define BERTH_API_LANE_H

#include "api/api.h"

/* Operation thread, once the caller is known. 1: go on; 0: no seat is free and c->lane says
 * where one is to be waited for. */
int call_take_lane(struct call *c, struct err *err);

#endif
