/* What an agent says over the Agent Client Protocol. The first byte chooses how the stream is cut,
 * the second how the client was set up: the pieces must not change what it answers and reports,
 * each answer is a message, and each event an object of bounded length. */
#include "codec/acp.h"
#include "codec/jsonrpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define EVENT_MAX ((size_t)256 << 10)

static int read_text(void *ctx UNUSED, const char *path, struct buf *ret, struct err *err)
{
        if (*path != '/')
                return err_set(err, ERR_IO, "%s: not there", path);
        buf_puts(ret, "one\ntwo\n\nfour");
        return 0;
}

static int write_text(void *ctx UNUSED, const char *path UNUSED, const char *text, size_t len,
                      struct err *err UNUSED)
{
        if (len > ACP_FILE_MAX || text[len] != '\0')
                abort();
        return 0;
}

static void check_lines(const struct buf *b, bool are_messages)
{
        const char *at = buf_str(b), *end = at + b->len;

        while (at < end) {
                const char *nl = memchr(at, '\n', (size_t)(end - at));
                CLEAN(json_decrefp) json_t *doc = NULL;
                struct jsonrpc m = { 0 };

                if (!nl)
                        abort();
                if (are_messages) {
                        if (jsonrpc_parse(at, (size_t)(nl - at), &m, NULL) < 0)
                                abort();
                        jsonrpc_done(&m);
                } else if ((size_t)(nl - at) > EVENT_MAX ||
                           json_parse_lenient(at, (size_t)(nl - at), &doc, NULL) < 0 ||
                           !json_get_string(doc, "type")) {
                        abort();
                }
                at = nl + 1;
        }
}

static void run(const char *data, size_t size, uint8_t setup, size_t piece, struct buf *sent,
                struct buf *events)
{
        static const struct acp_files files = { .read = read_text, .write = write_text };
        static const char *const auth[] = { "key", NULL };
        const struct acp_config config = {
                .cwd = "/work",
                .session = setup & 1 ? "s" : NULL,
                .model = setup & 2 ? "m" : NULL,
                .mode = setup & 4 ? "ask" : NULL,
                .auth = setup & 8 ? auth : NULL,
                .permission = (enum acp_permission)(setup >> 4 & 3),
                .prompt = "do it",
                .prompt_len = 5,
        };
        struct acp *a = acp_new(&config, &files);

        while (size > 0) {
                const char *nl = memchr(data, '\n', size);
                size_t line = nl ? (size_t)(nl - data) + 1 : size;

                for (size_t i = 0; i < line; i += piece)
                        acp_feed(a, data + i, MIN(piece, line - i));
                acp_settled(a);
                data += line;
                size -= line;
        }
        if (setup & 64)
                acp_cancel(a);
        acp_end(a, "exit status 0");
        if (!acp_is_over(a))
                abort();
        check_lines(acp_to_agent(a), true);
        check_lines(acp_events(a), false);
        buf_append(sent, acp_to_agent(a)->data, acp_to_agent(a)->len);
        buf_append(events, acp_events(a)->data, acp_events(a)->len);
        acp_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(buf_done) struct buf sent = BUF_INIT, events = BUF_INIT;
        CLEAN(buf_done) struct buf sent2 = BUF_INIT, events2 = BUF_INIT;

        if (size < 3)
                return 0;
        run((const char *)data + 2, size - 2, data[1], size, &sent, &events);
        run((const char *)data + 2, size - 2, data[1], (size_t)data[0] % 32 + 1, &sent2, &events2);
        if (sent.len != sent2.len || memcmp(buf_str(&sent), buf_str(&sent2), sent.len) != 0 ||
            events.len != events2.len ||
            memcmp(buf_str(&events), buf_str(&events2), events.len) != 0)
                abort();
        return 0;
}
