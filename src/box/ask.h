/* One command in a box, from START to EXIT, for a caller that waits: probes. It displaces the box's
 * present host, so it is for boxes that have none. Operation threads. */
#pragma once

#include "codec/frame.h"
#include "rt/op.h"

struct box_question {
        const char *command;
        const char *const *args; /* NULL-terminated */
        const char *const *env;
        const char *cwd;
        uint32_t timeout_ms;
};

/* Run it, and append what it prints to *out (both streams, as it comes) as far as that takes it.
 * ERR_PROVIDER when it does not start, or the box goes away. */
int box_ask(struct op *op, const char *dir, const struct box_question *question, struct buf *out,
            struct box_exit *ret, struct err *err);
