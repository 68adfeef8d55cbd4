/* A route for tests: boxes of this machine that are treated as if they were elsewhere. Only the
 * build with crash points knows it (BERTH_FAULTS); in the product there is nothing here.
 *
 * BERTH_TEST_BOX_RELAY names a stream socket. Whoever listens there gets, first on each connection,
 * the path of the box's directory and a newline, and carries the rest, as long as the test likes.
 * Nobody listening is a way that is down: nothing can be known of the boxes.
 *
 * With BERTH_TEST_BOX_MUX the line is empty, and what answers is a relay (box/mux.h) to boxes that
 * it keeps where it likes. */
#ifndef BERTH_CORE_BOX_ROUTE_TEST_H
#define BERTH_CORE_BOX_ROUTE_TEST_H

#include "core/exec/box_route.h"

/* Boxes on this machine as they are; box_route_here() is for everybody else. */
extern const struct box_route box_route_untested;

#ifdef BERTH_FAULTS
/* What stands for boxes on this machine. */
const struct box_route *box_route_tested(const struct box_route *here);
/* Loop thread, with the hub. */
void box_route_test_done(void);
#else
static inline const struct box_route *box_route_tested(const struct box_route *here)
{
        return here;
}
static inline void box_route_test_done(void)
{
}
#endif

#endif
