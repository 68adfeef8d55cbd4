/* The first byte chooses how the stream is cut: the pieces must not change the events. And whatever
 * is put into an event comes out of it, line ends aside. */
#include "codec/sse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_EVENT 200

static int note(void *ctx, const struct sse_event *e, struct err *err)
{
        struct buf *b = ctx;

        (void)err;
        if (e->len > MAX_EVENT || e->data[e->len] != '\0')
                abort();
        buf_appendf(b, "<%s|%s|", e->id, e->event);
        buf_append(b, e->data, e->len);
        buf_putc(b, '>');
        return 0;
}

static int decode(const char *data, size_t size, size_t piece, size_t max, struct buf *out)
{
        struct sse_decoder d;
        int r = 0;

        sse_decoder_init(&d, max, note, out);
        for (size_t i = 0; i < size && r == 0; i += piece)
                r = sse_feed(&d, data + i, MIN(piece, size - i), NULL);
        sse_decoder_done(&d);
        return r;
}

static void compare_pieces(const char *data, size_t size, size_t piece)
{
        CLEAN(buf_done) struct buf whole = BUF_INIT, pieces = BUF_INIT;
        int r = decode(data, size, MAX(size, (size_t)1), MAX_EVENT, &whole);

        if (decode(data, size, piece, MAX_EVENT, &pieces) != r || whole.len != pieces.len ||
            memcmp(buf_str(&whole), buf_str(&pieces), whole.len) != 0)
                abort();
}

/* "\r\n" and "\r" become "\n". */
static void put_normal(struct buf *b, const char *data, size_t size)
{
        for (size_t i = 0; i < size; i++) {
                if (data[i] == '\r' && i + 1 < size && data[i + 1] == '\n')
                        continue;
                buf_putc(b, data[i] == '\r' ? '\n' : data[i]);
        }
}

static void round_trip(const char *data, size_t size, size_t piece)
{
        CLEAN(buf_done) struct buf stream = BUF_INIT, expected = BUF_INIT, got = BUF_INIT;
        CLEAN(cleanup_free) char *name = xstrndup(data, MIN(size, (size_t)8));

        size = MIN(size, (size_t)MAX_EVENT);
        sse_put_comment(&stream, name);
        sse_put(&stream, name, name, data, size);
        for (char *p = name; *p;) {
                size_t skip = strspn(p, "\r\n");

                memmove(p, p + skip, strlen(p + skip) + 1);
                p += strcspn(p, "\r\n");
        }
        buf_appendf(&expected, "<%s|%s|", name, name[0] ? name : "message");
        put_normal(&expected, data, size);
        buf_putc(&expected, '>');
        if (decode(buf_str(&stream), stream.len, piece, 1000, &got) < 0 ||
            got.len != expected.len || memcmp(got.data, expected.data, got.len) != 0)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        size_t piece;

        if (size == 0)
                return 0;
        piece = (size_t)data[0] % 16 + 1;
        compare_pieces((const char *)data + 1, size - 1, piece);
        round_trip((const char *)data + 1, size - 1, piece);
        return 0;
}
