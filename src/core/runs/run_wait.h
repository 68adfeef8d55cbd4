/* A command of the daemon's own beside the work: started in a lease and waited for. Operation
 * threads. */
#pragma once

#include "core/exec/exec.h"
#include "core/kinds/provision.h"

#define RUN_WAIT_OUTPUT_MAX ((size_t)64 << 10) /* bytes kept of each stream */

struct run_command_end {
        struct provision_end how; /* its texts are those of out and err */
        struct buf out, err;
        size_t max; /* in: bytes kept of each stream; 0: RUN_WAIT_OUTPUT_MAX */
        /* In: called with the execution about once a second while it runs, on the caller's thread.
         * NULL: not at all. */
        void (*look)(void *arg, const char *id);
        void *arg;
};

/* Prepare the place for a request of the daemon's own, run it and wait. An error means that it is
 * unknown how the command ended. */
int run_command_wait(struct op *op, struct runtime *rt, const struct lease_record *record,
                     struct exec_request *req, struct run_command_end *ret, struct err *err);
void run_command_end_done(struct run_command_end *end);
