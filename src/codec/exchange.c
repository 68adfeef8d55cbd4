/* The bytes and the text form of calls and answers that carry a stream. */
#define _GNU_SOURCE
#include "codec/exchange.h"

#include <sodium.h>

#define VERSION 1
#define BASE64  sodium_base64_VARIANT_ORIGINAL

void exchange_call_write(struct buf *b, const struct exchange_call *c)
{
        struct frame_out f = { .b = b };

        frame_put_u8(&f, VERSION);
        frame_put_u64(&f, c->session);
        frame_put_u64(&f, c->offset);
        frame_put_u64(&f, c->taken);
        frame_put_u32(&f, c->wait_ms);
        frame_put_blob(&f, c->data.p, c->data.len);
}

void exchange_answer_write(struct buf *b, const struct exchange_answer *a)
{
        struct frame_out f = { .b = b };

        frame_put_u8(&f, VERSION);
        frame_put_u8(&f, a->status);
        frame_put_u64(&f, a->taken);
        frame_put_u64(&f, a->offset);
        frame_put_blob(&f, a->data.p, a->data.len);
}

static int end_of(struct frame_in *f, uint8_t version, uint64_t offset, size_t len, size_t max,
                  struct err *err)
{
        if (version != VERSION || len > max || offset > UINT64_MAX - len)
                f->bad = true;
        return frame_in_end(f, err);
}

int exchange_call_read(const void *bytes, size_t len, struct exchange_call *ret, struct err *err)
{
        struct frame_in f;

        frame_in_init(&f, bytes, len);
        uint8_t version = frame_get_u8(&f);
        ret->session = frame_get_u64(&f);
        ret->offset = frame_get_u64(&f);
        ret->taken = frame_get_u64(&f);
        ret->wait_ms = frame_get_u32(&f);
        ret->data = frame_get_blob(&f);
        return end_of(&f, version, ret->offset, ret->data.len, EXCHANGE_IN_MAX, err);
}

int exchange_answer_read(const void *bytes, size_t len, struct exchange_answer *ret,
                         struct err *err)
{
        struct frame_in f;

        frame_in_init(&f, bytes, len);
        uint8_t version = frame_get_u8(&f);
        ret->status = frame_get_u8(&f);
        ret->taken = frame_get_u64(&f);
        ret->offset = frame_get_u64(&f);
        ret->data = frame_get_blob(&f);
        if (ret->status > EXCHANGE_STALE)
                f.bad = true;
        return end_of(&f, version, ret->offset, ret->data.len, EXCHANGE_OUT_MAX, err);
}

void exchange_to_text(struct buf *text, const struct buf *bytes)
{
        size_t size = sodium_base64_encoded_len(bytes->len, BASE64);
        char *at = buf_reserve(text, size);

        if (!at)
                return;
        sodium_bin2base64(at, size, (const uint8_t *)buf_str(bytes), bytes->len, BASE64);
        buf_grew(text, size - 1);
}

int exchange_from_text(const char *text, size_t len, struct buf *ret, struct err *err)
{
        char *at = len > 2 * EXCHANGE_MAX ? NULL : buf_reserve(ret, len);
        size_t n = 0;

        if (!at || sodium_base642bin((uint8_t *)at, len, text, len, NULL, &n, NULL, BASE64) != 0)
                return err_set(err, ERR_INVALID, "this is no exchange");
        buf_grew(ret, n);
        return 0;
}

int exchange_find(const char *printed, size_t len, struct buf *ret, struct err *err)
{
        const char *at = memmem(printed, len, EXCHANGE_WORD, strlen(EXCHANGE_WORD));
        size_t n = 0;

        if (!at)
                return err_set(err, ERR_INVALID, "there is no answer in what was printed");
        at += strlen(EXCHANGE_WORD);
        len -= (size_t)(at - printed);
        while (n < len && at[n] != '\n' && at[n] != '\r')
                n++;
        return exchange_from_text(at, n, ret, err);
}
