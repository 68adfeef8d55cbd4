/* Replacing known values in a stream of bytes, however it is cut into pieces.
 *
 * Every byte that belongs to an occurrence of a value is left out, and each run of such bytes
 * becomes one REDACTED. A byte is held back only as long as it may be the beginning of a value;
 * everything else passes at once. Linear in the stream times the number of values, whatever the
 * bytes are.
 *
 * A redactor is immutable and may serve several streams. Values shorter than REDACT_MIN are no
 * secrets and are left alone; of a value with several lines each long line counts by itself too,
 * for terminals and JSON write line ends in their own way. So does each long text in a value that
 * is JSON, such as the file of a login: programs that speak JSON escape its quotation marks. */
#pragma once

#include "base/buf.h"

#define REDACTED         "***REDACTED***"
#define REDACT_MIN       4
#define REDACT_LINE_MIN  8
#define REDACT_TEXT_MIN  16
#define REDACT_TEXTS_MAX 64                /* of one value */
#define REDACT_BYTES_MAX ((size_t)1 << 20) /* of all values together */

struct redactor;

/* NULL when there is nothing to replace. Values past REDACT_BYTES_MAX are refused with NULL and
 * *ret_too_much. */
struct redactor *redactor_new(const char *const *values, size_t n, bool *ret_too_much);
/* Wipes the values. */
void redactor_free(struct redactor *r);

struct redact_stream {
        const struct redactor *redactor;
        uint32_t *states;    /* how much of each value was matched last */
        struct buf held;     /* bytes from `base` on; those before `at` have been let go */
        struct buf ranges;   /* struct redact_range[], ordered and disjoint, not yet let go */
        size_t at;           /* index into held */
        size_t first_range;  /* index into ranges */
        uint64_t base;       /* offset in the stream of held.data[0] */
        uint64_t masked_end; /* where the last REDACTED ended, in the stream */
        bool active;         /* some value is partly matched */
};

void redact_begin(struct redact_stream *s, const struct redactor *r);
/* Append what is safe to show to out. */
void redact_feed(struct redact_stream *s, const char *data, size_t len, struct buf *out);
/* The stream has ended: the bytes held back are no value. */
void redact_end(struct redact_stream *s, struct buf *out);
void redact_done(struct redact_stream *s);

/* A whole text at once. */
void redact_text(const struct redactor *r, const char *data, size_t len, struct buf *out);
