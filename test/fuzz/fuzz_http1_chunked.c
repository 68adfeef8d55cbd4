/* The chunked decoder: the same body and the same end whether fed at once, byte by byte, or in
 * pieces of the size that the first byte of the input says. */
#include <stdio.h>

#include "codec/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok, const char *what)
{
        if (!ok) {
                fprintf(stderr, "violated: %s\n", what);
                abort();
        }
}

struct outcome {
        enum http1_result result;
        size_t used;
        struct buf body;
        const char *text;
};

static struct outcome decode(const char *bytes, size_t len, size_t step)
{
        struct outcome o = { .result = HTTP1_MORE };
        struct http1_chunked d = { 0 };
        struct http1_refusal why = { 0 };

        while (o.used < len && o.result == HTTP1_MORE) {
                size_t part = MIN(step, len - o.used);
                char *copy = xcalloc(1, part);
                struct http1_slice out;
                size_t used;

                memcpy(copy, bytes + o.used, part);
                o.result = http1_chunked_feed(&d, copy, part, &used, &out, &why);
                check(used <= part && (used > 0 || o.result == HTTP1_REFUSED), "it goes on");
                check(out.len <= used && out.p >= copy && out.p + out.len <= copy + part, "slice");
                buf_append(&o.body, out.p, out.len);
                o.used += used;
                free(copy);
        }
        o.text = why.text;
        return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const char *bytes = (const char *)data + 1;
        struct outcome whole, pieces, single;

        if (size < 2)
                return 0;
        whole = decode(bytes, size - 1, size - 1);
        pieces = decode(bytes, size - 1, 1 + data[0] % 64U);
        single = decode(bytes, size - 1, 1);
        check(whole.result == pieces.result && whole.result == single.result, "same result");
        check(whole.used == pieces.used && whole.used == single.used, "same end");
        check(whole.text == pieces.text && whole.text == single.text, "same refusal");
        check(streq(buf_str(&whole.body), buf_str(&pieces.body)) &&
                      whole.body.len == pieces.body.len && whole.body.len == single.body.len,
              "same body");
        check(whole.body.len <= whole.used, "a body is not longer than its chunks");
        buf_done(&whole.body);
        buf_done(&pieces.body);
        buf_done(&single.body);
        return 0;
}
