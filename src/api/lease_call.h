/* What the routes below a lease share. */
#pragma once

#include "api/api.h"
#include "core/leases/lease.h"

enum lease_use {
        LEASE_LOOK, /* at the lease itself */
        LEASE_KEEP, /* it is renewed or given up: board callers only */
        LEASE_USE,  /* use of its place: callers who may have things run there (host_use.h) */
};

/* The lease of the path's first parameter, for a caller that manages environments of its company.
 */
int call_lease(struct call *c, enum lease_use use, struct lease_record *ret, struct err *err);
/* The same for a lease by its id, and op->actor. */
int lease_check_use(struct op *op, struct runtime *rt, const char *id, enum lease_use use,
                    struct lease_record *ret, struct err *err);

/* The body of a request for forks, and room for their leases. */
struct fork_body {
        const char *environment_id; /* of a snapshot's forks */
        size_t n;
        struct lease_request req;
        struct lease_record *made;
};
int call_fork_request(struct call *c, bool of_snapshot, struct fork_body *ret, struct err *err);
int answer_forks(struct call *c, int r, const struct fork_body *body);
