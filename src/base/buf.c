/* How a buffer grows, and that it fails at its upper bound. */
#include "base/buf.h"

#include <stdio.h>

void buf_init(struct buf *b, size_t max)
{
        *b = (struct buf){ .max = max };
}

void buf_done(struct buf *b)
{
        free(b->data);
        *b = (struct buf){ .max = b->max };
}

void buf_wipe(struct buf *b)
{
        if (b->data)
                explicit_bzero(b->data, b->cap);
        buf_done(b);
}

void buf_clear(struct buf *b)
{
        b->len = 0;
        b->failed = false;
        if (b->data)
                b->data[0] = '\0';
}

char *buf_reserve(struct buf *b, size_t n)
{
        size_t max = b->max ? b->max : BUF_DEFAULT_MAX;

        if (b->failed)
                return NULL;
        if (n > max - b->len) {
                b->failed = true;
                return NULL;
        }
        size_t need = b->len + n + 1;
        if (need <= b->cap)
                return b->data + b->len;
        size_t cap = b->cap ? b->cap : 64;
        while (cap < need)
                cap *= 2;
        char *grown = realloc(b->data, cap);
        if (!grown) {
                b->failed = true;
                return NULL;
        }
        b->data = grown;
        b->cap = cap;
        b->data[b->len] = '\0';
        return b->data + b->len;
}

void buf_grew(struct buf *b, size_t n)
{
        b->len += n;
        b->data[b->len] = '\0';
}

void buf_append(struct buf *b, const void *data, size_t len)
{
        char *at = buf_reserve(b, len);

        if (!at || len == 0)
                return;
        memcpy(at, data, len);
        buf_grew(b, len);
}

void buf_appendv(struct buf *b, const char *fmt, va_list ap)
{
        va_list again;

        va_copy(again, ap);
        int n = vsnprintf(NULL, 0, fmt, again);
        va_end(again);
        if (n < 0) {
                b->failed = true;
                return;
        }
        char *at = buf_reserve(b, (size_t)n);
        if (!at)
                return;
        (void)vsnprintf(at, (size_t)n + 1, fmt, ap);
        buf_grew(b, (size_t)n);
}

void buf_appendf(struct buf *b, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        buf_appendv(b, fmt, ap);
        va_end(ap);
}

void buf_consume(struct buf *b, size_t n)
{
        if (n > b->len)
                n = b->len;
        if (n == 0)
                return;
        memmove(b->data, b->data + n, b->len - n);
        b->len -= n;
        b->data[b->len] = '\0';
}

char *buf_take(struct buf *b)
{
        char *data = b->data ? b->data : xstrdup("");
        size_t max = b->max;

        *b = (struct buf){ .max = max };
        return data;
}
