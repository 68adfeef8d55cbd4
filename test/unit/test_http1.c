/* codec/http1: what is accepted, what is refused and with which status, and every limit from both
 * sides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "codec/http1.h"

#define MAX_HEAD 16384

/* Text with embedded NUL bytes. */
#define BYTES(text) (text), sizeof(text) - 1

static enum http1_result parse(const char *bytes, size_t len, struct http1_request *ret,
                               struct http1_refusal *why)
{
        size_t seen = 0;

        *why = (struct http1_refusal){ 0, "" };
        return http1_request_parse(bytes, len, MAX_HEAD, &seen, ret, why);
}

static void accepts(const char *text, struct http1_request *ret)
{
        struct http1_refusal why;

        if (parse(text, strlen(text), ret, &why) != HTTP1_DONE)
                fail_msg("refused (%s): %s", why.text, text);
        assert_int_equal(ret->head.len, strlen(text));
}

static void refuses(int status, const char *bytes, size_t len)
{
        struct http1_request req;
        struct http1_refusal why;

        if (parse(bytes, len, &req, &why) != HTTP1_REFUSED)
                fail_msg("not refused: %.*s", (int)len, bytes);
        if (why.status != status)
                fail_msg("status %d (%s), not %d: %.*s", why.status, why.text, status, (int)len,
                         bytes);
}

static void assert_slice(struct http1_slice s, const char *text)
{
        if (!http1_slice_is(s, text))
                fail_msg("'%.*s' is not '%s'", (int)s.len, s.p, text);
}

static void test_plain_request(void **state)
{
        struct http1_request req;

        (void)state;
        accepts("GET /api/x%20y?a=1&b= HTTP/1.1\r\nHost: localhost:3100\r\nX-Empty:\r\n"
                "accept: \t */* \t\r\n\r\n",
                &req);
        assert_int_equal(req.method, HTTP1_GET);
        assert_slice(req.method_text, "GET");
        assert_slice(req.path, "/api/x%20y");
        assert_slice(req.query, "a=1&b=");
        assert_slice(req.host, "localhost:3100");
        assert_int_equal(req.head.minor, 1);
        assert_true(req.head.keep_alive);
        assert_false(req.expects_continue);
        assert_int_equal(req.head.framing, HTTP1_NO_BODY);
        assert_int_equal(req.head.n_headers, 3);
        assert_slice(http1_find(&req.head, "Accept")->value, "*/*");
        assert_slice(http1_find(&req.head, "x-empty")->value, "");
        assert_null(http1_find(&req.head, "x-other"));
}

static void test_methods(void **state)
{
        static const char *const good[] = { "GET",   "HEAD",   "POST",   "PUT",
                                            "PATCH", "DELETE", "OPTIONS" };
        static const char *const unknown[] = {
                "TRACE", "CONNECT", "GETX", "GE", "Get", "PROPFIND"
        };
        struct http1_request req;
        char text[100];

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++) {
                snprintf(text, sizeof(text), "%s / HTTP/1.1\r\nHost: a\r\n\r\n", good[i]);
                accepts(text, &req);
                assert_int_equal(req.method, i);
        }
        for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
                snprintf(text, sizeof(text), "%s / HTTP/1.1\r\nHost: a\r\n\r\n", unknown[i]);
                refuses(501, text, strlen(text));
        }
        refuses(400, BYTES("G(T / HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("get / HTTP/1.1\r\nHost: a\r\n\r\n"));
}

static void test_request_line(void **state)
{
        (void)state;
        refuses(400, BYTES("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET /  HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET /\tHTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1 \r\nHost: a\r\n\r\n"));
        refuses(400, BYTES(" GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET /\r\n\r\n"));
        refuses(400, BYTES("GET\r\n\r\n"));
        refuses(400, BYTES("GET / http/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.11\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/+.1\r\nHost: a\r\n\r\n"));
        refuses(505, BYTES("GET / HTTP/1.2\r\nHost: a\r\n\r\n"));
        refuses(505, BYTES("GET / HTTP/2.0\r\nHost: a\r\n\r\n"));
        refuses(505, BYTES("GET / HTTP/0.9\r\nHost: a\r\n\r\n"));
        refuses(505, BYTES("PRI * HTTP/2.0\r\n\r\n"));
        /* The first byte alone tells TLS from HTTP. */
        refuses(400, BYTES("\x16"));
}

static void test_line_ends(void **state)
{
        (void)state;
        refuses(400, BYTES("GET / HTTP/1.1\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\n\n"));
        refuses(400, BYTES("GET / HTTP/1.1\n\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET /\r HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\n\r\r\n\r\n"));
}

static void test_targets(void **state)
{
        struct http1_request req;

        (void)state;
        accepts("GET /? HTTP/1.1\r\nHost: a\r\n\r\n", &req);
        assert_slice(req.path, "/");
        assert_slice(req.query, "");
        accepts("GET /a?b?c HTTP/1.1\r\nHost: a\r\n\r\n", &req);
        assert_slice(req.query, "b?c");
        accepts("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", &req);
        assert_slice(req.path, "*");
        accepts("GET hTTp://Example.com:80/x?y HTTP/1.1\r\nHost: example.com:80\r\n\r\n", &req);
        assert_slice(req.path, "/x");
        assert_slice(req.query, "y");
        accepts("GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n", &req);
        assert_slice(req.path, "/");

        refuses(400, BYTES("GET * HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET x HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET http://ab/ HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET http://a?x HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET http:// HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET http:/// HTTP/1.0\r\n\r\n"));
        refuses(400, BYTES("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET /a\x7f HTTP/1.1\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET /a\x01 HTTP/1.1\r\nHost: a\r\n\r\n"));
}

static void test_header_lines(void **state)
{
        struct http1_request req;

        (void)state;
        accepts("GET / HTTP/1.1\r\nHost: a\r\nX: \xc3\xa4\tb\r\nX!#$%&'*+-.^_`|~9: 1\r\n\r\n",
                &req);
        assert_int_equal(req.head.n_headers, 3);
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc: d\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\n X: b\r\nHost: a\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost : a\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\nX\t: b\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\nX(: b\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\nX\xff: b\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\nX: b\x0b\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\nX: b\x7f\r\n\r\n"));
}

static void test_host(void **state)
{
        static const char *const good[] = { "a", "a.b-c_d:1", "127.0.0.1:65535", "[::1]",
                                            "[::1]:80" };
        static const char *const bad[] = { "",    "a b",   "a/b",  "a@b",      "a:",      "a:x",
                                           ":80", "a:1:2", "[::1", "[]",       "[::g]",   "[::1]80",
                                           "a,b", "a\\b",  "a%41", "a:123456", "\xc3\xa4" };
        struct http1_request req;
        char text[100];

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++) {
                snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", good[i]);
                accepts(text, &req);
                assert_slice(req.host, good[i]);
        }
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", bad[i]);
                refuses(400, text, strlen(text));
        }
        refuses(400, BYTES("GET / HTTP/1.1\r\n\r\n"));
        refuses(400, BYTES("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"));
        accepts("GET / HTTP/1.0\r\n\r\n", &req);
        assert_int_equal(req.host.len, 0);
}

static void test_single_headers(void **state)
{
        static const char *const once[] = { "Authorization", "Content-Type", "Cookie", "Origin" };
        struct http1_request req;
        char text[200];

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(once); i++) {
                snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n%s: x\r\n%s: x\r\n\r\n",
                         once[i], once[i]);
                refuses(400, text, strlen(text));
        }
        accepts("GET / HTTP/1.1\r\nHost: a\r\nAccept: x\r\nAccept: y\r\n\r\n", &req);
        assert_int_equal(req.head.n_headers, 3);
}

static void test_content_length(void **state)
{
        static const char *const bad[] = { "",
                                           "-1",
                                           "+1",
                                           "0x10",
                                           "1 0",
                                           "1,1",
                                           "1, 1",
                                           "1;",
                                           "1.0",
                                           "1e3",
                                           "9223372036854775808",
                                           "18446744073709551616",
                                           "00000000000000000001",
                                           "\xd9\xa1" };
        struct http1_request req;
        char text[200];

        (void)state;
        accepts("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", &req);
        assert_int_equal(req.head.framing, HTTP1_BODY_LENGTH);
        assert_int_equal(req.head.content_length, 0);
        accepts("POST / HTTP/1.1\r\nHost: a\r\ncontent-LENGTH: 9223372036854775807\r\n\r\n", &req);
        assert_true(req.head.content_length == INT64_MAX);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                snprintf(text, sizeof(text),
                         "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %s\r\n\r\n", bad[i]);
                refuses(400, text, strlen(text));
        }
        refuses(400, BYTES("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
                           "Content-Length: 5\r\n\r\n"));
        refuses(400, BYTES("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nX: y\r\n"
                           "content-length: 6\r\n\r\n"));
}

static void test_transfer_encoding(void **state)
{
        static const char *const bad[] = {
                "gzip",     "Chunked",     "chunked, chunked", "gzip, chunked", "identity",
                "xchunked", "chunked;a=b", "\"chunked\"",      "chunked, x",    ""
        };
        struct http1_request req;
        char text[200];

        (void)state;
        accepts("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", &req);
        assert_int_equal(req.head.framing, HTTP1_BODY_CHUNKED);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                snprintf(text, sizeof(text),
                         "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: %s\r\n\r\n", bad[i]);
                refuses(501, text, strlen(text));
        }
        refuses(400, BYTES("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0b"
                           "chunked\r\n\r\n"));
        refuses(400, BYTES("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n"));
        refuses(400, BYTES("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
                           "Transfer-Encoding: chunked\r\n\r\n"));
        refuses(400, BYTES("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
                           "Content-Length: 5\r\n\r\n"));
        refuses(400, BYTES("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
                           "Transfer-Encoding: chunked\r\n\r\n"));
        refuses(400, BYTES("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"));
}

static void test_connection_and_expect(void **state)
{
        struct http1_request req;

        (void)state;
        accepts("GET / HTTP/1.1\r\nHost: a\r\nConnection: x ,CLOSE\r\n\r\n", &req);
        assert_false(req.head.keep_alive);
        accepts("GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n",
                &req);
        assert_false(req.head.keep_alive);
        accepts("GET / HTTP/1.1\r\nHost: a\r\nConnection: ,,closed\r\n\r\n", &req);
        assert_true(req.head.keep_alive);
        accepts("GET / HTTP/1.0\r\n\r\n", &req);
        assert_false(req.head.keep_alive);
        accepts("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", &req);
        assert_true(req.head.keep_alive);
        accepts("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", &req);
        assert_false(req.head.keep_alive);

        accepts("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n",
                &req);
        assert_true(req.expects_continue);
        accepts("PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n", &req);
        assert_false(req.expects_continue);
        refuses(417, BYTES("PUT / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n"));
        refuses(417, BYTES("PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue, x\r\n\r\n"));
}

/* A head of exactly `total` bytes, padded with one long header. */
static char *head_of(size_t total)
{
        static const char start[] = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
        char *text = xcalloc(1, total + 1);

        memset(text, 'x', total);
        memcpy(text, start, sizeof(start) - 1);
        snprintf(text + total - 4, 5, "\r\n\r\n");
        return text;
}

static void test_limit_head(void **state)
{
        char *CLEAN(cleanup_free) fits = head_of(MAX_HEAD);
        char *CLEAN(cleanup_free) over = head_of(MAX_HEAD + 1);
        struct http1_request req;
        struct http1_refusal why;

        (void)state;
        accepts(fits, &req);
        refuses(431, over, MAX_HEAD + 1);
        /* It is known to be too long before its end has come, but not a byte earlier. */
        refuses(431, over, MAX_HEAD);
        assert_int_equal(parse(over, MAX_HEAD - 1, &req, &why), HTTP1_MORE);
}

static void test_limit_target(void **state)
{
        struct http1_request req;
        struct buf CLEAN(buf_done) text = BUF_INIT;

        (void)state;
        for (size_t len = HTTP1_MAX_TARGET; len <= HTTP1_MAX_TARGET + 1; len++) {
                buf_clear(&text);
                buf_puts(&text, "GET /");
                for (size_t i = 1; i < len; i++)
                        buf_putc(&text, 'x');
                buf_puts(&text, " HTTP/1.1\r\nHost: a\r\n\r\n");
                if (len == HTTP1_MAX_TARGET)
                        accepts(text.data, &req);
                else
                        refuses(414, text.data, text.len);
        }
        buf_clear(&text);
        buf_puts(&text, "GET /");
        while (!buf_failed(&text) && text.len < MAX_HEAD)
                buf_putc(&text, 'x');
        refuses(414, text.data, text.len);
}

static void test_limit_header_count(void **state)
{
        struct http1_request req;
        struct buf CLEAN(buf_done) text = BUF_INIT;

        (void)state;
        for (int n = HTTP1_MAX_HEADERS; n <= HTTP1_MAX_HEADERS + 1; n++) {
                buf_clear(&text);
                buf_puts(&text, "GET / HTTP/1.1\r\nHost: a\r\n");
                for (int i = 1; i < n; i++)
                        buf_appendf(&text, "X%d: y\r\n", i);
                buf_puts(&text, "\r\n");
                assert_false(buf_failed(&text));
                if (n == HTTP1_MAX_HEADERS)
                        accepts(text.data, &req);
                else
                        refuses(431, text.data, text.len);
        }
        assert_int_equal(req.head.n_headers, HTTP1_MAX_HEADERS);
}

static void test_byte_by_byte(void **state)
{
        static const char text[] = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
        struct http1_request req;
        struct http1_refusal why;
        size_t head = sizeof(text) - 1 - 3;
        size_t seen = 0;

        (void)state;
        for (size_t len = 0; len < head; len++)
                assert_int_equal(http1_request_parse(text, len, MAX_HEAD, &seen, &req, &why),
                                 HTTP1_MORE);
        assert_int_equal(http1_request_parse(text, sizeof(text) - 1, MAX_HEAD, &seen, &req, &why),
                         HTTP1_DONE);
        assert_int_equal(req.head.len, head);
        assert_int_equal(req.head.content_length, 3);
}

/* --- chunked --- */

/* Decode in pieces of `step` bytes; the body is collected in *body. */
static enum http1_result decode(const char *bytes, size_t len, size_t step, struct buf *body,
                                size_t *ret_used)
{
        struct http1_chunked d = { 0 };
        struct http1_refusal why;
        size_t at = 0;

        while (at < len) {
                struct http1_slice data;
                size_t used;
                enum http1_result r =
                        http1_chunked_feed(&d, bytes + at, MIN(step, len - at), &used, &data, &why);

                buf_append(body, data.p, data.len);
                at += used;
                if (r == HTTP1_REFUSED)
                        assert_int_equal(why.status, 400);
                if (r != HTTP1_MORE) {
                        *ret_used = at;
                        return r;
                }
        }
        *ret_used = at;
        return HTTP1_MORE;
}

static void decodes(const char *bytes, const char *expected)
{
        for (size_t step = 1; step <= strlen(bytes); step++) {
                struct buf CLEAN(buf_done) body = BUF_INIT;
                size_t used;

                assert_int_equal(decode(bytes, strlen(bytes), step, &body, &used), HTTP1_DONE);
                assert_int_equal(used, strlen(bytes));
                assert_string_equal(buf_str(&body), expected);
        }
}

static void chunked_refuses(const char *bytes, size_t len)
{
        struct buf CLEAN(buf_done) body = BUF_INIT;
        size_t used;

        if (decode(bytes, len, len, &body, &used) != HTTP1_REFUSED)
                fail_msg("not refused: %.*s", (int)MIN(len, 60), bytes);
}

static void test_chunked_good(void **state)
{
        struct buf CLEAN(buf_done) body = BUF_INIT;
        size_t used;

        (void)state;
        decodes("0\r\n\r\n", "");
        decodes("3\r\nabc\r\n0\r\n\r\n", "abc");
        decodes("3;a=b;c=\"d e\"\r\nabc\r\n1\r\nd\r\n000\r\n\r\n", "abcd");
        decodes("B\r\nhello\r\nyou!\r\nb\r\nhello\r\nyou!\r\n0\r\n\r\n",
                "hello\r\nyou!hello\r\nyou!");
        decodes("1\r\nx\r\n0\r\nX-Sum: 1\r\nX-Other:\r\n\r\n", "x");
        /* What follows the body is left alone. */
        assert_int_equal(decode(BYTES("0\r\n\r\nGET /"), 99, &body, &used), HTTP1_DONE);
        assert_int_equal(used, 5);
        assert_int_equal(decode(BYTES("5\r\nabc"), 99, &body, &used), HTTP1_MORE);
        assert_string_equal(body.data, "abc");
}

static void test_chunked_bad(void **state)
{
        (void)state;
        chunked_refuses(BYTES("\r\n"));
        chunked_refuses(BYTES("x\r\n"));
        chunked_refuses(BYTES("-1\r\n"));
        chunked_refuses(BYTES("0x3\r\nabc\r\n"));
        chunked_refuses(BYTES(" 3\r\nabc\r\n"));
        chunked_refuses(BYTES("3 \r\nabc\r\n"));
        chunked_refuses(BYTES("3\nabc\r\n"));
        chunked_refuses(BYTES("3\rabc\r\n"));
        chunked_refuses(BYTES("3\rxabc\r\n0\r\n\r\n"));
        chunked_refuses(BYTES("3\r\nabcd\r\n"));
        chunked_refuses(BYTES("3\r\nabcx\n0\r\n\r\n"));
        chunked_refuses(BYTES("3\r\nabc\n0\r\n\r\n"));
        chunked_refuses(BYTES("3\r\nabc\rx"));
        chunked_refuses(BYTES("3\r\nabc0\r\n\r\n"));
        chunked_refuses(BYTES(";a\r\n"));
        chunked_refuses(BYTES("3;a\0b\r\n"));
        chunked_refuses(BYTES("3;a\nabc\r\n"));
        chunked_refuses(BYTES("3;\xff\r\n"));
        chunked_refuses(BYTES("0\r\n\n"));
        chunked_refuses(BYTES("0\r\n\rx"));
        chunked_refuses(BYTES("0\r\nX: a\n\r\n"));
        chunked_refuses(BYTES("0\r\nX: a\rb\r\n\r\n"));
        chunked_refuses(BYTES("0\r\n X: a\r\n\r\n"));
        chunked_refuses(BYTES("0\r\nX : a\r\n\r\n"));
        chunked_refuses(BYTES("0\r\n: a\r\n\r\n"));
        chunked_refuses(BYTES("0\r\nX\r\n\r\n"));
        chunked_refuses(BYTES("0\r\nX: a\0b\r\n\r\n"));
        chunked_refuses(BYTES("0\r\nX: a\x7f\r\n\r\n"));
        chunked_refuses(BYTES("0\r\nContent-Length: 3\r\n\r\n"));
        chunked_refuses(BYTES("0\r\nX: y\r\ntransfer-ENCODING: chunked\r\n\r\n"));
        chunked_refuses(BYTES("0\r\nHost: b\r\n\r\n"));
        chunked_refuses(BYTES("0\r\nAuthorization: b\r\n\r\n"));
}

static void test_chunked_limit_size(void **state)
{
        struct buf CLEAN(buf_done) body = BUF_INIT;
        size_t used;

        (void)state;
        assert_int_equal(decode(BYTES("7fffffffffffffff\r\nab"), 99, &body, &used), HTTP1_MORE);
        chunked_refuses(BYTES("8000000000000000\r\n"));
        chunked_refuses(BYTES("ffffffffffffffff1\r\n"));
        chunked_refuses(BYTES("10000000000000003\r\nabc\r\n"));
        assert_int_equal(decode(BYTES("0000000000000003\r\nabc"), 99, &body, &used), HTTP1_MORE);
        chunked_refuses(BYTES("00000000000000003\r\nabc\r\n"));
}

static void test_chunked_limit_extension(void **state)
{
        struct buf CLEAN(buf_done) text = BUF_INIT;
        struct buf CLEAN(buf_done) body = BUF_INIT;
        size_t used;

        (void)state;
        buf_puts(&text, "1;");
        while (!buf_failed(&text) && text.len < 1 + HTTP1_MAX_CHUNK_EXT)
                buf_putc(&text, 'x');
        buf_puts(&text, "\r\nA\r\n0\r\n\r\n");
        assert_int_equal(decode(text.data, text.len, text.len, &body, &used), HTTP1_DONE);
        buf_clear(&text);
        buf_puts(&text, "1;");
        while (!buf_failed(&text) && text.len < 1 + HTTP1_MAX_CHUNK_EXT + 1)
                buf_putc(&text, 'x');
        buf_puts(&text, "\r\nA\r\n0\r\n\r\n");
        chunked_refuses(text.data, text.len);
}

/* A chunk of one byte with n bytes of extension wastes n + 1 + 4 - 17 bytes of framing. */
static void test_chunked_limit_waste(void **state)
{
        struct buf CLEAN(buf_done) text = BUF_INIT;
        struct buf CLEAN(buf_done) body = BUF_INIT;
        size_t used;

        (void)state;
        for (int i = 0; i < HTTP1_MAX_CHUNK_WASTE / 128; i++)
                buf_appendf(&text, "1;%0139d\r\nx\r\n", 0);
        buf_puts(&text, "0\r\n\r\n");
        assert_false(buf_failed(&text));
        assert_int_equal(decode(text.data, text.len, text.len, &body, &used), HTTP1_DONE);
        text.len -= 5;
        buf_puts(&text, "1;aaaaaaaaaaaa\r\nx\r\n");
        chunked_refuses(text.data, text.len);
        /* Small chunks without ornament are fine however many there are. */
        buf_clear(&text);
        buf_clear(&body);
        for (int i = 0; i < 100000; i++)
                buf_puts(&text, "1\r\nx\r\n");
        assert_int_equal(decode(text.data, text.len, text.len, &body, &used), HTTP1_MORE);
        assert_int_equal(body.len, 100000);
}

static void test_chunked_limit_trailer(void **state)
{
        struct buf CLEAN(buf_done) text = BUF_INIT;
        struct buf CLEAN(buf_done) body = BUF_INIT;
        size_t used;

        (void)state;
        buf_puts(&text, "0\r\nX:");
        while (!buf_failed(&text) && text.len < 3 + HTTP1_MAX_TRAILER - 2)
                buf_putc(&text, 'x');
        buf_puts(&text, "\r\n\r\n");
        assert_int_equal(decode(text.data, text.len, text.len, &body, &used), HTTP1_DONE);
        buf_clear(&text);
        buf_puts(&text, "0\r\nX:");
        while (!buf_failed(&text) && text.len < 3 + HTTP1_MAX_TRAILER - 1)
                buf_putc(&text, 'x');
        buf_puts(&text, "\r\n\r\n");
        chunked_refuses(text.data, text.len);
}

/* --- responses --- */

static enum http1_result respond(const char *bytes, size_t len, bool for_head,
                                 struct http1_response *ret)
{
        struct http1_refusal why;
        size_t seen = 0;
        enum http1_result r =
                http1_response_parse(bytes, len, MAX_HEAD, &seen, for_head, ret, &why);

        if (r == HTTP1_REFUSED)
                assert_int_equal(why.status, 502);
        return r;
}

static void test_response_good(void **state)
{
        struct http1_response res;

        (void)state;
        assert_int_equal(
                respond(BYTES("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), false, &res),
                HTTP1_DONE);
        assert_int_equal(res.status, 200);
        assert_slice(res.reason, "OK");
        assert_int_equal(res.head.framing, HTTP1_BODY_LENGTH);
        assert_int_equal(res.head.content_length, 5);
        assert_true(res.head.keep_alive);
        assert_int_equal(
                respond(BYTES("HTTP/1.1 404\r\nTransfer-Encoding: chunked\r\n\r\n"), false, &res),
                HTTP1_DONE);
        assert_int_equal(res.status, 404);
        assert_slice(res.reason, "");
        assert_int_equal(res.head.framing, HTTP1_BODY_CHUNKED);
        assert_int_equal(respond(BYTES("HTTP/1.1 200 \r\n\r\n"), false, &res), HTTP1_DONE);
        assert_int_equal(res.head.framing, HTTP1_BODY_UNTIL_CLOSE);
        assert_false(res.head.keep_alive);
        assert_int_equal(respond(BYTES("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), true, &res),
                         HTTP1_DONE);
        assert_int_equal(res.head.framing, HTTP1_NO_BODY);
        assert_int_equal(respond(BYTES("HTTP/1.1 204 No\r\n\r\n"), false, &res), HTTP1_DONE);
        assert_int_equal(res.head.framing, HTTP1_NO_BODY);
        assert_true(res.head.keep_alive);
        assert_int_equal(respond(BYTES("HTTP/1.1 100 Continue\r\n\r\n"), false, &res), HTTP1_DONE);
        assert_int_equal(res.head.framing, HTTP1_NO_BODY);
        assert_int_equal(respond(BYTES("HTTP/1.1 304 x\r\nContent-Length: 9\r\n\r\n"), false, &res),
                         HTTP1_DONE);
        assert_int_equal(res.head.framing, HTTP1_NO_BODY);
        assert_int_equal(respond(BYTES("HTTP/1.1 200 OK\r\nContent-Le"), false, &res), HTTP1_MORE);
}

static void response_refused(const char *bytes, size_t len)
{
        struct http1_response res;

        if (respond(bytes, len, false, &res) != HTTP1_REFUSED)
                fail_msg("not refused: %.*s", (int)len, bytes);
}

static void test_response_bad(void **state)
{
        (void)state;
        response_refused(BYTES("HTTP/1.1 99 x\r\n\r\n"));
        response_refused(BYTES("HTTP/1.1 600 x\r\n\r\n"));
        response_refused(BYTES("HTTP/1.1 2000\r\n\r\n"));
        response_refused(BYTES("HTTP/1.1 20x OK\r\n\r\n"));
        response_refused(BYTES("HTTP/1.1  200 OK\r\n\r\n"));
        response_refused(BYTES("HTTP/1.1\r\n\r\n"));
        response_refused(BYTES("HTTP/2.0 200 OK\r\n\r\n"));
        response_refused(BYTES("HTTP 200 OK\r\n\r\n"));
        response_refused(BYTES("HTTP/1.1 200 O\0K\r\n\r\n"));
        response_refused(BYTES("HTTP/1.1 200 OK\n\n"));
        response_refused(BYTES("HTTP/1.1 200 OK\r\nX : y\r\n\r\n"));
        response_refused(BYTES("HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n"));
        response_refused(
                BYTES("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n"));
        response_refused(BYTES("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: "
                               "chunked\r\n\r\n"));
        response_refused(BYTES("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
        response_refused(BYTES("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"));
        response_refused(BYTES("<html>"));
}

static void test_response_limit_head(void **state)
{
        struct http1_response res;
        struct buf CLEAN(buf_done) text = BUF_INIT;

        (void)state;
        for (size_t total = MAX_HEAD; total <= MAX_HEAD + 1; total++) {
                buf_clear(&text);
                buf_puts(&text, "HTTP/1.1 200 OK\r\nX: ");
                while (!buf_failed(&text) && text.len < total - 4)
                        buf_putc(&text, 'x');
                buf_puts(&text, "\r\n\r\n");
                assert_int_equal(respond(text.data, text.len, false, &res),
                                 total == MAX_HEAD ? HTTP1_DONE : HTTP1_REFUSED);
        }
}

/* --- URLs --- */

static void test_percent_decode(void **state)
{
        static const char *const bad[] = {
                "%",         "a%4",       "%4",           "%zz",          "%-1",
                "%00",       "%ff",       "%c3",          "%c3%28",       "%c0%af",
                "%ed%a0%80", "%e0%80%80", "%f5%80%80%80", "%f4%90%80%80", "%80"
        };
        struct buf CLEAN(buf_done) out = BUF_INIT;
        struct err CLEAN(err_done) err = { 0 };

        (void)state;
        assert_int_equal(http1_percent_decode(BYTES("a%20b+c%2F%c3%A4%f0%9f%98%80"), &out, &err),
                         0);
        assert_string_equal(out.data, "a b+c/\xc3\xa4\xf0\x9f\x98\x80");
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                buf_clear(&out);
                buf_puts(&out, "before");
                if (http1_percent_decode(bad[i], strlen(bad[i]), &out, &err) != ERR_INVALID)
                        fail_msg("accepted: %s", bad[i]);
                assert_string_equal(out.data, "before");
                assert_int_equal(out.len, 6);
        }
        buf_clear(&out);
        assert_int_equal(http1_percent_decode(BYTES("a\0b"), &out, &err), ERR_INVALID);
        assert_int_equal(http1_percent_decode("%41", 2, &out, &err), ERR_INVALID);
        assert_int_equal(http1_percent_decode("", 0, &out, &err), 0);
        assert_string_equal(buf_str(&out), "");
}

static void test_query_get(void **state)
{
        static const char query[] = "a=1&&b=x+y%26z&c&=empty&%64=4&a=2&e=%zz&f=1";
        struct buf CLEAN(buf_done) out = BUF_INIT;
        struct err CLEAN(err_done) err = { 0 };

        (void)state;
        assert_int_equal(http1_query_get(query, "a", &out, &err), 1);
        assert_string_equal(out.data, "1");
        assert_int_equal(http1_query_get(query, "b", &out, &err), 1);
        assert_string_equal(out.data, "x y&z");
        assert_int_equal(http1_query_get(query, "c", &out, &err), 1);
        assert_string_equal(out.data, "");
        assert_int_equal(http1_query_get(query, "d", &out, &err), 1);
        assert_string_equal(out.data, "4");
        assert_int_equal(http1_query_get(query, "e", &out, &err), ERR_INVALID);
        assert_int_equal(http1_query_get(query, "f", &out, &err), 1);
        assert_int_equal(http1_query_get(query, "g", &out, &err), 0);
        assert_string_equal(buf_str(&out), "");
        assert_int_equal(http1_query_get("", "a", &out, &err), 0);
        assert_int_equal(http1_query_get("%zz=1&a=1", "a", &out, &err), ERR_INVALID);
        assert_int_equal(http1_query_get("aa=1&ab=2", "a", &out, &err), 0);
}

static void test_fields_we_write(void **state)
{
        (void)state;
        assert_true(http1_is_field_name("X-a"));
        assert_false(http1_is_field_name(""));
        assert_false(http1_is_field_name("a b"));
        assert_false(http1_is_field_name("a:"));
        assert_true(http1_is_field_value("a \t\xc3\xa4"));
        assert_false(http1_is_field_value("a\r\nb: c"));
        assert_false(http1_is_field_value("a\nb"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_plain_request),
                cmocka_unit_test(test_methods),
                cmocka_unit_test(test_request_line),
                cmocka_unit_test(test_line_ends),
                cmocka_unit_test(test_targets),
                cmocka_unit_test(test_header_lines),
                cmocka_unit_test(test_host),
                cmocka_unit_test(test_single_headers),
                cmocka_unit_test(test_content_length),
                cmocka_unit_test(test_transfer_encoding),
                cmocka_unit_test(test_connection_and_expect),
                cmocka_unit_test(test_limit_head),
                cmocka_unit_test(test_limit_target),
                cmocka_unit_test(test_limit_header_count),
                cmocka_unit_test(test_byte_by_byte),
                cmocka_unit_test(test_chunked_good),
                cmocka_unit_test(test_chunked_bad),
                cmocka_unit_test(test_chunked_limit_size),
                cmocka_unit_test(test_chunked_limit_extension),
                cmocka_unit_test(test_chunked_limit_waste),
                cmocka_unit_test(test_chunked_limit_trailer),
                cmocka_unit_test(test_response_good),
                cmocka_unit_test(test_response_bad),
                cmocka_unit_test(test_response_limit_head),
                cmocka_unit_test(test_percent_decode),
                cmocka_unit_test(test_query_get),
                cmocka_unit_test(test_fields_we_write),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
