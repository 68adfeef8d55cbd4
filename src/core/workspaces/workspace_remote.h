/* Where the directory of a lease is, in places that are not on this machine. Operation threads. */
#ifndef BERTH_CORE_WORKSPACE_REMOTE_H
#define BERTH_CORE_WORKSPACE_REMOTE_H

#include "core/runtime.h"
#include "rt/op.h"
#include "store/leases.h"

struct workspace_remote {
        struct lease lease;
        const char *cwd; /* absolute: the lease's `remoteCwd` */
        /* The name of its directory: the run's id, or the lease's. A run that is prepared again has
         * another lease; giving up the first lease while the command works in the second must not
         * remove the directory. */
        const char *run;
        bool in_place; /* `workspaceMode` */
};

/* Everything in the operation's arena. ERR_UNPROCESSABLE: the lease names no directory. */
int workspace_remote_find(struct op *op, struct runtime *rt, const char *lease_id,
                          struct workspace_remote *ret, struct err *err);

#endif
