#include "test.h"

#include "codec/sse.h"

static int note_event(void *ctx, const struct sse_event *e, struct err *err)
{
        struct buf *b = ctx;

        (void)err;
        assert_int_equal(strlen(e->data), e->len);
        buf_appendf(b, "<%s|%s|%s>", e->id, e->event, e->data);
        return 0;
}

/* Fed whole, then byte by byte: the pieces must not matter. */
static void assert_decodes_n(const char *stream, size_t n, const char *expected)
{
        for (size_t piece = n ? n : 1;; piece = 1) {
                CLEAN(buf_done) struct buf got = BUF_INIT;
                struct sse_decoder d;

                sse_decoder_init(&d, 1000, note_event, &got);
                for (size_t i = 0; i < n; i += piece)
                        assert_int_equal(sse_feed(&d, stream + i, piece, NULL), 0);
                assert_string_equal(buf_str(&got), expected);
                sse_decoder_done(&d);
                if (piece == 1)
                        break;
        }
}

static void assert_decodes(const char *stream, const char *expected)
{
        assert_decodes_n(stream, strlen(stream), expected);
}

static void assert_encodes(const char *id, const char *event, const char *data,
                           const char *expected)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        sse_put(&b, id, event, data, strlen(data));
        assert_string_equal(buf_str(&b), expected);
}

static void test_encode(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        (void)state;
        assert_encodes(NULL, NULL, "x", "data: x\n\n");
        assert_encodes("7", "log", "x", "id: 7\nevent: log\ndata: x\n\n");
        assert_encodes(NULL, NULL, "", "data: \n\n");
        assert_encodes(NULL, NULL, "a\nb\r\nc\rd\n",
                       "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n");
        assert_encodes(NULL, NULL, "\r\n\r", "data: \ndata: \ndata: \n\n");
        /* A line end in a name would end the line: it is left out. */
        assert_encodes("1\ndata: evil", "a\r\n\r\nb", "x",
                       "id: 1data: evil\nevent: ab\ndata: x\n\n");
        sse_put_comment(&b, "ok\n\ndata: evil");
        assert_string_equal(buf_str(&b), ": okdata: evil\n\n");
}

static void test_decode(void **state)
{
        (void)state;
        assert_decodes("", "");
        assert_decodes("data: x\n\n", "<|message|x>");
        assert_decodes("data:x\n\n", "<|message|x>");
        assert_decodes("data:  x\n\n", "<|message| x>");
        assert_decodes("data\n\n", "<|message|>");
        assert_decodes("data\ndata\n\n", "<|message|\n>");
        assert_decodes("data: a\ndata: b\n\n", "<|message|a\nb>");
        assert_decodes("id: 1\nevent: log\ndata: x\n\ndata: y\n\n", "<1|log|x><1|message|y>");
        assert_decodes("id: 1\ndata: x\n\nid\ndata: y\n\n", "<1|message|x><|message|y>");
        assert_decodes("event: log\n\ndata: y\n\n", "<|message|y>"); /* no data, no event */
        assert_decodes(":ok\n\n: ping\n\ndata: x\n\n", "<|message|x>");
        assert_decodes("other: 1\nDATA: 2\ndata: x\n\n", "<|message|x>");
        assert_decodes("data: x\n", ""); /* unfinished */
        assert_decodes("data: x", "");
        assert_decodes("data: a:b: c\n\n", "<|message|a:b: c>");
}

static void test_line_ends(void **state)
{
        (void)state;
        assert_decodes("data: a\r\ndata: b\r\n\r\n", "<|message|a\nb>");
        assert_decodes("data: a\rdata: b\r\r", "<|message|a\nb>");
        assert_decodes("data: a\r\n\ndata: b\n\r", "<|message|a><|message|b>");
        assert_decodes("data: a\r\r\n", "<|message|a>");
}

static void test_mark_and_nul(void **state)
{
        (void)state;
        assert_decodes("\xef\xbb\xbf"
                       "data: x\n\n",
                       "<|message|x>");
        assert_decodes("\n\xef\xbb\xbf"
                       "data: x\n\n",
                       ""); /* only at the start */
        assert_decodes_n("id: 1\nid: a\0b\ndata: x\n\n", 23, "<1|message|x>");
}

static void test_retry(void **state)
{
        static const struct {
                const char *line;
                int64_t ms;
        } cases[] = {
                { "retry: 1500\n", 1500 },
                { "retry:0\n", 0 },
                { "retry: x\n", -1 },
                { "retry: 1x\n", -1 },
                { "retry\n", -1 },
                { "retry: -1\n", -1 },
                { "retry: 999999999\n", 999999999 },
                { "retry: 1000000000\n", -1 },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct sse_decoder d;

                sse_decoder_init(&d, 100, note_event, NULL);
                assert_int_equal(sse_feed(&d, cases[i].line, strlen(cases[i].line), NULL), 0);
                assert_int_equal(d.retry_ms, cases[i].ms);
                sse_decoder_done(&d);
        }
}

static int feed_text(struct sse_decoder *d, const char *text)
{
        return sse_feed(d, text, strlen(text), NULL);
}

static void test_limits(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(buf_done) struct buf got = BUF_INIT;
        struct sse_decoder d;

        (void)state;
        sse_decoder_init(&d, 10, note_event, &got);
        assert_int_equal(feed_text(&d, "data: 1234\n"), 0);   /* a line of ten */
        assert_int_equal(feed_text(&d, "data:67890\n\n"), 0); /* data of ten, its joint included */
        assert_string_equal(buf_str(&got), "<|message|1234\n67890>");
        assert_int_equal(feed_text(&d, "data: 1"), 0);
        assert_int_equal(feed_text(&d, "2345"), ERR_TOO_LARGE);       /* a line of eleven */
        assert_int_equal(sse_feed(&d, "\n\n", 2, &e), ERR_TOO_LARGE); /* for good */
        assert_string_equal(e.msg, "the event stream was refused");
        sse_decoder_done(&d);

        sse_decoder_init(&d, 10, note_event, &got);
        assert_int_equal(feed_text(&d, "data:12345\n"), 0);
        assert_int_equal(sse_feed(&d, "data:12345\n", 11, &e), ERR_TOO_LARGE); /* data of eleven */
        assert_string_equal(e.msg, "an event is larger than 10 bytes");
        sse_decoder_done(&d);
}

static int stop(void *ctx, const struct sse_event *event, struct err *err)
{
        (void)event;
        ++*(int *)ctx;
        return err_set(err, ERR_CANCELLED, "enough");
}

static void test_the_callback_can_stop(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        struct sse_decoder d;
        int calls = 0;

        (void)state;
        sse_decoder_init(&d, 100, stop, &calls);
        assert_int_equal(sse_feed(&d, "data: a\n\ndata: b\n\n", 18, &e), ERR_CANCELLED);
        assert_string_equal(e.msg, "enough");
        assert_int_equal(feed_text(&d, "data: c\n\n"), ERR_CANCELLED);
        assert_int_equal(calls, 1);
        sse_decoder_done(&d);
}

static void test_round_trip(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        (void)state;
        sse_put(&b, "9", "heartbeat.run.log", "{\"a\":1}\n\n x", 11);
        sse_put_comment(&b, "still here");
        sse_put(&b, NULL, NULL, "", 0);
        assert_decodes(buf_str(&b), "<9|heartbeat.run.log|{\"a\":1}\n\n x><9|message|>");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_encode),
                cmocka_unit_test(test_decode),
                cmocka_unit_test(test_line_ends),
                cmocka_unit_test(test_mark_and_nul),
                cmocka_unit_test(test_retry),
                cmocka_unit_test(test_limits),
                cmocka_unit_test(test_the_callback_can_stop),
                cmocka_unit_test(test_round_trip),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
