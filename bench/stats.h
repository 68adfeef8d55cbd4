/* Latencies of one measurement, and the JSON line that reports it. One thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct stats {
        uint32_t *us; /* one entry per operation, in microseconds */
        size_t n;
        size_t capacity;
        uint64_t errors;
        int64_t began_ns;
        int64_t ended_ns;
};

int64_t stats_now_ns(void);

/* Forget everything and begin counting now: the end of the warm-up. */
void stats_begin(struct stats *s);
void stats_add(struct stats *s, int64_t ns);
void stats_end(struct stats *s);
void stats_done(struct stats *s);

/* {"what":..., "connections":..., "count":..., "seconds":..., "perSecond":..., "p50":...,
 * "p95":..., "p99":..., "max":..., "errors":...}, times in microseconds. Sorts the latencies. */
void stats_print(struct stats *s, const char *what, unsigned connections);
