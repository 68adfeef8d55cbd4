/* A worker's output. The first byte chooses how the stream is cut: the pieces must not change the
 * messages. What is read once is written and read again as the same. */
#include "codec/jsonrpc.h"
#include "codec/ndjson.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_LINE 4096

static void check_message(struct buf *b, const struct jsonrpc *m)
{
        CLEAN(cleanup_free) char *text = json_to_text(m->doc);
        struct jsonrpc again;

        if ((m->kind == JSONRPC_RESPONSE && !m->id) ||
            (m->kind == JSONRPC_REQUEST && (!m->method || !m->id)) ||
            (m->kind == JSONRPC_NOTIFICATION && (!m->method || m->id)) || (m->error && m->result) ||
            jsonrpc_own_id(m) < 0)
                abort();
        if (m->error && (!jsonrpc_error_text(m) || jsonrpc_error_code(m) == INT64_MIN))
                abort();
        if (jsonrpc_parse(text, strlen(text), &again, NULL) < 0 || again.kind != m->kind ||
            !json_equal(again.doc, m->doc))
                abort();
        jsonrpc_done(&again);
        buf_appendf(b, "%d%s\n", (int)m->kind, text);
}

static int note(void *ctx, const char *line, size_t len)
{
        struct jsonrpc m;

        if (len > MAX_LINE || line[len] != '\0' || memchr(line, '\n', len))
                abort();
        if (jsonrpc_parse(line, len, &m, NULL) >= 0) {
                check_message(ctx, &m);
                jsonrpc_done(&m);
        }
        return 0;
}

static int split(const char *data, size_t size, size_t piece, struct buf *out)
{
        struct ndjson lines;
        int r = 0;

        ndjson_init(&lines, MAX_LINE, note, out);
        for (size_t i = 0; r >= 0 && i < size; i += piece)
                r = ndjson_feed(&lines, data + i, MIN(piece, size - i), NULL);
        ndjson_done(&lines);
        return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(buf_done) struct buf whole = BUF_INIT;
        CLEAN(buf_done) struct buf pieces = BUF_INIT;
        int r;

        if (size < 2)
                return 0;
        r = split((const char *)data + 1, size - 1, size, &whole);
        if (split((const char *)data + 1, size - 1, (size_t)data[0] % 32 + 1, &pieces) != r ||
            whole.len != pieces.len || memcmp(buf_str(&whole), buf_str(&pieces), whole.len) != 0)
                abort();
        return 0;
}
