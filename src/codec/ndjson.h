/* Lines out of a stream of bytes: one JSON document per line, as plugin workers send them.
 *
 * A line ends at "\n" and nowhere else (U+2028 is an ordinary character here); one "\r" before it
 * is dropped, blank lines are skipped, and what has no end yet is no line. Pure; one thread. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* The line is borrowed and has a NUL behind it. Below 0 stops the feeding with that code. */
typedef int (*ndjson_fn)(void *ctx, const char *line, size_t len);

struct ndjson {
        struct buf rest; /* a line that has begun */
        ndjson_fn fn;
        void *ctx;
};

/* No line may have more than `max` bytes. */
void ndjson_init(struct ndjson *n, size_t max, ndjson_fn fn, void *ctx);
void ndjson_done(struct ndjson *n);
/* 0, what fn returned, or ERR_TOO_LARGE; after an error the splitter is of no use any more. */
int ndjson_feed(struct ndjson *n, const char *data, size_t len, struct err *err);
