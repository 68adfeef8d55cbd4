/* berth-box --relay: carries streams between its standard streams and the boxes of this host
 * (docs/box-protocol.md, section 11). One thread, one epoll loop; credit bounds what it keeps, and
 * it saves nothing, because boxes outlive it.
 *
 *   relay.c      the loop, the carrier, the streams
 *   relay_ask.c  questions: each that takes time is a process of its own */
#pragma once

#include <sys/types.h>

#include "codec/credit.h"
#include "codec/frame_relay.h"

#define RELAY_MAX_STREAMS  1024
#define RELAY_MAX_CHILDREN 64

struct relay_stream {
        bool used;
        int fd;
        uint32_t events; /* what epoll was told */
        uint32_t channel;
        struct credit credit;
        struct buf in; /* for the box */
};

/* A question that is being worked at. */
struct relay_child {
        bool used;
        uint32_t channel;
        pid_t pid;
        int fd; /* its word: nothing, or why not */
        struct buf word;
};

struct relay {
        char base[4096];
        int epoll_fd;
        struct buf in, out;
        size_t out_sent;
        bool out_watched;
        uint32_t last_channel;
        int64_t heard_ms;
        struct relay_stream streams[RELAY_MAX_STREAMS];
        struct relay_child children[RELAY_MAX_CHILDREN];
};

enum relay_event { RELAY_EV_IN, RELAY_EV_OUT, RELAY_EV_STREAM, RELAY_EV_CHILD };

int relay_watch(struct relay *r, int op, int fd, uint32_t events, enum relay_event kind, int index);
/* DIR of a box. */
void relay_box_dir(const struct relay *r, const uint8_t box[FRAME_UUID], char *ret, size_t size);
void relay_answer(struct relay *r, uint32_t channel, uint16_t code, uint8_t value,
                  const char *text);

/* relay_ask.c */
void relay_ask(struct relay *r, const struct relay_frame *f);
void relay_child_event(struct relay *r, struct relay_child *k);

/* BASE and BASE/boxes. */
int relay_make_dirs(const char *base);
