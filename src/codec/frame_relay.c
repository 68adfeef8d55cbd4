/* Writes and reads the relay's greeting and frames. */
#define _GNU_SOURCE
#include "codec/frame_relay.h"

void relay_greet(struct buf *b)
{
        struct frame_out f;

        frame_begin(&f, b, FRAME_RELAY, 0);
        frame_put_blob(&f, "BRLY", 4);
        frame_put_u16(&f, RELAY_VERSION);
        frame_end(&f);
}

size_t relay_find_greeting(const char *bytes, size_t len)
{
        CLEAN(buf_done) struct buf greeting = BUF_INIT;

        relay_greet(&greeting);
        const char *at =
                len < greeting.len ? NULL : memmem(bytes, len, greeting.data, greeting.len);
        return at ? (size_t)(at - bytes) + greeting.len : 0;
}

static void read_ask(struct frame_in *f, struct relay_frame *r)
{
        r->want = frame_get_u8(f);
        frame_get_uuid(f, r->box);
        struct frame_bytes rest = frame_get_blob(f);
        r->execs = (const uint8_t *)rest.p;
        r->n_execs = (uint32_t)(rest.len / FRAME_UUID);
        if (r->want < RELAY_ENSURE || r->want > RELAY_LIST || rest.len % FRAME_UUID != 0 ||
            r->n_execs > (r->want == RELAY_BURY     ? RELAY_MAX_EXECS
                          : r->want == RELAY_ENSURE ? 1
                                                    : 0))
                f->bad = true;
}

int relay_frame_read(const struct frame_header *h, struct frame_in *f, struct relay_frame *ret,
                     struct err *err)
{
        *ret = (struct relay_frame){ .type = h->type, .channel = h->channel };
        if (h->channel == 0)
                return err_set(err, ERR_INVALID, "a question without a channel");
        if (h->type == FRAME_ASK) {
                read_ask(f, ret);
        } else if (h->type == FRAME_ANSWER) {
                ret->code = frame_get_u16(f);
                ret->value = frame_get_u8(f);
                ret->text = frame_get_str(f);
                if (ret->value > 1 || (ret->code != RELAY_OK && ret->value != 0))
                        f->bad = true;
        } else {
                f->bad = true;
        }
        return frame_in_end(f, err);
}

void relay_frame_write(struct buf *b, const struct relay_frame *r)
{
        struct frame_out f;

        frame_begin(&f, b, (enum frame_type)r->type, r->channel);
        if (r->type == FRAME_ASK) {
                frame_put_u8(&f, r->want);
                frame_put_uuid(&f, r->box);
                frame_put_blob(&f, r->execs, (size_t)r->n_execs * FRAME_UUID);
        } else {
                frame_put_u16(&f, r->code);
                frame_put_u8(&f, r->value);
                frame_put_str(&f, r->text.p, r->text.len);
        }
        frame_end(&f);
}
