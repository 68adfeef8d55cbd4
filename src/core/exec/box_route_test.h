/* A route for tests: boxes of this machine that are treated as if they were elsewhere. Only the
 * build with crash points knows it (BERTH_FAULTS); in the product there is nothing here.
 *
 * BERTH_TEST_BOX_RELAY names a stream socket. Each connection there begins with the path of the
 * box's directory and a newline; the listener carries the rest, as long as the test likes. Without
 * a listener the way is down: nothing can be known of the boxes.
 *
 * With BERTH_TEST_BOX_MUX the line is empty, and a relay (box/mux.h) answers, which keeps its boxes
 * where it likes. */
#pragma once

#include "core/exec/box_route.h"

/* Boxes on this machine as they are; all other callers use box_route_here(). */
extern const struct box_route box_route_untested;

#ifdef BERTH_FAULTS
/* The route that replaces that of boxes on this machine. */
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
