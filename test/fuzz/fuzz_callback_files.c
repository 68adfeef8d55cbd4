/* What commands in a place print, and the requests in their files: an id is a UUID; a request is
 * one head with our token and the body it announces, and nothing behind that. */
#include <sodium.h>

#include "codec/http1.h"
#include "core/callbacks/callback_files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TOKEN "the-token-of-the-channel"

static void check_request(const char *text, size_t len)
{
        CLEAN(buf_done) struct buf bytes = BUF_INIT;
        struct http1_request req;
        struct http1_refusal why;
        const struct http1_header *token;
        enum http1_result r;
        size_t seen = 0;

        if (queue_request_bytes(text, len, TOKEN, &bytes, NULL) < 0)
                return;
        r = http1_request_parse(bytes.data, bytes.len, (size_t)64 << 10, &seen, &req, &why);
        if (r == HTTP1_REFUSED)
                return; /* the server says so */
        if (r != HTTP1_DONE)
                abort();
        token = http1_find(&req.head, "authorization");
        if (!token || !http1_slice_is(token->value, "Bearer " TOKEN))
                abort();
        if (bytes.len - req.head.len !=
            (req.head.framing == HTTP1_BODY_LENGTH ? req.head.content_length : 0))
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(cleanup_free) char *text = xstrndup((const char *)data, size);
        CLEAN(buf_done) struct buf answer = BUF_INIT;
        struct queue_turn turn = { 0 };
        struct arena arena;

        if (sodium_init() < 0)
                abort();
        arena_init(&arena);
        queue_read_printed(&arena, text, &turn);
        if (turn.ret_id && !uuid_is_valid(turn.ret_id))
                abort();
        if (turn.ret_text)
                check_request(turn.ret_text, turn.ret_len);
        check_request((const char *)data, size);
        (void)queue_answer_text("id", (const char *)data, size, &answer, NULL);
        arena_done(&arena);
        return 0;
}
