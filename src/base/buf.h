/* A growable run of bytes with an upper bound, in the manner of sshbuf and strbuf.
 *
 * Invariants: data is NUL-terminated whenever it is not NULL, len <= max, and the terminator is not
 * counted. Appending past `max` or out of memory sets `failed` and drops the bytes; from then on
 * the buffer ignores appends, so a writer checks buf_failed() once, at the end.
 *
 * One thread at a time. */
#pragma once

#include <stdarg.h>

#include "base/util.h"

#define BUF_DEFAULT_MAX ((size_t)64 << 20)

struct buf {
        char *data;
        size_t len;
        size_t cap;
        size_t max; /* 0 means BUF_DEFAULT_MAX */
        bool failed;
};

#define BUF_INIT                                                                                   \
        (struct buf)                                                                               \
        {                                                                                          \
                0                                                                                  \
        }

void buf_init(struct buf *b, size_t max);
void buf_done(struct buf *b);
/* As buf_done(), but wipes the bytes first. */
void buf_wipe(struct buf *b);
/* Forget the content, keep the memory. */
void buf_clear(struct buf *b);

void buf_append(struct buf *b, const void *data, size_t len);
void buf_appendf(struct buf *b, const char *fmt, ...) PRINTF(2, 3);
void buf_appendv(struct buf *b, const char *fmt, va_list ap) PRINTF(2, 0);

static inline void buf_puts(struct buf *b, const char *s)
{
        buf_append(b, s, strlen(s));
}

static inline void buf_putc(struct buf *b, char c)
{
        buf_append(b, &c, 1);
}

/* Make room for n more bytes and return where they go, or NULL; commit them with buf_grew(). */
char *buf_reserve(struct buf *b, size_t n);
void buf_grew(struct buf *b, size_t n);

/* Drop n bytes from the front. */
void buf_consume(struct buf *b, size_t n);

/* Give the bytes away as a NUL-terminated heap string; the buffer is empty afterwards. */
char *buf_take(struct buf *b);

static inline bool buf_failed(const struct buf *b)
{
        return b->failed;
}

/* The content as a C string; "" when nothing was appended. */
static inline const char *buf_str(const struct buf *b)
{
        return b->data ? b->data : "";
}
