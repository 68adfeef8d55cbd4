/* A byte stream from an operation to a service of the box in a place: CONNECT frames over the
 * place's link (docs/box-protocol.md). The box forks a worker for it; the stream ends with either.
 * Operation threads. */
#pragma once

#include "core/runtime.h"
#include "rt/op.h"
#include "store/leases.h"
#include "store/places.h"

enum box_service {
        BOX_SERVICE_FILES = 1, /* workspace/sync.h */
};

/* Make sure that the box of a place runs, as for an execution. *ret is the place as it is then, in
 * the arena. ERR_UNPROCESSABLE where no box can run. */
int box_ensure(struct op *op, struct runtime *rt, const char *place_id, struct place *ret,
               struct err *err);

/* Before work that goes best through a box: put one into the place of a lease, where its kind does
 * that. *place is the lease's, and read again when it may have one now. */
int box_bring(struct op *op, struct runtime *rt, const struct lease *lease, struct place *place,
              struct err *err);

/* A connected, blocking socket; the caller closes it. Starts the box on first need, like an
 * execution. */
int box_service_open(struct op *op, struct runtime *rt, const char *place_id,
                     enum box_service service, int *ret_fd, struct err *err);
