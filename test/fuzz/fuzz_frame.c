/* A stream of frames: every header is taken at its word and its payload read in each way that the
 * protocol has. Getters must stay inside, a value that was read without complaint must be written
 * back as the same bytes, and a payload of any length must come out of its parts unchanged. */
#include "codec/frame.h"
#include "codec/frame_tunnel.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_same(const struct buf *b, const uint8_t *payload, size_t len)
{
        if (buf_failed(b) || b->len != len || (len > 0 && memcmp(b->data, payload, len) != 0))
                abort();
}

static void state_round_trip(const uint8_t *payload, size_t len)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct frame_out o = { &b, 0 };
        struct box_state s;
        struct frame_in f;

        frame_in_init(&f, payload, len);
        frame_get_state(&f, &s);
        if (frame_in_end(&f, NULL) < 0)
                return;
        frame_put_state(&o, &s);
        check_same(&b, payload, len);
}

static void record_round_trip(const uint8_t *payload, size_t len)
{
        uint8_t record[BOX_EXIT_RECORD];
        struct box_exit e;

        if (frame_exit_record_parse(payload, len, &e, NULL) < 0)
                return;
        frame_exit_record(&e, record);
        if (memcmp(record, payload, sizeof(record)) != 0)
                abort();
}

/* A tunnel frame that was read without complaint is written back as it was. */
static void tunnel_round_trip(const struct frame_header *h, const uint8_t *frame, size_t len)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct tunnel_frame t;
        struct frame_in f;

        frame_in_init(&f, frame + FRAME_HEADER, len);
        if (len != h->len || tunnel_frame_read(h, &f, &t, NULL) < 0)
                return;
        if (!frame_is_tunnel(h->type) || t.data.len > TUNNEL_BYTES_MAX)
                abort();
        tunnel_frame_write(&b, &t);
        check_same(&b, frame, FRAME_HEADER + len);
}

/* As START is read: numbers, strings, lists. */
static void start_round_trip(const uint8_t *payload, size_t len)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct frame_out o = { &b, 0 };
        uint8_t id[FRAME_UUID];
        struct frame_in f;

        frame_in_init(&f, payload, len);
        frame_get_uuid(&f, id);
        frame_put_uuid(&o, id);
        frame_put_u32(&o, frame_get_u32(&f));
        frame_put_u64(&o, frame_get_u64(&f));
        frame_put_u16(&o, frame_get_u16(&f));
        while (!f.bad && f.left > 0) {
                struct frame_bytes s = frame_get_str(&f);

                if (s.len > FRAME_MAX_STR || memchr(s.p, '\0', s.len) != NULL)
                        if (!f.bad)
                                abort();
                frame_put_str(&o, s.p, s.len);
        }
        if (frame_in_end(&f, NULL) == 0)
                check_same(&b, payload, len);
}

/* The first two bytes choose how long a payload is made of the rest. */
static void cut_and_join(const uint8_t *data, size_t size)
{
        CLEAN(buf_done) struct buf whole = BUF_INIT, parts = BUF_INIT, joined = BUF_INIT;
        size_t want = size >= 2 ? (size_t)(data[0] << 8 | data[1]) * 5 : 0, at = 0;
        struct frame_out o;

        while (whole.len < want)
                buf_append(&whole, data, MIN(size, want - whole.len));
        frame_begin(&o, &parts, FRAME_START, 3);
        frame_put_blob(&o, buf_str(&whole), whole.len);
        frame_end(&o);
        while (at < parts.len) {
                struct frame_header h;

                if (frame_parse_header(parts.data + at, parts.len - at, &h, NULL) != 1)
                        abort();
                at += FRAME_HEADER + h.len;
                if (at > parts.len || (h.type == FRAME_START) != (at == parts.len))
                        abort();
                buf_append(&joined, parts.data + at - h.len, h.len);
        }
        check_same(&joined, (const uint8_t *)buf_str(&whole), whole.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct frame_header h;
        size_t at = 0;

        cut_and_join(data, size);
        while (frame_parse_header(data + at, size - at, &h, NULL) == 1) {
                size_t len = MIN((size_t)h.len, size - at - FRAME_HEADER);
                const uint8_t *payload = data + at + FRAME_HEADER;

                state_round_trip(payload, len);
                record_round_trip(payload, len);
                start_round_trip(payload, len);
                tunnel_round_trip(&h, data + at, len);
                at += FRAME_HEADER + len;
        }
        return 0;
}
