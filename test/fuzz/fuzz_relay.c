/* A relay's frames, as either side reads them: what was read says the same when it is written and
 * read again, and no sequence of them makes a stream take more than the credit that it gave. */
#include <stdio.h>

#include "codec/credit.h"
#include "codec/frame_relay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok, const char *what)
{
        if (!ok) {
                fprintf(stderr, "violated: %s\n", what);
                abort();
        }
}

static void check_relay(const struct frame_header *h, const char *payload)
{
        CLEAN(buf_done) struct buf again = BUF_INIT;
        struct relay_frame f;
        struct frame_in in;

        frame_in_init(&in, payload, h->len);
        if (relay_frame_read(h, &in, &f, NULL) < 0)
                return;
        check(f.n_execs <= RELAY_MAX_EXECS, "a bounded list");
        relay_frame_write(&again, &f);
        check(again.len == FRAME_HEADER + h->len &&
                      memcmp(again.data + FRAME_HEADER, payload, h->len) == 0,
              "the same again");
}

static void check_stream(struct credit *c, const struct frame_header *h, const char *payload,
                         size_t *waiting)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;
        struct tunnel_frame f;
        struct frame_in in;
        uint64_t before = c->got;

        frame_in_init(&in, payload, h->len);
        if (tunnel_frame_read(h, &in, &f, NULL) < 0)
                return;
        if (credit_take(c, &f, NULL) < 0) {
                check(c->got == before, "a refused frame changes nothing");
                return;
        }
        *waiting += (size_t)(c->got - before);
        check(c->got <= c->told, "within the credit");
        check(*waiting <= CREDIT_WINDOW, "bounded");
        if (h->channel & 1) /* passed on */
                *waiting = 0;
        credit_give(c, &out, h->channel, *waiting);
        if (credit_room(c) > 0)
                credit_send(c, &out, h->channel, "x", 1);
        check(c->sent <= c->limit, "within their credit");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct credit c = { .told = CREDIT_WINDOW };
        size_t at = 0, waiting = 0;
        struct frame_header h;

        check(relay_find_greeting((const char *)data, size) <= size, "inside");
        while (frame_parse_header(data + at, size - at, &h, NULL) > 0 &&
               size - at - FRAME_HEADER >= h.len) {
                const char *payload = (const char *)data + at + FRAME_HEADER;

                if (frame_is_relay(h.type))
                        check_relay(&h, payload);
                else
                        check_stream(&c, &h, payload, &waiting);
                at += FRAME_HEADER + h.len;
        }
        return 0;
}
