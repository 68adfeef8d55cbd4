/* What proxies count, all together. Any thread. */
#ifndef BERTH_NET_PROXY_COUNTERS_H
#define BERTH_NET_PROXY_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

struct proxy_counters {
        _Atomic uint64_t requests; /* heads that were read */
        _Atomic uint64_t refused;  /* not allowed, or not public */
        _Atomic uint64_t failed;   /* allowed, but not reached */
};

#endif
