#include "test.h"

#include "codec/jsonrpc.h"
#include "codec/ndjson.h"

/* Lines */

static int note_line(void *ctx, const char *line, size_t len)
{
        struct buf *b = ctx;

        assert_int_equal(line[len], '\0');
        buf_putc(b, '<');
        buf_append(b, line, len);
        buf_putc(b, '>');
        return strstr(line, "stop") ? ERR_CONFLICT : 0;
}

/* Fed whole, then byte by byte: the pieces must not matter. */
static void assert_splits(const char *stream, size_t max, int code, const char *expected)
{
        size_t n = strlen(stream);

        for (size_t piece = MAX(n, (size_t)1);; piece = 1) {
                CLEAN(buf_done) struct buf got = BUF_INIT;
                struct ndjson lines;
                int r = 0;

                ndjson_init(&lines, max, note_line, &got);
                for (size_t i = 0; r >= 0 && i < n; i += piece)
                        r = ndjson_feed(&lines, stream + i, piece, NULL);
                assert_int_equal(r, code);
                assert_string_equal(buf_str(&got), expected);
                ndjson_done(&lines);
                if (piece == 1)
                        break;
        }
}

static void test_lines(void **state)
{
        assert_splits("", 10, 0, "");
        assert_splits("a\nb\n", 10, 0, "<a><b>");
        assert_splits("a\r\nb\r\r\n", 10, 0, "<a><b\r>");
        assert_splits("\n\r\n  \t\na\n", 10, 0, "<a>");
        assert_splits("a\xe2\x80\xa8"
                      "b\n",
                      10, 0,
                      "<a\xe2\x80\xa8"
                      "b>");
        assert_splits("a\nrest without an end", 30, 0, "<a>");
        assert_splits("a\nstop\nb\n", 10, ERR_CONFLICT, "<a><stop>");
}

static void test_line_limit(void **state)
{
        assert_splits("0123456789\r\nb\n", 10, 0, "<0123456789><b>");
        assert_splits("a\n012345678901\n", 10, ERR_TOO_LARGE, "<a>");
}

/* Messages */

static enum jsonrpc_kind kind_of(const char *line)
{
        struct jsonrpc m;
        enum jsonrpc_kind kind;

        assert_int_equal(jsonrpc_parse(line, strlen(line), &m, NULL), 0);
        kind = m.kind;
        jsonrpc_done(&m);
        return kind;
}

/* plugin-protocol 6.3.6: the shape decides, not the id */
static void test_kinds(void **state)
{
        assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}"),
                         JSONRPC_RESPONSE);
        assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{}}"), JSONRPC_RESPONSE);
        assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}"),
                         JSONRPC_RESPONSE);
        assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"result\":1}"),
                         JSONRPC_RESPONSE);
        assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}"),
                         JSONRPC_REQUEST);
        assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"m\"}"),
                         JSONRPC_REQUEST);
        assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"method\":\"m\"}"), JSONRPC_NOTIFICATION);
        assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"m\"}"),
                         JSONRPC_UNKNOWN);
        assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\",\"method\":7}"), JSONRPC_UNKNOWN);
        assert_int_equal(kind_of("{\"jsonrpc\":\"2.0\"}"), JSONRPC_UNKNOWN);
}

static void test_no_messages(void **state)
{
        static const char *const bad[] = {
                "",
                "x",
                "[]",
                "1",
                "{}",
                "{\"jsonrpc\":2.0}",
                "{\"jsonrpc\":\"1.0\",\"id\":1}",
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"result\":1}",
                "{\"jsonrpc\":\"2.0\"",
        };
        struct jsonrpc m;

        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_int_equal(jsonrpc_parse(bad[i], strlen(bad[i]), &m, NULL), ERR_INVALID);
}

static int64_t own_id(const char *id)
{
        CLEAN(cleanup_free)
        char *line = xasprintf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":1}", id);
        struct jsonrpc m;
        int64_t own;

        assert_int_equal(jsonrpc_parse(line, strlen(line), &m, NULL), 0);
        own = jsonrpc_own_id(&m);
        jsonrpc_done(&m);
        return own;
}

static void test_ids(void **state)
{
        assert_int_equal(own_id("7"), 7);
        assert_int_equal(own_id("\"7\""), 0);
        assert_int_equal(own_id("0"), 0);
        assert_int_equal(own_id("-1"), 0);
        assert_int_equal(own_id("1.5"), 0);
        assert_int_equal(own_id("null"), 0);
        assert_int_equal(own_id("[1]"), 0);
        assert_int_equal(own_id("1e300"), 0);
}

static void assert_error(const char *error, int64_t code, const char *text)
{
        CLEAN(cleanup_free)
        char *line = xasprintf("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":%s}", error);
        struct jsonrpc m;

        assert_int_equal(jsonrpc_parse(line, strlen(line), &m, NULL), 0);
        assert_null(m.result); /* both: an error */
        assert_int_equal(jsonrpc_error_code(&m), code);
        assert_string_equal(jsonrpc_error_text(&m), text);
        jsonrpc_done(&m);
}

/* plugin-protocol 6.3.7 */
static void test_errors(void **state)
{
        assert_error("{\"code\":-32601,\"message\":\"a\"}", -32601, "a");
        assert_error("{\"code\":404,\"message\":\"b\"}", 404, "b");
        assert_error("{\"code\":\"ENOENT\",\"message\":\"c\"}", -32002, "c");
        assert_error("\"broken\"", -32002, "The worker answered with an error that has no text.");
}

/* What JSON.stringify writes for text that no strict reader takes. */
static void test_lenient(void **state)
{
        static const char line[] =
                "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":"
                "{\"out\":\"a\\u0000b\",\"half\":\"x\\ud83dy\\ude00\","
                "\"pair\":\"\\ud83d\\ude00\",\"raw\":\"\xff\",\"esc\":\"\\\\ud83d\"}}";
        struct jsonrpc m;

        assert_int_equal(jsonrpc_parse(line, sizeof(line) - 1, &m, NULL), 0);
        assert_true(m.has_nul);
        assert_int_equal(json_string_length(json_object_get(m.result, "out")), 3);
        assert_string_equal(json_get_string(m.result, "half"), "x\xef\xbf\xbdy\xef\xbf\xbd");
        assert_string_equal(json_get_string(m.result, "pair"), "\xf0\x9f\x98\x80");
        assert_string_equal(json_get_string(m.result, "raw"), "\xef\xbf\xbd");
        assert_string_equal(json_get_string(m.result, "esc"), "\\ud83d");
        jsonrpc_done(&m);
}

/* plugin-protocol 6.3.8: Node 24 would take these for line ends */
static void test_separators_are_escaped(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        json_t *params = json_pack("{s:s}", "stdin",
                                   "a\xe2\x80\xa8"
                                   "b\xe2\x80\xa9"
                                   "c\n");

        jsonrpc_put_request(&b, 3, "environmentExecute", params, NULL);
        assert_string_equal(buf_str(&b),
                            "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"environmentExecute\","
                            "\"params\":{\"stdin\":\"a\\u2028b\\u2029c\\n\"}}\n");
        json_decref(params);
}

static void test_answers(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        json_t *id = json_string("x");

        jsonrpc_put_result(&b, id, NULL);
        jsonrpc_put_error(&b, id, RPC_METHOD_NOT_FOUND, "no");
        assert_string_equal(buf_str(&b),
                            "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":null}\n"
                            "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"error\":{\"code\":-32601,"
                            "\"message\":\"no\"}}\n");
        json_decref(id);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_lines),   cmocka_unit_test(test_line_limit),
                cmocka_unit_test(test_kinds),   cmocka_unit_test(test_no_messages),
                cmocka_unit_test(test_ids),     cmocka_unit_test(test_errors),
                cmocka_unit_test(test_lenient), cmocka_unit_test(test_separators_are_escaped),
                cmocka_unit_test(test_answers),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
