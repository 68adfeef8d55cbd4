/* Input: how to cut the stream, then values ended by NUL, an empty one, and the stream. The result
 * must be that of marking every byte of every occurrence, whatever the pieces are. */
#include "codec/redact.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define VALUES 4

static void mark(bool *hit, const char *text, size_t len, const char *value, size_t n)
{
        for (size_t i = 0; n >= REDACT_MIN && i + n <= len; i++)
                if (memcmp(text + i, value, n) == 0)
                        memset(hit + i, 1, n);
}

static void expect(const char *const *values, size_t n, const char *text, size_t len,
                   struct buf *out)
{
        bool *hit = xcalloc(len + 1, sizeof(*hit));

        for (size_t i = 0; i < n; i++)
                mark(hit, text, len, values[i], strlen(values[i]));
        for (size_t i = 0; i < len; i++) {
                if (!hit[i])
                        buf_putc(out, text[i]);
                else if (i == 0 || !hit[i - 1])
                        buf_puts(out, REDACTED);
        }
        free(hit);
}

static void check(const char *const *values, size_t n, const char *text, size_t len, size_t piece)
{
        CLEAN(buf_done) struct buf got = BUF_INIT, expected = BUF_INIT;
        struct redact_stream s;
        bool too_much;
        struct redactor *r = redactor_new(values, n, &too_much);

        if (!r)
                return;
        expect(values, n, text, len, &expected);
        redact_begin(&s, r);
        for (size_t i = 0; i < len; i += piece)
                redact_feed(&s, text + i, MIN(piece, len - i), &got);
        redact_end(&s, &got);
        redact_done(&s);
        redactor_free(r);
        if (got.len != expected.len || memcmp(buf_str(&got), buf_str(&expected), got.len) != 0)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        char *copy, *at, *end, *values[VALUES];
        size_t n = 0, piece;

        if (size < 2)
                return 0;
        piece = (size_t)data[0] % 7 + 1;
        copy = xstrndup("", 0);
        copy = xrealloc(copy, size);
        memcpy(copy, data + 1, size - 1);
        copy[size - 1] = '\0';
        at = copy;
        end = copy + size - 1;
        while (n < VALUES && at < end && *at) {
                values[n] = at;
                at += strlen(at) + 1;
                /* lines, and texts in JSON, count by themselves; the model knows none */
                if (!strpbrk(values[n], "\r\n") && *values[n] != '{' && *values[n] != '[')
                        n++;
        }
        if (at < end)
                check((const char *const *)values, n, at, (size_t)(end - at), piece);
        free(copy);
        return 0;
}
