/* What proxies count, all together. Any thread. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

struct proxy_counters {
        _Atomic uint64_t requests; /* heads that were read */
        _Atomic uint64_t refused;  /* not allowed, or not public */
        _Atomic uint64_t failed;   /* allowed, but not reached */
};
