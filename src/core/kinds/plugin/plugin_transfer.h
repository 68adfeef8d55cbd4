/* The commands of core/exec/exec_transfer.h, run by the worker that keeps a lease:
 * environmentExecute with the working directory `/` and without input. Operation threads. */
#pragma once

#include "core/exec/exec_transfer.h"
#include "core/kinds/plugin/plugin_place.h"

/* A member of struct kind; loads the lease. */
int plugin_transfer_of(struct op *op, struct runtime *rt, const struct lease *lease,
                       struct exec_transfer *ret, struct err *err);

/* Everything is borrowed by *ret. */
struct plugin_transfer {
        struct runtime *rt;
        const struct plugin_lease *lease;
};

void plugin_transfer_init(struct plugin_transfer *p, struct runtime *rt,
                          const struct plugin_lease *lease, struct exec_transfer *ret);
