/* Unpacks the bytes of a layer, and decides when they are too many. */
#include "image/layer_stream.h"

#include <errno.h>

#define GiB(n) ((uint64_t)(n) << 30)

#define DEFAULT_BYTES   GiB(64)
#define DEFAULT_ENTRIES 4000000
#define DEFAULT_DEPTH   128
#define DEFAULT_RATIO   400
#define RATIO_FROM      GiB(1) / 4
#define MAX_WINDOW_LOG  27 /* 128 MiB, what zstd itself takes without being asked */
#define GZIP_WINDOW     (15 + 16)

static int bad_stream(struct err *err, const char *what)
{
        return err_set(err, ERR_INVALID, "the layer is broken: %s", what);
}

/* More packed bytes behind those that are there; 0 at the end. */
static int64_t fill_in(struct layer_stream *s, struct err *err)
{
        size_t want = (size_t)MIN(s->from.size - s->taken, (uint64_t)sizeof(s->in));
        ssize_t n;
        int r = op_check(s->op, err);

        if (r < 0)
                return r;
        do
                n = want ? pread(s->from.fd, s->in, want, (off_t)(s->from.offset + s->taken)) : 0;
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read a layer");
        if (n == 0 && want)
                return bad_stream(err, "its file is shorter than it should be");
        s->in_at = 0;
        s->in_len = (size_t)n;
        s->taken += (uint64_t)n;
        return n;
}

int layer_stream_open(struct op *op, const struct layer_source *from,
                      const struct layer_limits *limits, struct layer_stream **ret, struct err *err)
{
        static const uint8_t gzip[] = { 0x1f, 0x8b }, zstd[] = { 0x28, 0xb5, 0x2f, 0xfd };
        CLEAN(layer_stream_close) struct layer_stream *s = xcalloc(1, sizeof(*s));

        s->op = op;
        s->from = *from;
        s->limits = *limits;
        if (!s->limits.bytes)
                s->limits.bytes = DEFAULT_BYTES;
        if (!s->limits.entries)
                s->limits.entries = DEFAULT_ENTRIES;
        if (!s->limits.depth)
                s->limits.depth = DEFAULT_DEPTH;
        if (!s->limits.ratio)
                s->limits.ratio = DEFAULT_RATIO;
        digest_begin(&s->digest);
        int64_t n = fill_in(s, err);
        if (n < 0)
                return (int)n;
        if (s->in_len >= sizeof(gzip) && memcmp(s->in, gzip, sizeof(gzip)) == 0) {
                s->packing = LAYER_GZIP;
                if (inflateInit2(&s->gzip, GZIP_WINDOW) != Z_OK)
                        return err_set(err, ERR_BUSY, "no memory to unpack a layer");
        } else if (s->in_len >= sizeof(zstd) && memcmp(s->in, zstd, sizeof(zstd)) == 0) {
                s->packing = LAYER_ZSTD;
                s->zstd = ZSTD_createDStream();
                if (!s->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax,
                                                                    MAX_WINDOW_LOG)))
                        return err_set(err, ERR_BUSY, "no memory to unpack a layer");
        }
        *ret = take_ptr(&s);
        return 0;
}

void layer_stream_close(struct layer_stream **s)
{
        if (!*s)
                return;
        if ((*s)->packing == LAYER_GZIP)
                (void)inflateEnd(&(*s)->gzip);
        ZSTD_freeDStream((*s)->zstd);
        free(*s);
        *s = NULL;
}

void layer_stream_take_packed(struct layer_stream *s)
{
        if (s->packing == LAYER_GZIP)
                (void)inflateEnd(&s->gzip);
        s->packing = LAYER_PLAIN;
}

/* Several members may follow each other. */
static int64_t inflate_some(struct layer_stream *s, uint8_t *to, size_t len, struct err *err)
{
        int z;

        s->gzip.next_in = s->in + s->in_at;
        s->gzip.avail_in = (uInt)(s->in_len - s->in_at);
        s->gzip.next_out = to;
        s->gzip.avail_out = (uInt)len;
        z = inflate(&s->gzip, Z_NO_FLUSH);
        s->in_at = s->in_len - s->gzip.avail_in;
        s->in_middle = z != Z_STREAM_END;
        if (z == Z_STREAM_END)
                (void)inflateReset(&s->gzip);
        else if (z == Z_MEM_ERROR)
                return err_set(err, ERR_BUSY, "no memory to unpack a layer");
        else if (z != Z_OK && z != Z_BUF_ERROR)
                return bad_stream(err, "its gzip data");
        return (int64_t)(len - s->gzip.avail_out);
}

static int64_t zstd_some(struct layer_stream *s, uint8_t *to, size_t len, struct err *err)
{
        ZSTD_inBuffer in = { s->in, s->in_len, s->in_at };
        ZSTD_outBuffer out = { to, len, 0 };
        size_t left = ZSTD_decompressStream(s->zstd, &out, &in);

        s->in_at = in.pos;
        if (ZSTD_isError(left))
                return bad_stream(err, "its zstd data");
        s->in_middle = left != 0;
        return (int64_t)out.pos;
}

static int64_t plain_some(struct layer_stream *s, uint8_t *to, size_t len)
{
        size_t n = MIN(len, s->in_len - s->in_at);

        memcpy(to, s->in + s->in_at, n);
        s->in_at += n;
        return (int64_t)n;
}

static int check_amount(const struct layer_stream *s, struct err *err)
{
        if (s->given > s->limits.bytes)
                return err_set(err, ERR_TOO_LARGE, "the layer unpacks to more than %llu MiB",
                               (unsigned long long)(s->limits.bytes >> 20));
        if (s->given > RATIO_FROM && s->given / s->limits.ratio > s->taken)
                return err_set(err, ERR_TOO_LARGE,
                               "the layer unpacks to more than %u times its size", s->limits.ratio);
        return 0;
}

int64_t layer_stream_read(struct layer_stream *s, void *to, size_t len, struct err *err)
{
        uint8_t *at = to;
        size_t got = 0;
        unsigned idle = 0;
        bool is_end = false;
        int r;

        while (got < len) {
                int64_t n = 0;
                size_t before;

                if (s->in_at == s->in_len && !is_end) {
                        n = fill_in(s, err);
                        if (n < 0)
                                return n;
                        is_end = n == 0;
                        if (is_end && !s->in_middle)
                                break;
                }
                /* A decoder may hold bytes back after it has taken all input. */
                before = s->in_at;
                if (s->packing == LAYER_GZIP)
                        n = inflate_some(s, at + got, len - got, err);
                else if (s->packing == LAYER_ZSTD)
                        n = zstd_some(s, at + got, len - got, err);
                else
                        n = plain_some(s, at + got, len - got);
                if (n < 0)
                        return n;
                if (n == 0 && is_end)
                        return bad_stream(err, "it ends too early");
                idle = n == 0 && s->in_at == before ? idle + 1 : 0;
                if (idle > 2) /* neither takes nor gives */
                        return bad_stream(err, "its decoder stands still");
                got += (size_t)n;
        }
        digest_add(&s->digest, to, got);
        s->given += got;
        r = check_amount(s, err);
        return r < 0 ? r : (int64_t)got;
}
