/* The client of the Agent Client Protocol at its limits; test/it/test_acp.py has its conversations.
 */
#include "test.h"

#include "codec/acp.h"
#include "codec/json.h"

#define EVENT_MAX ((size_t)256 << 10)

static size_t written;

static int read_text(void *ctx UNUSED, const char *path UNUSED, struct buf *ret,
                     struct err *err UNUSED)
{
        buf_puts(ret, "one\ntwo\nthree");
        return 0;
}

static int write_text(void *ctx UNUSED, const char *path UNUSED, const char *text UNUSED,
                      size_t len, struct err *err UNUSED)
{
        written = len;
        return 0;
}

static const struct acp_files files = { .read = read_text, .write = write_text };

static void feed(struct acp *a, const char *text)
{
        acp_feed(a, text, strlen(text));
        acp_feed(a, "\n", 1);
}

/* A session in which the prompt is on its way, with nothing left to send or print. */
static struct acp *prompted(const struct acp_config *config)
{
        struct acp *a = acp_new(config, &files);

        feed(a, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":1}}");
        feed(a, "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"sessionId\":\"s\"}}");
        assert_true(acp_has_prompted(a));
        buf_clear(acp_to_agent(a));
        buf_clear(acp_events(a));
        return a;
}

static const struct acp_config plain = { .cwd = "/", .prompt = "x", .prompt_len = 1 };

/* Room for one byte more is there for the \r of a line end. */
static void test_longest_line(void **state)
{
        CLEAN(cleanup_free) char *line = xcalloc(1, ACP_LINE_MAX + 3);

        (void)state;
        memset(line, 'x', ACP_LINE_MAX + 2);
        for (size_t more = 0; more < 2; more++) {
                struct acp *a = prompted(&plain);

                acp_feed(a, line, ACP_LINE_MAX + 2 * more);
                acp_feed(a, "\n", 1);
                assert_int_equal(acp_is_over(a), more);
                acp_free(a);
        }
}

static void test_largest_file(void **state)
{
        (void)state;
        for (size_t more = 0; more < 2; more++) {
                CLEAN(buf_done) struct buf b = BUF_INIT;
                struct acp *a = prompted(&plain);
                CLEAN(cleanup_free) char *text = xcalloc(1, ACP_FILE_MAX + more + 1);

                memset(text, 'x', ACP_FILE_MAX + more);
                buf_puts(
                        &b,
                        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"fs/write_text_file\",\"params\":"
                        "{\"path\":\"/f\",\"content\":\"");
                buf_puts(&b, text);
                buf_puts(&b, "\"}}\n");
                written = 0;
                acp_feed(a, b.data, b.len);
                assert_int_equal(written, more ? 0 : ACP_FILE_MAX);
                assert_int_equal(strstr(buf_str(acp_to_agent(a)), "\"error\"") != NULL, more);
                acp_free(a);
        }
}

static void test_lines_of_a_file(void **state)
{
        static const struct {
                const char *which, *expected;
        } cases[] = {
                { "", "one\\ntwo\\nthree" },
                { ",\"line\":2", "two\\nthree" },
                { ",\"line\":3,\"limit\":9", "three" },
                { ",\"limit\":1", "one\\n" },
                { ",\"line\":9", "" },
                { ",\"limit\":0", "" },
                { ",\"line\":-5,\"limit\":-1", "" },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct acp *a = prompted(&plain);
                CLEAN(cleanup_free)
                char *line = xasprintf(
                        "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"fs/read_text_file\","
                        "\"params\":{\"path\":\"/f\"%s}}",
                        cases[i].which);
                CLEAN(cleanup_free)
                char *expected = xasprintf(
                        "{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"result\":{\"content\":\"%s\"}}\n",
                        cases[i].expected);

                feed(a, line);
                assert_string_equal(buf_str(acp_to_agent(a)), expected);
                acp_free(a);
        }
}

/* An agent that asks and does not read the answers is not read from for ever. */
static void test_full(void **state)
{
        struct acp *a = prompted(&plain);
        size_t n = 0;

        (void)state;
        while (!acp_is_full(a) && n++ < 1 << 20)
                feed(a, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nonsense\"}");
        assert_true(acp_is_full(a));
        assert_true(acp_to_agent(a)->len < 2 << 20);
        buf_clear(acp_to_agent(a));
        assert_false(acp_is_full(a));
        acp_free(a);
}

/* A text is cut between characters, and an event that is still too long loses what the tool said.
 */
static void test_cut(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        CLEAN(json_decrefp) json_t *event = NULL;
        struct acp *a = prompted(&plain);

        (void)state;
        buf_puts(
                &b,
                "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"update\":{"
                "\"sessionUpdate\":\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"x");
        for (size_t i = 0; i < 20000; i++)
                buf_puts(&b, "ä");
        buf_puts(&b, "\"}}}}\n");
        acp_feed(a, b.data, b.len);
        assert_int_equal(json_parse(acp_events(a)->data, acp_events(a)->len, &event, NULL), 0);
        assert_int_equal(json_string_length(json_object_get(event, "text")), 32767 + strlen("…"));
        acp_free(a);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_longest_line),
                cmocka_unit_test(test_largest_file),
                cmocka_unit_test(test_lines_of_a_file),
                cmocka_unit_test(test_full),
                cmocka_unit_test(test_cut),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
