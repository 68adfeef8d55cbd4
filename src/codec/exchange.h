/* One stream to a box carried by calls (docs/box-protocol.md, section 12): each call brings bytes
 * and takes bytes, and says by offsets which, so that a call or an answer that is lost, doubled or
 * late changes nothing. Both travel as base64 text, the answer behind a word by which it is found
 * in whatever else a shell prints.
 *
 * Any thread. */
#pragma once

#include "codec/frame.h"

#define EXCHANGE_IN_MAX  ((size_t)88 << 10)  /* bytes of one call */
#define EXCHANGE_OUT_MAX ((size_t)192 << 10) /* bytes of one answer */
#define EXCHANGE_MAX     (EXCHANGE_OUT_MAX + 64)
#define EXCHANGE_WORD    "berth-exchange:"
#define ASK_WORD         "berth-answer:" /* before the answer of `berth-box --ask` */

enum exchange_status {
        EXCHANGE_OPEN = 0,
        EXCHANGE_ENDED = 1,  /* the box closed the stream; the bytes of this answer are the last */
        EXCHANGE_NO_BOX = 2, /* no process listens */
        EXCHANGE_STALE = 3,  /* a later session has begun */
};

struct exchange_call {
        uint64_t session; /* higher than all before */
        uint64_t offset;  /* of the first byte of data */
        uint64_t taken;   /* bytes of the other direction that we have */
        uint32_t wait_ms; /* for bytes, when there are none */
        struct frame_bytes data;
};

struct exchange_answer {
        uint8_t status;
        uint64_t taken;  /* bytes that were taken in all */
        uint64_t offset; /* of the first byte of data */
        struct frame_bytes data;
};

void exchange_call_write(struct buf *b, const struct exchange_call *c);
void exchange_answer_write(struct buf *b, const struct exchange_answer *a);
/* Data is borrowed. ERR_INVALID for what does not fit. */
int exchange_call_read(const void *bytes, size_t len, struct exchange_call *ret, struct err *err);
int exchange_answer_read(const void *bytes, size_t len, struct exchange_answer *ret,
                         struct err *err);

/* As base64 text at the end of a buffer. */
void exchange_to_text(struct buf *text, const struct buf *bytes);
/* The bytes of a text without anything around it; *ret is appended to. */
int exchange_from_text(const char *text, size_t len, struct buf *ret, struct err *err);
/* The bytes behind EXCHANGE_WORD up to the end of the line, somewhere in what was printed. */
int exchange_find(const char *printed, size_t len, struct buf *ret, struct err *err);
