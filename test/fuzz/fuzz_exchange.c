/* What the two ends of a stream carried by calls read from each other. The first byte says what the
 * rest is taken for: a call, an answer, or what a shell printed. */
#include <stdio.h>

#include "codec/exchange.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok, const char *what)
{
        if (!ok) {
                fprintf(stderr, "violated: %s\n", what);
                abort();
        }
}

static void check_call(const void *p, size_t len)
{
        CLEAN(buf_done) struct buf again = BUF_INIT;
        struct exchange_call c;

        if (exchange_call_read(p, len, &c, NULL) < 0)
                return;
        check(c.data.len <= EXCHANGE_IN_MAX && c.offset + c.data.len >= c.offset, "bounded");
        exchange_call_write(&again, &c);
        check(again.len == len && memcmp(again.data, p, len) == 0, "the same again");
}

static void check_answer(const void *p, size_t len)
{
        CLEAN(buf_done) struct buf again = BUF_INIT;
        CLEAN(buf_done) struct buf text = BUF_INIT;
        CLEAN(buf_done) struct buf back = BUF_INIT;
        struct exchange_answer a;

        if (exchange_answer_read(p, len, &a, NULL) < 0)
                return;
        check(a.data.len <= EXCHANGE_OUT_MAX && a.status <= EXCHANGE_STALE, "bounded");
        exchange_answer_write(&again, &a);
        check(again.len == len && memcmp(again.data, p, len) == 0, "the same again");
        buf_puts(&text, "noise " EXCHANGE_WORD);
        exchange_to_text(&text, &again);
        buf_puts(&text, "\nnoise");
        check(exchange_find(text.data, text.len, &back, NULL) >= 0, "found");
        check(back.len == len && memcmp(back.data, p, len) == 0, "the same again");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(buf_done) struct buf found = { .max = 2 * EXCHANGE_MAX };

        if (size < 1)
                return 0;
        if (data[0] % 3 == 0)
                check_call(data + 1, size - 1);
        else if (data[0] % 3 == 1)
                check_answer(data + 1, size - 1);
        else if (exchange_find((const char *)data + 1, size - 1, &found, NULL) >= 0)
                check_answer(buf_str(&found), found.len);
        return 0;
}
