/* Frames of the box protocol (docs/box-protocol.md): bytes to values and back, no I/O, no
 * allocation but in the caller's buf. Every getter is bounded: past the end, or with a value that
 * the protocol does not allow, it sets `bad` and returns zero; check frame_in_end() once.
 *
 * Any thread. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define FRAME_HEADER      12
#define FRAME_MAX_PAYLOAD 65536
#define FRAME_MAX_JOINED  ((size_t)4 << 20) /* a payload sent in parts */
#define FRAME_MAX_STR     131072            /* of one str */
#define FRAME_VERSION     1
#define FRAME_UUID        16
#define BOX_MAX_EXECS     1024 /* that a box knows at a time */

enum frame_type {
        FRAME_HELLO = 1,
        FRAME_WELCOME = 2,
        FRAME_PING = 3,
        FRAME_PONG = 4,
        FRAME_LIST = 5,
        FRAME_LISTED = 6,
        FRAME_STOP_BY = 7,
        FRAME_STOP = 8,
        FRAME_STOPPED = 9,
        FRAME_ERROR = 10,
        FRAME_CONT = 11,
        FRAME_START = 16,
        FRAME_STARTED = 17,
        FRAME_ATTACH = 18,
        FRAME_STATE = 19,
        FRAME_DATA = 20,
        FRAME_GREW = 21,
        FRAME_ACK = 22,
        FRAME_STDIN = 23,
        FRAME_TAKEN = 24,
        FRAME_SIGNAL = 25,
        FRAME_RESIZE = 26,
        FRAME_EXIT = 27,
        FRAME_FORGET = 28,
        FRAME_FAILED = 29,
        /* 48 to 63: the tunnel, codec/frame_tunnel.h */
        FRAME_LISTEN = 48,
        FRAME_LISTENING = 49,
        FRAME_UNLISTEN = 50,
        FRAME_OPEN = 51,
        FRAME_ACCEPT = 52,
        FRAME_BYTES = 53,
        FRAME_WINDOW = 54,
        FRAME_END = 55,
        FRAME_RESET = 56,
        FRAME_CONNECT = 57,
        FRAME_TUNNEL_LAST = 63,
        /* 64 to 79: the relay, codec/frame_relay.h */
        FRAME_RELAY = 64,
        FRAME_ASK = 65,
        FRAME_ANSWER = 66,
};

enum {
        BOX_FEATURE_SHARED = 1,
        BOX_FEATURE_TERMINAL = 2,
        BOX_FEATURE_FILES = 4,
        BOX_FEATURE_TUNNEL = 8,
        BOX_FEATURE_REDACT = 16,
        BOX_FEATURE_OUTPUT = 32,
        BOX_FEATURE_ACP = 64
};
enum { BOX_KILL_CGROUP = 1, BOX_KILL_PIDNS = 2, BOX_KILL_SUBREAPER = 3 };
enum {
        BOX_START_TERMINAL = 1,
        BOX_START_SHARED = 2,
        BOX_START_STDIN = 4,
        BOX_START_REDACT = 8,
        BOX_START_OUTPUT = 16,
        BOX_START_ACP = 32
};
enum { BOX_STDOUT = 1, BOX_STDERR = 2 };
enum { BOX_RUNNING = 1, BOX_ENDED = 2 };
enum {
        BOX_EXIT_TIMED_OUT = 1,
        BOX_EXIT_STOPPED = 2,
        BOX_EXIT_INCOMPLETE = 4,
        BOX_EXIT_OUTPUT = 8,
        BOX_EXIT_DISK_FULL = 16
};
enum { BOX_OUTPUT_WAIT = 1, BOX_OUTPUT_DROP = 2 };
enum {
        BOX_ERR_VERSION = 1,
        BOX_ERR_STALE = 2,
        BOX_ERR_FRAME = 3,
        BOX_ERR_UNKNOWN = 4,
        BOX_ERR_FULL = 5,
        BOX_ERR_NOT_FOUND = 6,
        BOX_ERR_REFUSED = 7,
        BOX_ERR_CWD = 8,
        BOX_ERR_RESOURCES = 9,
        BOX_ERR_SPOOL = 10,
        BOX_ERR_IN_USE = 11,
};

/* The words after "error " when a box cannot be made and the cause may pass. */
#define BOX_NOT_NOW "not now: "

struct frame_header {
        uint32_t len;
        uint8_t type;
        uint32_t channel;
};

/* A borrowed run of bytes; not NUL-terminated. */
struct frame_bytes {
        const char *p;
        size_t len;
};

/* Writing: frame_begin(), put the payload, frame_end() fills the length in. A payload that grew
 * past FRAME_MAX_PAYLOAD is cut into CONT frames by frame_end(). */
struct frame_out {
        struct buf *b;
        size_t start;
};

void frame_begin(struct frame_out *f, struct buf *b, enum frame_type type, uint32_t channel);
void frame_end(struct frame_out *f);
void frame_put_u8(struct frame_out *f, uint8_t v);
void frame_put_u16(struct frame_out *f, uint16_t v);
void frame_put_u32(struct frame_out *f, uint32_t v);
void frame_put_u64(struct frame_out *f, uint64_t v);
void frame_put_uuid(struct frame_out *f, const uint8_t uuid[FRAME_UUID]);
void frame_put_str(struct frame_out *f, const char *s, size_t len);
void frame_put_blob(struct frame_out *f, const void *p, size_t len);

/* A whole frame from its fields, in their order. */
struct frame_field {
        uint8_t size; /* of a number; 0: bytes */
        bool is_text; /* bytes behind their length */
        uint64_t number;
        const void *bytes;
};

#define F_U8(v)           ((struct frame_field){ 1, false, (uint8_t)(v), NULL })
#define F_U16(v)          ((struct frame_field){ 2, false, (uint16_t)(v), NULL })
#define F_U32(v)          ((struct frame_field){ 4, false, (uint32_t)(v), NULL })
#define F_U64(v)          ((struct frame_field){ 8, false, (v), NULL })
#define F_BYTES(at, len)  ((struct frame_field){ 0, false, (len), (at) })
#define F_TEXT(text, len) ((struct frame_field){ 0, true, (len), (text) })

#define FRAME_WRITE(b, type, channel, ...)                                                         \
        frame_write(b, type, channel, (const struct frame_field[]){ __VA_ARGS__ },                 \
                    sizeof((const struct frame_field[]){ __VA_ARGS__ }) /                          \
                            sizeof(struct frame_field))
void frame_write(struct buf *b, enum frame_type type, uint32_t channel,
                 const struct frame_field *fields, size_t n);

/* Reading a header: 1 when there is one, 0 for more bytes, ERR_INVALID for what can be no header.
 */
int frame_parse_header(const void *bytes, size_t len, struct frame_header *ret, struct err *err);

/* Reading a payload. */
struct frame_in {
        const uint8_t *p;
        size_t left;
        bool bad;
};

void frame_in_init(struct frame_in *f, const void *payload, size_t len);
uint8_t frame_get_u8(struct frame_in *f);
uint16_t frame_get_u16(struct frame_in *f);
uint32_t frame_get_u32(struct frame_in *f);
uint64_t frame_get_u64(struct frame_in *f);
void frame_get_uuid(struct frame_in *f, uint8_t ret[FRAME_UUID]);
struct frame_bytes frame_get_str(struct frame_in *f);  /* no NUL inside */
struct frame_bytes frame_get_blob(struct frame_in *f); /* the rest */
/* 0 when everything was there and nothing is left; ERR_INVALID otherwise. */
int frame_in_end(const struct frame_in *f, struct err *err);

/* 16 bytes and their 36-character text. */
void frame_uuid_text(const uint8_t uuid[FRAME_UUID], char ret[37]);
bool frame_uuid_bytes(const char *text, uint8_t ret[FRAME_UUID]);

/* Payloads that both sides use. */

/* How much output is kept, and what happens at the limit (docs/box-protocol.md, section 4). */
struct box_output {
        uint64_t limit;       /* of the execution; 0: none */
        uint64_t place_limit; /* of all executions of the place; 0: none */
        uint64_t place_taken; /* of that, by executions that the box may not know any more */
        uint32_t wait_ms;
        uint8_t full; /* BOX_OUTPUT_* */
};

void frame_put_output(struct frame_out *f, const struct box_output *o);
void frame_get_output(struct frame_in *f, struct box_output *ret);

struct box_exit {
        int32_t code;   /* -1: none */
        uint8_t signal; /* 0: none */
        uint8_t flags;  /* BOX_EXIT_* */
        uint64_t ended_ms;
        uint64_t stdout_len, stderr_len;
};

void frame_put_exit(struct frame_out *f, const struct box_exit *e);
void frame_get_exit(struct frame_in *f, struct box_exit *ret);

struct box_state {
        uint8_t id[FRAME_UUID];
        uint8_t state; /* BOX_RUNNING or BOX_ENDED */
        uint32_t pid;
        uint64_t started_ms;
        uint64_t stdin_len, stdout_len, stderr_len;
        struct box_exit exit; /* when ended */
};

void frame_put_state(struct frame_out *f, const struct box_state *s);
void frame_get_state(struct frame_in *f, struct box_state *ret);

/* The exit record on disk: CRC-32 and the payload of EXIT. */
#define BOX_EXIT_RECORD 34
void frame_exit_record(const struct box_exit *e, uint8_t ret[BOX_EXIT_RECORD]);
int frame_exit_record_parse(const void *bytes, size_t len, struct box_exit *ret, struct err *err);
