/* The plain bytes of a layer, however it is compressed, with their digest and their limits. What
 * the first bytes are decides which compression it is: registries carry layers whose media type is
 * wrong, and the digest of the plain content is compared in any case. One thread. */
#pragma once

#include <zlib.h>
#include <zstd.h>

#include "image/digest.h"
#include "image/layer.h"

#define LAYER_PIECE ((size_t)128 << 10)

enum layer_packing { LAYER_PLAIN, LAYER_GZIP, LAYER_ZSTD };

struct layer_stream {
        struct op *op;
        struct layer_source from;
        struct layer_limits limits; /* none is 0 */
        uint64_t taken;             /* of the packed bytes */
        uint64_t given;             /* of the plain bytes */
        struct digest digest;
        enum layer_packing packing;
        z_stream gzip;
        ZSTD_DStream *zstd;
        bool in_middle; /* the decoder needs more to be complete */
        size_t in_at, in_len;
        uint8_t in[LAYER_PIECE];
};

/* On the heap; limits that are 0 become the defaults. */
int layer_stream_open(struct op *op, const struct layer_source *from,
                      const struct layer_limits *limits, struct layer_stream **ret,
                      struct err *err);
void layer_stream_close(struct layer_stream **s);
/* Right after opening: give the bytes as they are. */
void layer_stream_take_packed(struct layer_stream *s);

/* `len` bytes, less only at the end: how many. ERR_INVALID, ERR_TOO_LARGE, ERR_IO, or the end of
 * the operation. */
int64_t layer_stream_read(struct layer_stream *s, void *to, size_t len, struct err *err);
