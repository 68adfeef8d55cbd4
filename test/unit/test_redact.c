#include "test.h"

#include "codec/redact.h"

static struct redactor *make(const char *const *values, size_t n)
{
        bool too_much = false;
        struct redactor *r = redactor_new(values, n, &too_much);

        assert_false(too_much);
        return r;
}

/* Fed whole, then byte by byte: the pieces must not matter. */
static void assert_redacts(const char *const *values, size_t n, const char *text,
                           const char *expected)
{
        struct redactor *r = make(values, n);
        size_t len = strlen(text);

        for (size_t piece = len ? len : 1;; piece = 1) {
                CLEAN(buf_done) struct buf out = BUF_INIT;
                struct redact_stream s;

                redact_begin(&s, r);
                for (size_t i = 0; i < len; i += piece)
                        redact_feed(&s, text + i, piece, &out);
                redact_end(&s, &out);
                redact_done(&s);
                assert_string_equal(buf_str(&out), expected);
                if (piece == 1)
                        break;
        }
        redactor_free(r);
}

#define REDACTS(text, expected, ...)                                                               \
        assert_redacts((const char *const[]){ __VA_ARGS__ },                                       \
                       ARRAY_LEN(((const char *const[]){ __VA_ARGS__ })), text, expected)

static void test_values(void **state)
{
        (void)state;
        REDACTS("key=hunter22 ok", "key=" REDACTED " ok", "hunter22");
        REDACTS("hunter2", "hunter2", "hunter22");
        REDACTS("hunthunter22", "hunt" REDACTED, "hunter22");
        REDACTS("", "", "hunter22");
        /* a run of values is one mark, whether they touch or overlap */
        REDACTS("xhunter22hunter22y", "x" REDACTED "y", "hunter22");
        REDACTS("aaaaaaab", REDACTED "b", "aaaa");
        REDACTS("abcdefgh", REDACTED "gh", "abcd", "cdef");
        REDACTS("abcdef abcdefgh", REDACTED " " REDACTED, "abcdef", "abcdefgh");
        REDACTS("abcdefgX", REDACTED "efgX", "abcd", "abcdefgh");
}

static void test_lines(void **state)
{
        static const char key[] = "-----BEGIN KEY-----\nline-one-of-it\nend\n";

        (void)state;
        REDACTS("-----BEGIN KEY-----\nline-one-of-it\nend\n", REDACTED "\n", key);
        REDACTS("x line-one-of-it\r\nend\r\n", "x " REDACTED "\r\nend\r\n", key);
}

/* The file of a login, which a program prints in JSON of its own. */
static void test_texts(void **state)
{
        static const char login[] =
                " {\"oauth\":{\"accessToken\":\"sk-0123456789abcdef\",\"scopes\":[\"user:inference\"],"
                "\"uri\":\"https://login.example/token\"},\n\"a-name-that-is-long\" : "
                "\"-----BEGIN KEY-----\\nMIIEvQIBADANBgkq\\nend\\\"\"}";

        (void)state;
        REDACTS("{\\\"accessToken\\\":\\\"sk-0123456789abcdef\\\"}",
                "{\\\"accessToken\\\":\\\"" REDACTED "\\\"}", login);
        REDACTS("KEY-----\\\\nMIIEvQIBADANBgkq\\\\nend", "KEY-----\\\\n" REDACTED "\\\\nend",
                login);
        REDACTS("accessToken user:inference https://login.example/token a-name-that-is-long",
                "accessToken user:inference https://login.example/token a-name-that-is-long",
                login);
        REDACTS("text-without-an-end", REDACTED, "{\"text-without-an-end");
        REDACTS("no-json-at-all-here", "no-json-at-all-here", "x\"no-json-at-all-here\"");
        REDACTS("escaped at its end \\", REDACTED " \\", "[\"escaped at its end\\");
}

static void test_no_secrets(void **state)
{
        bool too_much;
        CLEAN(buf_done) struct buf out = BUF_INIT, big = BUF_INIT;

        (void)state;
        assert_null(make((const char *const[]){ "abc", "" }, 2));
        assert_null(make(NULL, 0));
        redact_text(NULL, "abc", 3, &out);
        assert_string_equal(buf_str(&out), "abc");
        while (!buf_failed(&big) && big.len <= REDACT_BYTES_MAX)
                buf_puts(&big, "0123456789abcdef");
        assert_null(redactor_new((const char *const[]){ buf_str(&big) }, 1, &too_much));
        assert_true(too_much);
}

/* What begins no value passes at once, so that live output stays live. */
static void test_passes_at_once(void **state)
{
        struct redactor *r = make((const char *const[]){ "hunter22" }, 1);
        CLEAN(buf_done) struct buf out = BUF_INIT;
        struct redact_stream s;

        (void)state;
        redact_begin(&s, r);
        redact_feed(&s, "password? ", 10, &out);
        assert_string_equal(buf_str(&out), "password? ");
        redact_feed(&s, "hun", 3, &out);
        assert_string_equal(buf_str(&out), "password? ");
        redact_feed(&s, "g", 1, &out);
        assert_string_equal(buf_str(&out), "password? hung");
        redact_done(&s);
        redactor_free(r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_values),         cmocka_unit_test(test_lines),
                cmocka_unit_test(test_texts),          cmocka_unit_test(test_no_secrets),
                cmocka_unit_test(test_passes_at_once),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
