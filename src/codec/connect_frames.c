/* Where a message of a stream begins and ends. */
#include "codec/connect_frames.h"

#define HEAD       5
#define COMPRESSED 0x01

void frames_init(struct frames *f, size_t max,
                 int (*fn)(void *ctx, unsigned flags, const char *data, size_t len,
                           struct err *err),
                 void *ctx)
{
        *f = (struct frames){ .max = max, .fn = fn, .ctx = ctx };
        buf_init(&f->rest, max + HEAD);
}

void frames_done(struct frames *f)
{
        buf_wipe(&f->rest);
}

static size_t length_of(const unsigned char *head)
{
        return (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
}

int frames_feed(struct frames *f, const void *bytes, size_t len, struct err *err)
{
        const char *at = bytes;

        for (;;) {
                const unsigned char *head = (const unsigned char *)f->rest.data;
                size_t whole = f->rest.len < HEAD ? HEAD : HEAD + length_of(head);
                size_t n;
                int r;

                if (f->rest.len >= HEAD && whole - HEAD > f->max)
                        return err_set(err, ERR_TOO_LARGE, "a message of the stream has %zu bytes",
                                       whole - HEAD);
                n = MIN(len, whole - f->rest.len);
                buf_append(&f->rest, at, n);
                at += n;
                len -= n;
                if (f->rest.len < whole)
                        return buf_failed(&f->rest) ? err_set(err, ERR_TOO_LARGE, "out of memory")
                                                    : 0;
                if (whole == HEAD && length_of((const unsigned char *)f->rest.data) > 0)
                        continue;
                if (f->rest.data[0] & COMPRESSED)
                        return err_set(err, ERR_INVALID, "a message of the stream is compressed");
                r = f->fn(f->ctx, (unsigned char)f->rest.data[0], f->rest.data + HEAD,
                          f->rest.len - HEAD, err);
                buf_clear(&f->rest);
                if (r < 0)
                        return r;
        }
}

void frames_put(struct buf *b, unsigned flags, const char *data, size_t len)
{
        const char head[HEAD] = { (char)flags, (char)(len >> 24), (char)(len >> 16),
                                  (char)(len >> 8), (char)len };

        buf_append(b, head, HEAD);
        buf_append(b, data, len);
}
