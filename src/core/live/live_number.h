/* Numbers for live events: no number is used twice, even over restarts and with clocks that are set
 * back.
 *
 * A block of numbers is reserved in the store before the first of them is used; when half of it is
 * used, the next is reserved. A new daemon begins behind the last block, or at the wall clock in
 * microseconds where that is further: a block is about a second of it. With a store that cannot be
 * written to for half a million events, numbers go on without a reserve.
 *
 * live_numbers_used(): loop thread. */
#ifndef BERTH_CORE_LIVE_NUMBER_H
#define BERTH_CORE_LIVE_NUMBER_H

#include "rt/pool.h"
#include "store/store.h"

struct live_numbers {
        struct store *store; /* NULL: nothing is reserved */
        struct pool *pool;
        struct pool_job job;
        bool reserving;
        int64_t end; /* the reserved numbers lie before it */
};

int live_numbers_init(struct op *op, struct live_numbers *n, struct store *store, struct pool *pool,
                      int64_t *ret_first, struct err *err);
/* Reserve more when it is time to. */
void live_numbers_used(struct live_numbers *n, int64_t last);

#endif
