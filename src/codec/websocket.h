/* WebSockets (RFC 6455), the server's side: the handshake's answer, frames out, and messages in.
 *
 * Bytes are fed as they come, in pieces of any size. Everything that the standard forbids a client
 * ends the connection: frames that are not masked, reserved bits and kinds, control frames that are
 * long or in parts, parts without a beginning, texts that are no UTF-8, messages over the limit.
 * The decoder holds at most one message of max_message bytes and one control frame.
 *
 * One thread at a time. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define WEBSOCKET_ACCEPT_LEN  28
#define WEBSOCKET_CONTROL_MAX 125

enum websocket_kind {
        WEBSOCKET_PART = 0, /* of a message; never told */
        WEBSOCKET_TEXT = 1,
        WEBSOCKET_BINARY = 2,
        WEBSOCKET_CLOSE = 8,
        WEBSOCKET_PING = 9,
        WEBSOCKET_PONG = 10,
};

/* Why a connection ends. */
enum websocket_status {
        WEBSOCKET_NORMAL = 1000,
        WEBSOCKET_GOING_AWAY = 1001, /* we stop, or the page was left */
        WEBSOCKET_PROTOCOL = 1002,
        WEBSOCKET_NOT_TEXT = 1007,
        WEBSOCKET_POLICY = 1008,
        WEBSOCKET_TOO_BIG = 1009,
        WEBSOCKET_FAILED = 1011,
};

/* What answers the client's Sec-WebSocket-Key. False: that is no key. */
bool websocket_accept(const char *key, char ret[WEBSOCKET_ACCEPT_LEN + 1]);

/* Append a whole message, or a control frame of at most WEBSOCKET_CONTROL_MAX bytes. */
void websocket_put(struct buf *b, enum websocket_kind kind, const void *data, size_t len);
/* text may be NULL, and is cut where it is too long. */
void websocket_put_close(struct buf *b, enum websocket_status status, const char *text);

struct websocket_decoder {
        /* A text, binary, ping, pong or close; data is borrowed and NUL-terminated. After a close
         * nothing more is told. Less than 0 stops the decoder. */
        int (*on_message)(void *ctx, enum websocket_kind kind, const char *data, size_t len);
        void *ctx;
        size_t max_message;

        uint8_t head[14]; /* of the frame, as far as it is there */
        size_t head_len;
        uint64_t left; /* bytes of the frame that are to come, once its head is complete */
        uint8_t mask_at;
        bool in_frame;
        enum websocket_kind message_kind; /* of the parts so far; WEBSOCKET_PART: none */
        struct buf message, control;
        bool closed; /* by the client */
        int failed;  /* websocket_status of what it did, or less than 0 by on_message */
};

void websocket_decoder_init(struct websocket_decoder *d, size_t max_message,
                            int (*on_message)(void *ctx, enum websocket_kind kind, const char *data,
                                              size_t len),
                            void *ctx);
void websocket_decoder_done(struct websocket_decoder *d);

/* 0, or what ended the connection: a websocket_status to close it with, or what on_message
 * returned. From then on always that. */
int websocket_feed(struct websocket_decoder *d, const char *bytes, size_t len);
