#include "test.h"

#include "codec/frame.h"

/* A payload that was just written, ready to be read. */
static struct frame_in payload_of(const struct buf *b)
{
        struct frame_in f;

        assert_true(b->len >= FRAME_HEADER);
        frame_in_init(&f, b->data + FRAME_HEADER, b->len - FRAME_HEADER);
        return f;
}

static void test_every_kind_of_value_comes_back(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        uint8_t id[FRAME_UUID], got[FRAME_UUID];
        struct frame_header h;
        struct frame_bytes s;
        struct frame_out o;
        struct frame_in f;

        (void)state;
        for (int i = 0; i < FRAME_UUID; i++)
                id[i] = (uint8_t)(i * 17);
        frame_begin(&o, &b, FRAME_START, 0xfedcba98);
        frame_put_u8(&o, 0xff);
        frame_put_u16(&o, 0x1234);
        frame_put_u32(&o, 0x89abcdef);
        frame_put_u64(&o, UINT64_C(0xfedcba9876543210));
        frame_put_uuid(&o, id);
        frame_put_str(&o, "", 0);
        frame_put_str(&o, "text", 4);
        frame_put_blob(&o, "a\0b", 3);
        frame_end(&o);
        assert_false(buf_failed(&b));

        assert_int_equal(frame_parse_header(b.data, b.len, &h, NULL), 1);
        assert_int_equal(h.len, b.len - FRAME_HEADER);
        assert_int_equal(h.type, FRAME_START);
        assert_int_equal(h.channel, 0xfedcba98);
        f = payload_of(&b);
        assert_int_equal(frame_get_u8(&f), 0xff);
        assert_int_equal(frame_get_u16(&f), 0x1234);
        assert_int_equal(frame_get_u32(&f), 0x89abcdef);
        assert_true(frame_get_u64(&f) == UINT64_C(0xfedcba9876543210));
        frame_get_uuid(&f, got);
        assert_memory_equal(got, id, FRAME_UUID);
        assert_int_equal(frame_get_str(&f).len, 0);
        s = frame_get_str(&f);
        assert_int_equal(s.len, 4);
        assert_memory_equal(s.p, "text", 4);
        s = frame_get_blob(&f);
        assert_int_equal(s.len, 3);
        assert_memory_equal(s.p, "a\0b", 3);
        assert_int_equal(frame_in_end(&f, NULL), 0);
}

static void test_the_bytes_are_as_the_page_says(void **state)
{
        static const uint8_t expected[] = { 0, 0, 0, 17, 22, 0, 0, 0, 0, 0, 1, 2, 2, 0, 0,
                                            0, 0, 0, 0,  0,  5, 0, 0, 0, 0, 0, 0, 1, 0 };
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct frame_out o;

        (void)state;
        frame_begin(&o, &b, FRAME_ACK, 0x102);
        frame_put_u8(&o, BOX_STDERR);
        frame_put_u64(&o, 5);
        frame_put_u64(&o, 256);
        frame_end(&o);
        assert_int_equal(b.len, sizeof(expected));
        assert_memory_equal(b.data, expected, sizeof(expected));
}

static void test_headers(void **state)
{
        uint8_t bytes[FRAME_HEADER] = { 0, 1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 9 };
        struct frame_header h;

        (void)state;
        assert_int_equal(frame_parse_header(bytes, FRAME_HEADER, &h, NULL), 1);
        assert_int_equal(h.len, FRAME_MAX_PAYLOAD);
        for (size_t n = 0; n < FRAME_HEADER; n++)
                assert_int_equal(frame_parse_header(bytes, n, &h, NULL), 0);
        bytes[3] = 1;
        assert_int_equal(frame_parse_header(bytes, FRAME_HEADER, &h, NULL), ERR_INVALID);
        bytes[3] = 0;
        for (int at = 5; at <= 7; at++) {
                bytes[at] = 1;
                assert_int_equal(frame_parse_header(bytes, FRAME_HEADER, &h, NULL), ERR_INVALID);
                bytes[at] = 0;
        }
}

static void test_reading_past_the_end_is_bad_and_stays_so(void **state)
{
        static const uint8_t bytes[] = { 0, 0, 0, 4, 'a', 'b', 'c' };
        uint8_t id[FRAME_UUID];
        struct frame_in f;

        (void)state;
        frame_in_init(&f, bytes, sizeof(bytes));
        assert_int_equal(frame_get_str(&f).len, 0);
        assert_true(f.bad);
        assert_int_equal(frame_get_u8(&f), 0);
        assert_int_equal(frame_in_end(&f, NULL), ERR_INVALID);

        frame_in_init(&f, bytes, sizeof(bytes));
        frame_get_uuid(&f, id);
        assert_int_equal(id[0], 0);
        assert_int_equal(frame_in_end(&f, NULL), ERR_INVALID);

        frame_in_init(&f, bytes, sizeof(bytes));
        assert_int_equal(frame_get_u64(&f) & 0xffffffff, 0);
        assert_true(f.bad);

        frame_in_init(&f, bytes, sizeof(bytes));
        (void)frame_get_u32(&f);
        (void)frame_get_u16(&f);
        assert_int_equal(frame_in_end(&f, NULL), ERR_INVALID); /* one byte is left */
        (void)frame_get_u8(&f);
        assert_int_equal(frame_in_end(&f, NULL), 0);
}

static void test_strings_have_a_limit_and_no_nul(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        CLEAN(cleanup_free) char *text = xcalloc(1, FRAME_MAX_STR + 1);
        struct frame_out o = { &b, 0 };
        struct frame_in f;

        (void)state;
        memset(text, 'x', FRAME_MAX_STR + 1);
        frame_put_str(&o, text, FRAME_MAX_STR);
        frame_in_init(&f, b.data, b.len);
        assert_int_equal(frame_get_str(&f).len, FRAME_MAX_STR);
        assert_int_equal(frame_in_end(&f, NULL), 0);

        buf_clear(&b);
        frame_put_str(&o, text, FRAME_MAX_STR + 1);
        frame_in_init(&f, b.data, b.len);
        (void)frame_get_str(&f);
        assert_int_equal(frame_in_end(&f, NULL), ERR_INVALID);

        buf_clear(&b);
        frame_put_str(&o, "a\0b", 3);
        frame_in_init(&f, b.data, b.len);
        (void)frame_get_str(&f);
        assert_int_equal(frame_in_end(&f, NULL), ERR_INVALID);
}

/* Write a payload of n bytes, join its parts again, and count them. */
static int parts_of(size_t n)
{
        CLEAN(buf_done) struct buf b = BUF_INIT, joined = BUF_INIT;
        CLEAN(cleanup_free) char *text = xcalloc(1, n + 1);
        struct frame_out o;
        size_t at = 3;
        int parts = 0;

        for (size_t i = 0; i < n; i++)
                text[i] = (char)(i * 7 + i / 251);
        buf_puts(&b, "abc"); /* not at the start of the buffer */
        frame_begin(&o, &b, FRAME_START, 7);
        frame_put_blob(&o, text, n);
        frame_end(&o);
        assert_false(buf_failed(&b));
        while (at < b.len) {
                struct frame_header h;

                assert_int_equal(frame_parse_header(b.data + at, b.len - at, &h, NULL), 1);
                assert_int_equal(h.channel, 7);
                at += FRAME_HEADER + h.len;
                assert_true(at <= b.len);
                assert_int_equal(h.type, at == b.len ? FRAME_START : FRAME_CONT);
                buf_append(&joined, b.data + at - h.len, h.len);
                parts++;
        }
        assert_int_equal(joined.len, n);
        if (n > 0)
                assert_memory_equal(joined.data, text, n);
        return parts;
}

static void test_long_payloads_are_cut(void **state)
{
        (void)state;
        assert_int_equal(parts_of(0), 1);
        assert_int_equal(parts_of(FRAME_MAX_PAYLOAD), 1);
        assert_int_equal(parts_of(FRAME_MAX_PAYLOAD + 1), 2);
        assert_int_equal(parts_of(2 * FRAME_MAX_PAYLOAD), 2);
        assert_int_equal(parts_of(2 * FRAME_MAX_PAYLOAD + 1), 3);
        assert_int_equal(parts_of(FRAME_MAX_JOINED), 64);
}

static void test_a_full_buffer_makes_no_frame(void **state)
{
        CLEAN(buf_done) struct buf b;
        struct frame_out o;

        (void)state;
        buf_init(&b, 20);
        frame_begin(&o, &b, FRAME_PING, 0);
        frame_put_u64(&o, 1);
        frame_end(&o);
        assert_false(buf_failed(&b));
        frame_begin(&o, &b, FRAME_PING, 0);
        frame_put_u64(&o, 1);
        frame_end(&o);
        assert_true(buf_failed(&b));
        assert_int_equal(b.len, 20);
}

static void test_uuids(void **state)
{
        static const char text[] = "0123abcd-ef45-6789-ABCD-ef0123456789";
        uint8_t id[FRAME_UUID];
        char back[37];

        (void)state;
        assert_true(frame_uuid_bytes(text, id));
        assert_int_equal(id[0], 0x01);
        assert_int_equal(id[15], 0x89);
        frame_uuid_text(id, back);
        assert_string_equal(back, "0123abcd-ef45-6789-abcd-ef0123456789");
        assert_false(frame_uuid_bytes("", id));
        assert_false(frame_uuid_bytes("0123abcd-ef45-6789-abcd-ef012345678", id));
        assert_false(frame_uuid_bytes("0123abcd-ef45-6789-abcd-ef01234567890", id));
        assert_false(frame_uuid_bytes("0123abcdef45-6789-abcd-ef0123456789-", id));
        assert_false(frame_uuid_bytes("g123abcd-ef45-6789-abcd-ef0123456789", id));
}

static const struct box_exit some_exit = {
        .code = -1, .signal = 15, .flags = 7, .ended_ms = 1, .stdout_len = 2, .stderr_len = 3
};

static void assert_same_exit(const struct box_exit *a, const struct box_exit *b)
{
        assert_int_equal(a->code, b->code);
        assert_int_equal(a->signal, b->signal);
        assert_int_equal(a->flags, b->flags);
        assert_true(a->ended_ms == b->ended_ms && a->stdout_len == b->stdout_len &&
                    a->stderr_len == b->stderr_len);
}

static void test_states(void **state)
{
        struct box_state s = { .state = BOX_ENDED,
                               .pid = 4,
                               .started_ms = 5,
                               .stdin_len = 6,
                               .stdout_len = 7,
                               .stderr_len = 8,
                               .exit = some_exit };
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct frame_out o = { &b, 0 };
        struct box_state got;
        struct frame_in f;

        (void)state;
        frame_put_state(&o, &s);
        frame_in_init(&f, b.data, b.len);
        frame_get_state(&f, &got);
        assert_int_equal(frame_in_end(&f, NULL), 0);
        assert_true(got.state == BOX_ENDED && got.pid == 4 && got.started_ms == 5 &&
                    got.stdin_len == 6 && got.stdout_len == 7 && got.stderr_len == 8);
        assert_same_exit(&got.exit, &some_exit);

        frame_in_init(&f, b.data, b.len - 1);
        frame_get_state(&f, &got);
        assert_int_equal(frame_in_end(&f, NULL), ERR_INVALID);
        b.data[16] = BOX_RUNNING; /* must not carry an exit */
        frame_in_init(&f, b.data, b.len);
        frame_get_state(&f, &got);
        assert_int_equal(frame_in_end(&f, NULL), ERR_INVALID);
        b.data[16] = 3;
        frame_in_init(&f, b.data, b.len);
        frame_get_state(&f, &got);
        assert_true(f.bad);
}

static void test_exit_records(void **state)
{
        uint8_t record[BOX_EXIT_RECORD];
        struct box_exit got;

        (void)state;
        frame_exit_record(&some_exit, record);
        assert_int_equal(frame_exit_record_parse(record, sizeof(record), &got, NULL), 0);
        assert_same_exit(&got, &some_exit);
        for (size_t i = 0; i < sizeof(record); i++) {
                record[i] ^= 1;
                assert_int_equal(frame_exit_record_parse(record, sizeof(record), &got, NULL),
                                 ERR_CORRUPT);
                record[i] ^= 1;
        }
        assert_int_equal(frame_exit_record_parse(record, sizeof(record) - 1, &got, NULL),
                         ERR_CORRUPT);
        assert_int_equal(frame_exit_record_parse(record, 0, &got, NULL), ERR_CORRUPT);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_every_kind_of_value_comes_back),
                cmocka_unit_test(test_the_bytes_are_as_the_page_says),
                cmocka_unit_test(test_headers),
                cmocka_unit_test(test_reading_past_the_end_is_bad_and_stays_so),
                cmocka_unit_test(test_strings_have_a_limit_and_no_nul),
                cmocka_unit_test(test_long_payloads_are_cut),
                cmocka_unit_test(test_a_full_buffer_makes_no_frame),
                cmocka_unit_test(test_uuids),
                cmocka_unit_test(test_states),
                cmocka_unit_test(test_exit_records),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
