/* The first byte chooses how the stream is cut: the pieces must not change the messages. Whatever
 * is put into a frame and masked comes out of it. */
#include "base/utf8.h"
#include "codec/websocket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_MESSAGE 300

static int note(void *ctx, enum websocket_kind kind, const char *data, size_t len)
{
        if (len > (kind >= WEBSOCKET_CLOSE ? WEBSOCKET_CONTROL_MAX : MAX_MESSAGE) ||
            data[len] != '\0' || (kind == WEBSOCKET_TEXT && !utf8_is_valid(data, len)))
                abort();
        buf_appendf(ctx, "<%d|", kind);
        buf_append(ctx, data, len);
        buf_putc(ctx, '>');
        return 0;
}

static int decode(const char *data, size_t size, size_t piece, struct buf *out)
{
        struct websocket_decoder d;
        int r = 0;

        websocket_decoder_init(&d, MAX_MESSAGE, note, out);
        for (size_t i = 0; i < size && r == 0; i += piece)
                r = websocket_feed(&d, data + i, MIN(piece, size - i));
        websocket_decoder_done(&d);
        return r;
}

static void compare_pieces(const char *data, size_t size, size_t piece)
{
        CLEAN(buf_done) struct buf whole = BUF_INIT, pieces = BUF_INIT;
        int r = decode(data, size, MAX(size, (size_t)1), &whole);

        if (decode(data, size, piece, &pieces) != r || whole.len != pieces.len ||
            memcmp(buf_str(&whole), buf_str(&pieces), whole.len) != 0)
                abort();
}

static void round_trip(const char *data, size_t size, size_t piece)
{
        CLEAN(buf_done) struct buf frame = BUF_INIT, masked = BUF_INIT, got = BUF_INIT;
        size_t head;

        size = MIN(size, (size_t)MAX_MESSAGE);
        websocket_put(&frame, WEBSOCKET_BINARY, data, size);
        head = frame.len - size;
        frame.data[1] = (char)(frame.data[1] | 0x80);
        buf_append(&masked, frame.data, head);
        buf_append(&masked, "\0\0\0\0", 4);
        buf_append(&masked, frame.data + head, size);
        if (decode(masked.data, masked.len, piece, &got) != 0 || got.len != size + 4 ||
            (size && memcmp(got.data + 3, data, size) != 0))
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        size_t piece;

        if (size == 0)
                return 0;
        piece = (size_t)data[0] % 16 + 1;
        compare_pieces((const char *)data + 1, size - 1, piece);
        round_trip((const char *)data + 1, size - 1, piece);
        return 0;
}
