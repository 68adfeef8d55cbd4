#include "stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int64_t stats_now_ns(void)
{
        struct timespec ts;

        (void)clock_gettime(CLOCK_MONOTONIC, &ts);
        return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void stats_begin(struct stats *s)
{
        s->n = 0;
        s->errors = 0;
        s->began_ns = stats_now_ns();
}

void stats_add(struct stats *s, int64_t ns)
{
        int64_t us = ns / 1000;

        if (s->n == s->capacity) {
                size_t capacity = s->capacity ? 2 * s->capacity : 65536;
                uint32_t *grown = reallocarray(s->us, capacity, sizeof(*grown));

                if (!grown)
                        abort();
                s->us = grown;
                s->capacity = capacity;
        }
        s->us[s->n++] = us > UINT32_MAX ? UINT32_MAX : (uint32_t)us;
}

void stats_end(struct stats *s)
{
        s->ended_ns = stats_now_ns();
}

void stats_done(struct stats *s)
{
        free(s->us);
        *s = (struct stats){ 0 };
}

static int compare(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

        return (x > y) - (x < y);
}

static uint32_t percentile(const struct stats *s, unsigned percent)
{
        size_t i = s->n * percent / 100;

        if (s->n == 0)
                return 0;
        return s->us[i < s->n ? i : s->n - 1];
}

void stats_print(struct stats *s, const char *what, unsigned connections)
{
        double seconds = (double)(s->ended_ns - s->began_ns) / 1e9;

        if (s->n > 0)
                qsort(s->us, s->n, sizeof(*s->us), compare);
        printf("{\"what\":\"%s\",\"connections\":%u,\"count\":%zu,\"seconds\":%.3f,\"perSecond\":%."
               "1f,"
               "\"p50\":%u,\"p95\":%u,\"p99\":%u,\"max\":%u,\"errors\":%llu}\n",
               what, connections, s->n, seconds, seconds > 0 ? (double)s->n / seconds : 0,
               percentile(s, 50), percentile(s, 95), percentile(s, 99), percentile(s, 100),
               (unsigned long long)s->errors);
}
