/* Cuts a stream of bytes into lines. */
#include "codec/ndjson.h"

void ndjson_init(struct ndjson *n, size_t max, ndjson_fn fn, void *ctx)
{
        *n = (struct ndjson){ .fn = fn, .ctx = ctx };
        buf_init(&n->rest, max + 1); /* a "\r" may stand behind the longest line */
}

void ndjson_done(struct ndjson *n)
{
        buf_done(&n->rest);
}

static bool is_blank(const char *s, size_t n)
{
        while (n > 0 && (*s == ' ' || *s == '\t' || *s == '\r')) {
                s++;
                n--;
        }
        return n == 0;
}

static int end_line(struct ndjson *n)
{
        size_t len = n->rest.len;
        int r = 0;

        if (len > 0 && n->rest.data[len - 1] == '\r')
                n->rest.data[--len] = '\0';
        if (!is_blank(buf_str(&n->rest), len))
                r = n->fn(n->ctx, n->rest.data, len);
        /* A line of many megabytes must not keep its memory for as long as the worker lives. */
        if (n->rest.cap > (size_t)1 << 20) {
                size_t max = n->rest.max;

                buf_done(&n->rest);
                buf_init(&n->rest, max);
        } else {
                buf_clear(&n->rest);
        }
        return r;
}

int ndjson_feed(struct ndjson *n, const char *data, size_t len, struct err *err)
{
        while (len > 0) {
                const char *end = memchr(data, '\n', len);
                size_t part = end ? (size_t)(end - data) : len;
                int r;

                buf_append(&n->rest, data, part);
                if (buf_failed(&n->rest))
                        return err_set(err, ERR_TOO_LARGE, "a line has more than %zu bytes",
                                       n->rest.max - 1);
                if (!end)
                        return 0;
                r = end_line(n);
                if (r < 0)
                        return r;
                data += part + 1;
                len -= part + 1;
        }
        return 0;
}
