/* The WebSocket handshake, frames out, and which frames from a client are accepted. */
#include "codec/websocket.h"

#include <sodium.h>
#include <stdio.h>

#include "base/utf8.h"
#include "codec/sha1.h"

#define FINAL    0x80
#define RESERVED 0x70
#define MASKED   0x80

/* The handshake */

bool websocket_accept(const char *key, char ret[WEBSOCKET_ACCEPT_LEN + 1])
{
        static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
        char joined[24 + sizeof(guid)];
        unsigned char nonce[16];
        uint8_t digest[SHA1_BYTES];
        size_t n;

        if (strlen(key) != 24 ||
            sodium_base642bin(nonce, sizeof(nonce), key, 24, NULL, &n, NULL,
                              sodium_base64_VARIANT_ORIGINAL) < 0 ||
            n != sizeof(nonce))
                return false;
        (void)snprintf(joined, sizeof(joined), "%s%s", key, guid);
        sha1(joined, strlen(joined), digest);
        sodium_bin2base64(ret, WEBSOCKET_ACCEPT_LEN + 1, digest, sizeof(digest),
                          sodium_base64_VARIANT_ORIGINAL);
        return true;
}

/* Out */

void websocket_put(struct buf *b, enum websocket_kind kind, const void *data, size_t len)
{
        uint8_t head[10] = { (uint8_t)(FINAL | kind) };
        size_t n = 2;

        if (len < 126) {
                head[1] = (uint8_t)len;
        } else {
                size_t bytes = len <= UINT16_MAX ? 2 : 8;

                head[1] = bytes == 2 ? 126 : 127;
                for (size_t i = 0; i < bytes; i++)
                        head[2 + i] = (uint8_t)((uint64_t)len >> (8 * (bytes - 1 - i)));
                n += bytes;
        }
        buf_append(b, head, n);
        buf_append(b, data, len);
}

void websocket_put_close(struct buf *b, enum websocket_status status, const char *text)
{
        const char number[] = { (char)(status >> 8), (char)(status & 0xff) };
        CLEAN(buf_done) struct buf body = BUF_INIT;
        size_t len = text ? strnlen(text, WEBSOCKET_CONTROL_MAX - sizeof(number)) : 0;

        while (len > 0 && !utf8_is_valid(text, len))
                len--;
        buf_append(&body, number, sizeof(number));
        buf_append(&body, text, len);
        websocket_put(b, WEBSOCKET_CLOSE, body.data, body.len);
}

/* In */

void websocket_decoder_init(struct websocket_decoder *d, size_t max_message,
                            int (*on_message)(void *ctx, enum websocket_kind kind, const char *data,
                                              size_t len),
                            void *ctx)
{
        *d = (struct websocket_decoder){ .on_message = on_message,
                                         .ctx = ctx,
                                         .max_message = max_message };
        buf_init(&d->message, max_message);
        buf_init(&d->control, WEBSOCKET_CONTROL_MAX);
}

void websocket_decoder_done(struct websocket_decoder *d)
{
        buf_done(&d->message);
        buf_done(&d->control);
}

static bool is_control(unsigned kind)
{
        return kind >= WEBSOCKET_CLOSE;
}

/* How long the head is, as far as its first two bytes say. */
static size_t head_size(const struct websocket_decoder *d)
{
        uint8_t len = d->head[1] & 0x7f;

        return 2 + (len == 126 ? 2 : len == 127 ? 8 : 0) + 4;
}

static uint64_t frame_len(const struct websocket_decoder *d)
{
        size_t bytes = head_size(d) - 6;
        uint64_t len = 0;

        if (bytes == 0)
                return d->head[1] & 0x7f;
        for (size_t i = 0; i < bytes; i++)
                len = len << 8 | d->head[2 + i];
        return len;
}

/* Rules that the first two bytes can break. */
static int check_start(const struct websocket_decoder *d)
{
        unsigned kind = d->head[0] & 0x0f, len = d->head[1] & 0x7f;

        if ((d->head[0] & RESERVED) || !(d->head[1] & MASKED))
                return WEBSOCKET_PROTOCOL;
        if (is_control(kind))
                return kind <= WEBSOCKET_PONG && (d->head[0] & FINAL) &&
                                       len <= WEBSOCKET_CONTROL_MAX
                               ? 0
                               : WEBSOCKET_PROTOCOL;
        if (kind > WEBSOCKET_BINARY)
                return WEBSOCKET_PROTOCOL;
        /* A part follows a beginning, and a beginning follows an end. */
        return (kind == WEBSOCKET_PART) == (d->message_kind != WEBSOCKET_PART) ? 0
                                                                               : WEBSOCKET_PROTOCOL;
}

static int begin_frame(struct websocket_decoder *d)
{
        unsigned kind = d->head[0] & 0x0f;
        uint64_t len = frame_len(d);
        size_t bytes = head_size(d) - 6;

        if ((bytes == 2 && len < 126) || (bytes == 8 && (len <= UINT16_MAX || len >> 63)))
                return WEBSOCKET_PROTOCOL; /* longer than need be */
        if (is_control(kind)) {
                buf_clear(&d->control);
        } else {
                if (kind != WEBSOCKET_PART) {
                        buf_clear(&d->message);
                        d->message_kind = (enum websocket_kind)kind;
                }
                if (len > d->max_message - d->message.len)
                        return WEBSOCKET_TOO_BIG;
        }
        d->left = len;
        d->mask_at = 0;
        d->in_frame = true;
        return 0;
}

/* A close says nothing, or why: a number that may be sent, and a text. */
static int check_close(const struct buf *b)
{
        if (b->len == 0)
                return 0;
        if (b->len == 1)
                return WEBSOCKET_PROTOCOL;
        unsigned status = (unsigned)(unsigned char)b->data[0] << 8 | (unsigned char)b->data[1];
        if (status < 1000 || status >= 5000 || (status >= 1004 && status <= 1006) ||
            (status >= 1015 && status < 3000))
                return WEBSOCKET_PROTOCOL;
        return utf8_is_valid(b->data + 2, b->len - 2) ? 0 : WEBSOCKET_NOT_TEXT;
}

static int end_frame(struct websocket_decoder *d)
{
        enum websocket_kind kind = (enum websocket_kind)(d->head[0] & 0x0f);
        const struct buf *b = is_control(kind) ? &d->control : &d->message;
        int r = 0;

        d->in_frame = false;
        d->head_len = 0;
        if (kind == WEBSOCKET_CLOSE) {
                r = check_close(b);
                d->closed = true;
        } else if (!is_control(kind)) {
                if (!(d->head[0] & FINAL))
                        return 0;
                kind = d->message_kind;
                d->message_kind = WEBSOCKET_PART;
                if (kind == WEBSOCKET_TEXT && !utf8_is_valid(buf_str(b), b->len))
                        r = WEBSOCKET_NOT_TEXT;
        }
        return r ? r : d->on_message(d->ctx, kind, buf_str(b), b->len);
}

/* Returns how many bytes were used for the head; *ret says what is wrong with it. */
static size_t take_head(struct websocket_decoder *d, const char *bytes, size_t len, int *ret)
{
        size_t used = 0;

        while (used < len && (d->head_len < 2 || d->head_len < head_size(d))) {
                d->head[d->head_len++] = (uint8_t)bytes[used++];
                if (d->head_len == 2)
                        *ret = check_start(d);
                if (*ret)
                        return used;
        }
        if (d->head_len >= 2 && d->head_len == head_size(d))
                *ret = begin_frame(d);
        return used;
}

static size_t take_payload(struct websocket_decoder *d, const char *bytes, size_t len, int *ret)
{
        struct buf *b = is_control(d->head[0] & 0x0f) ? &d->control : &d->message;
        const uint8_t *mask = d->head + head_size(d) - 4;
        size_t n = (size_t)MIN((uint64_t)len, d->left);
        char *room = buf_reserve(b, n);

        if (!room) {
                *ret = WEBSOCKET_TOO_BIG;
                return 0;
        }
        for (size_t i = 0; i < n; i++)
                room[i] = (char)(bytes[i] ^ mask[d->mask_at++ & 3]);
        buf_grew(b, n);
        d->left -= n;
        return n;
}

int websocket_feed(struct websocket_decoder *d, const char *bytes, size_t len)
{
        while (!d->failed && !d->closed) {
                size_t n = 0;

                if (!d->in_frame) {
                        if (len == 0)
                                break;
                        n = take_head(d, bytes, len, &d->failed);
                } else if (d->left > 0) {
                        if (len == 0)
                                break;
                        n = take_payload(d, bytes, len, &d->failed);
                } else {
                        d->failed = end_frame(d);
                }
                bytes += n;
                len -= n;
        }
        return d->failed;
}
