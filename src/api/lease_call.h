/* What the routes below a lease share. */
#ifndef BERTH_API_LEASE_CALL_H
#define BERTH_API_LEASE_CALL_H

#include "api/api.h"
#include "core/leases/lease.h"

/* The lease of the path's first parameter, for a caller that manages environments of its company;
 * actions are for board callers only. */
int call_lease(struct call *c, bool board_only, struct lease_record *ret, struct err *err);

#endif
