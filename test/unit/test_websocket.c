#include "test.h"

#include "codec/sha1.h"
#include "codec/websocket.h"

static void assert_sha1(const char *text, size_t times, const char *expected)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        uint8_t digest[SHA1_BYTES];
        char hex[2 * SHA1_BYTES + 1];

        for (size_t i = 0; i < times; i++)
                buf_puts(&b, text);
        sha1(buf_str(&b), b.len, digest);
        for (size_t i = 0; i < SHA1_BYTES; i++)
                snprintf(hex + 2 * i, 3, "%02x", digest[i]);
        assert_string_equal(hex, expected);
}

/* FIPS 180 examples, and the lengths around a block. */
static void test_sha1(void **state)
{
        (void)state;
        assert_sha1("", 1, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_sha1("abc", 1, "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
                    "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_sha1("a", 1000000, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
        assert_sha1("a", 55, "c1c8bbdc22796e28c0e15163d20899b65621d65a");
        assert_sha1("a", 64, "0098ba824b5c16427bd7a1122a5a442a25ec644d");
}

static void test_handshake(void **state)
{
        char accept[WEBSOCKET_ACCEPT_LEN + 1];

        (void)state;
        assert_true(websocket_accept("dGhlIHNhbXBsZSBub25jZQ==", accept)); /* RFC 6455, 1.3 */
        assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_false(websocket_accept("", accept));
        assert_false(websocket_accept("dGhlIHNhbXBsZSBub25jZQ", accept));
        assert_false(websocket_accept("dGhlIHNhbXBsZSBub25jZQAA", accept)); /* 18 bytes */
        assert_false(websocket_accept("dGhlIHNhbXBsZSBub25jZ===", accept));
        assert_false(websocket_accept("!GhlIHNhbXBsZSBub25jZQ==", accept));
}

static int note(void *ctx, enum websocket_kind kind, const char *data, size_t len)
{
        assert_int_equal(data[len], '\0');
        buf_appendf(ctx, "<%d|", kind);
        buf_append(ctx, data, len);
        buf_putc(ctx, '>');
        return len == 4 && memcmp(data, "stop", 4) == 0 ? -7 : 0;
}

/* A frame as a client sends it. `first` is the first byte as it is. */
static void frame(struct buf *b, uint8_t first, const char *data, size_t len)
{
        static const uint8_t mask[] = { 0x12, 0xf4, 0x00, 0x99 };
        CLEAN(buf_done) struct buf plain = BUF_INIT;
        size_t head;

        websocket_put(&plain, WEBSOCKET_TEXT, data, len);
        assert_false(buf_failed(&plain));
        head = plain.len - len;
        plain.data[0] = (char)first;
        plain.data[1] = (char)(plain.data[1] | 0x80);
        buf_append(b, plain.data, head);
        buf_append(b, mask, 4);
        for (size_t i = 0; i < len; i++)
                buf_putc(b, (char)(data[i] ^ mask[i % 4]));
}

static void text(struct buf *b, uint8_t first, const char *data)
{
        frame(b, first, data, strlen(data));
}

/* Fed whole, and byte by byte. */
static void assert_fed(const struct buf *bytes, int result, const char *expected)
{
        for (size_t piece = bytes->len;; piece = 1) {
                CLEAN(buf_done) struct buf got = BUF_INIT;
                struct websocket_decoder d;
                int r = 0;

                websocket_decoder_init(&d, 1000, note, &got);
                for (size_t i = 0; i < bytes->len; i += piece)
                        r = websocket_feed(&d, bytes->data + i, piece);
                assert_int_equal(r, result);
                assert_string_equal(buf_str(&got), expected);
                websocket_decoder_done(&d);
                if (piece == 1)
                        return;
        }
}

static void test_messages(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        (void)state;
        text(&b, 0x81, "hello");
        text(&b, 0x82, "\xff\xfe");
        text(&b, 0x81, "");
        text(&b, 0x01, "a\xe2\x82"); /* in parts, a ping in between, a character in two */
        text(&b, 0x89, "p");
        text(&b, 0x00,
             "\xac"
             "b");
        text(&b, 0x80, "c");
        text(&b, 0x8a, "");
        text(&b, 0x88,
             "\x03\xe8"
             "bye");
        text(&b, 0x81, "after the end");
        assert_fed(&b, 0,
                   "<1|hello><2|\xff\xfe><1|><9|p><1|a\xe2\x82\xac"
                   "bc><10|><8|\x03\xe8"
                   "bye>");
}

static void test_limits(void **state)
{
        char long_one[1001];

        (void)state;
        memset(long_one, 'x', sizeof(long_one));
        for (size_t i = 0; i < 4; i++) {
                const size_t sizes[] = { 125, 126, 1000, 1001 };
                CLEAN(buf_done) struct buf b = BUF_INIT, expected = BUF_INIT;

                frame(&b, 0x81, long_one, sizes[i]);
                buf_puts(&expected, "<1|");
                buf_append(&expected, long_one, sizes[i]);
                buf_putc(&expected, '>');
                assert_fed(&b, sizes[i] > 1000 ? WEBSOCKET_TOO_BIG : 0,
                           sizes[i] > 1000 ? "" : buf_str(&expected));
        }
        { /* together too long */
                CLEAN(buf_done) struct buf b = BUF_INIT;

                frame(&b, 0x01, long_one, 600);
                frame(&b, 0x80, long_one, 401);
                assert_fed(&b, WEBSOCKET_TOO_BIG, "");
        }
        { /* a length of 2^62 costs nothing */
                CLEAN(buf_done) struct buf b = BUF_INIT;

                buf_append(&b, "\x82\xff\x40\0\0\0\0\0\0\0mask", 14);
                assert_fed(&b, WEBSOCKET_TOO_BIG, "");
        }
}

static void test_forbidden(void **state)
{
        static const struct {
                const char *bytes;
                size_t len;
                int status;
        } cases[] = {
                { "\x81\x01x", 3, WEBSOCKET_PROTOCOL },    /* not masked */
                { "\xc1\x80....", 6, WEBSOCKET_PROTOCOL }, /* reserved bits */
                { "\x83\x80....", 6, WEBSOCKET_PROTOCOL }, /* reserved kinds */
                { "\x8b\x80....", 6, WEBSOCKET_PROTOCOL },
                { "\x09\x80....", 6, WEBSOCKET_PROTOCOL },              /* a ping in parts */
                { "\x89\xfe\0\x80....", 8, WEBSOCKET_PROTOCOL },        /* a long one */
                { "\x80\x80....", 6, WEBSOCKET_PROTOCOL },              /* no beginning */
                { "\x01\x80....\x01\x80....", 12, WEBSOCKET_PROTOCOL }, /* no end */
                { "\x81\xfe\0\x7d....", 8, WEBSOCKET_PROTOCOL },        /* longer than need be */
                { "\x81\xff\0\0\0\0\0\0\xff\xff....", 14, WEBSOCKET_PROTOCOL },
                { "\x81\xff\x80\0\0\0\0\0\0\0....", 14, WEBSOCKET_PROTOCOL },
                { "\x81\x81\0\0\0\0\xff", 7, WEBSOCKET_NOT_TEXT },
                { "\x88\x81\0\0\0\0\x03", 7, WEBSOCKET_PROTOCOL },     /* half a status */
                { "\x88\x82\0\0\0\0\x03\xed", 8, WEBSOCKET_PROTOCOL }, /* 1005 */
                { "\x88\x82\0\0\0\0\0\0", 8, WEBSOCKET_PROTOCOL },
                { "\x88\x83\0\0\0\0\x03\xe8\xff", 9, WEBSOCKET_NOT_TEXT },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct buf b = { .data = (char *)cases[i].bytes, .len = cases[i].len };

                assert_fed(&b, cases[i].status, "");
        }
}

static void test_stopped_by_the_reader(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        (void)state;
        text(&b, 0x81, "stop");
        text(&b, 0x81, "more");
        assert_fed(&b, -7, "<1|stop>");
}

static void test_out(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        CLEAN(cleanup_free) char *big = xcalloc(1, 65536);
        char long_text[200];

        (void)state;
        websocket_put(&b, WEBSOCKET_TEXT, "hi", 2);
        assert_memory_equal(b.data, "\x81\x02hi", 4);
        buf_clear(&b);
        websocket_put(&b, WEBSOCKET_BINARY, big, 126);
        assert_memory_equal(b.data, "\x82\x7e\0\x7e", 4);
        buf_clear(&b);
        websocket_put(&b, WEBSOCKET_BINARY, big, 65536);
        assert_memory_equal(b.data, "\x82\x7f\0\0\0\0\0\1\0\0", 10);
        assert_int_equal(b.len, 65546);
        buf_clear(&b);
        websocket_put_close(&b, WEBSOCKET_GOING_AWAY, NULL);
        assert_memory_equal(b.data, "\x88\x02\x03\xe9", 4);
        buf_clear(&b);
        for (size_t i = 0; i < sizeof(long_text); i += 2)
                memcpy(long_text + i, "\xc3\xa9", 2);
        long_text[sizeof(long_text) - 1] = '\0';
        websocket_put_close(&b, WEBSOCKET_FAILED, long_text);
        assert_int_equal(b.data[1], 2 + 122); /* no half character */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_sha1),      cmocka_unit_test(test_handshake),
                cmocka_unit_test(test_messages),  cmocka_unit_test(test_limits),
                cmocka_unit_test(test_forbidden), cmocka_unit_test(test_stopped_by_the_reader),
                cmocka_unit_test(test_out),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
