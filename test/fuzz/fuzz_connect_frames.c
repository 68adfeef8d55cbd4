/* Messages of a stream, in pieces whose size the first byte says: whatever comes, no message is
 * larger than the bound, and the pieces make no difference. */
#include <stdlib.h>

#include "codec/connect_frames.h"

#define BOUND 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
        size_t n, bytes;
};

static int on_message(void *ctx, unsigned flags, const char *data, size_t len, struct err *err)
{
        struct seen *s = ctx;

        (void)err;
        if (len > BOUND || (flags & 1) || (len > 0 && !data))
                abort();
        s->n++;
        s->bytes += len;
        return 0;
}

static int feed(const uint8_t *data, size_t size, size_t piece, struct seen *ret)
{
        struct frames f;
        int r = 0;

        frames_init(&f, BOUND, on_message, ret);
        for (size_t at = 0; r == 0 && at < size; at += piece)
                r = frames_feed(&f, data + at, MIN(piece, size - at), NULL);
        frames_done(&f);
        return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct seen whole = { 0 }, pieces = { 0 };
        int r;

        if (size < 2)
                return 0;
        r = feed(data + 1, size - 1, size, &whole);
        if (feed(data + 1, size - 1, (size_t)data[0] % 7 + 1, &pieces) != r ||
            whole.n != pieces.n || whole.bytes != pieces.bytes)
                abort();
        return 0;
}
