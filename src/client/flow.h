/* One request after the other on a connection of its own, without blocking: for a caller that has a
 * poll() loop and several things to watch.
 *
 *     flow_start(f, b, &call, sink, arg, &err)   connects when there is no connection, and queues
 *     poll for flow_events(f) on f->fd; then     flow_step(f, &err): 1 answered, 0 under way
 *
 * Only connecting may block, at most for the handle's time limit; on this machine it does not. What
 * the call points to is copied. After a failure the connection is closed, and whether the request
 * was done is not known (ERR_UNCERTAIN). An idle flow keeps its connection and is watched for
 * nothing.
 *
 * Invariant: busy means that a request was started and neither answered nor failed.
 * One thread at a time. */
#pragma once

#include <berth/berth.h>

#include "client/http.h"

struct flow {
        int fd; /* -1: no connection */
        bool busy;
        struct buf out; /* the request, as far as it is not sent */
        struct answer_reader reader;
};

#define FLOW_INIT                                                                                  \
        (struct flow)                                                                              \
        {                                                                                          \
                .fd = -1                                                                           \
        }

/* Its api_key, run_id and deadline are filled in, or not used. */
int flow_start(struct flow *f, struct berth *b, const struct http_call *call, http_sink_fn *sink,
               void *arg, struct err *err);
/* For poll(); 0 when idle. */
short flow_events(const struct flow *f);
/* After poll() said that something can be done. 1: the answer is complete, see flow_answer(). */
int flow_step(struct flow *f, struct err *err);
const struct http_answer *flow_answer(const struct flow *f);
/* Also drops what is under way. */
void flow_close(struct flow *f);
