/* Changes as bytes: a header, records with their length in front, an end with their count. They
 * come in the order of their paths, and the decoder takes no other.
 *
 * Decoding in pieces of any size, as codec/tree.h does it. The content of a record is borrowed
 * until the next record. One thread. */
#pragma once

#include "workspace/change.h"

void change_encode_begin(struct buf *out);
void change_encode(struct buf *out, const struct change *c);
void change_encode_end(struct buf *out, uint64_t count);

struct change_decoder {
        struct buf in;
        size_t used;
        bool begun, done;
        uint64_t count;
        char path[TREE_MAX_PATH + 1];
        char target[TREE_MAX_TARGET + 1], was_target[TREE_MAX_TARGET + 1];
};

void change_decode_init(struct change_decoder *d);
void change_decode_done(struct change_decoder *d);
void change_decode_feed(struct change_decoder *d, const void *bytes, size_t len);
/* 1 change, 0 more bytes are needed (or the end: `done`), ERR_CORRUPT. */
int change_decode_next(struct change_decoder *d, struct change *ret, struct err *err);
