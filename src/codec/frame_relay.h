/* The relay's own frames (docs/box-protocol.md, section 11): its greeting, and questions about
 * boxes with their answers. The streams themselves are the tunnel's frames, with OPEN naming a box.
 *
 * Any thread. */
#pragma once

#include "codec/frame.h"

#define RELAY_VERSION   1
#define RELAY_MAX_EXECS 2048 /* executions that one question names */
#define RELAY_LIST_MAX  256  /* boxes that one answer names */
#define RELAY_GREETING  (FRAME_HEADER + 6)

enum relay_want { RELAY_ENSURE = 1, RELAY_ALIVE = 2, RELAY_BURY = 3, RELAY_LIST = 4 };
enum { RELAY_OK = 0, RELAY_FAILED = 1, RELAY_BUSY = 2 };

struct relay_frame {
        uint8_t type;
        uint32_t channel;        /* of the question; not 0 */
        uint8_t want;            /* ASK: enum relay_want */
        uint8_t box[FRAME_UUID]; /* ASK; to list: those after it */
        const uint8_t *execs;    /* ASK: n_execs uuids, one behind the other; to ensure: the node */
        uint32_t n_execs;
        uint16_t code; /* ANSWER: RELAY_* */
        uint8_t value; /* ANSWER: to RELAY_ALIVE, 0 or 1; to RELAY_LIST 1 for "and more" */
        struct frame_bytes
                text; /* ANSWER; to RELAY_LIST lines with a box's id and its node's or - */
};

/* Append the greeting: the first bytes of a relay, always the same RELAY_GREETING ones. */
void relay_greet(struct buf *b);
/* Where the first byte after the greeting is, or 0 when it is not there (yet). */
size_t relay_find_greeting(const char *bytes, size_t len);

static inline bool frame_is_relay(uint8_t type)
{
        return type == FRAME_ASK || type == FRAME_ANSWER;
}

/* Bytes are borrowed from the payload. ERR_INVALID for what is neither. */
int relay_frame_read(const struct frame_header *h, struct frame_in *f, struct relay_frame *ret,
                     struct err *err);
void relay_frame_write(struct buf *b, const struct relay_frame *r);
