/* Writes the manifest of a tree to a file, and reads it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <zstd.h>

#include "base/fd.h"
#include "base/uuid.h"
#include "workspace/scan.h"

#define LEVEL     3
#define WRITE_OUT ((size_t)128 << 10) /* so many bytes of entries are compressed at a time */

/* Writing */

struct writer {
        int fd;
        ZSTD_CCtx *zstd;
        struct buf plain;
        void *packed;
        size_t room;
};

static void writer_done(struct writer *w)
{
        cleanup_fd(&w->fd);
        ZSTD_freeCCtx(w->zstd);
        buf_done(&w->plain);
        free(w->packed);
}

static void writer_init(struct writer *w, int take_fd)
{
        *w = (struct writer){ .fd = take_fd,
                              .zstd = ZSTD_createCCtx(),
                              .room = ZSTD_CStreamOutSize() };
        w->packed = xcalloc(1, w->room);
        if (!w->zstd)
                memory_exhausted();
        (void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, LEVEL);
        (void)ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_checksumFlag, 1);
}

static int write_plain(struct writer *w, ZSTD_EndDirective how, struct err *err)
{
        ZSTD_inBuffer in = { w->plain.data, w->plain.len, 0 };
        size_t left;
        int r;

        if (buf_failed(&w->plain))
                return err_set(err, ERR_INTERNAL, "manifest: out of memory");
        do {
                ZSTD_outBuffer out = { w->packed, w->room, 0 };

                left = ZSTD_compressStream2(w->zstd, &out, &in, how);
                if (ZSTD_isError(left))
                        return err_set(err, ERR_INTERNAL, "manifest: %s", ZSTD_getErrorName(left));
                r = fd_write_all(w->fd, w->packed, out.pos, err);
                if (r < 0)
                        return r;
        } while (how == ZSTD_e_end ? left > 0 : in.pos < in.size);
        buf_clear(&w->plain);
        return 0;
}

static int write_entries(struct writer *w, struct tree_source *from, uint64_t *ret_count,
                         uint64_t *ret_bytes, struct err *err)
{
        struct tree_encoder e;
        struct tree_entry entry;
        uint64_t bytes = 0;
        int r;

        tree_encode_begin(&e, &w->plain);
        while ((r = tree_next(from, &entry, err)) > 0) {
                tree_encode(&e, &entry);
                bytes += entry.size;
                if (w->plain.len >= WRITE_OUT)
                        r = write_plain(w, ZSTD_e_continue, err);
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;
        tree_encode_end(&e);
        if (ret_count)
                *ret_count = e.count;
        if (ret_bytes)
                *ret_bytes = bytes;
        return write_plain(w, ZSTD_e_end, err);
}

int manifest_write(int dir_fd, const char *name, struct tree_source *from, uint64_t *ret_count,
                   uint64_t *ret_bytes, struct err *err)
{
        CLEAN(writer_done) struct writer w = { .fd = -1 };
        char suffix[17], temporary[TREE_MAX_NAME + 1];

        random_hex(suffix, 8);
        if (snprintf(temporary, sizeof(temporary), "%s.%s.tmp", name, suffix) >=
            (int)sizeof(temporary))
                return err_set(err, ERR_INVALID, "name too long: %s", name);
        int fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "create %s", name);
        writer_init(&w, fd);
        int r = write_entries(&w, from, ret_count, ret_bytes, err);
        if (r >= 0 && fsync(fd) < 0)
                r = err_sys(err, ERR_IO, errno, "sync %s", name);
        if (r >= 0 && renameat(dir_fd, temporary, dir_fd, name) < 0)
                r = err_sys(err, ERR_IO, errno, "rename to %s", name);
        if (r < 0) {
                (void)unlinkat(dir_fd, temporary, 0);
                return r;
        }
        if (fsync(dir_fd) < 0)
                return err_sys(err, ERR_IO, errno, "sync the directory of %s", name);
        return 0;
}

/* Reading */

struct manifest_file {
        struct tree_source source;
        struct tree_decoder decoder;
        int fd;
        ZSTD_DCtx *zstd;
        uint8_t *packed, *plain;
        ZSTD_inBuffer in;
        bool frame_over;
};

static int corrupt(struct err *err, const char *why)
{
        return err_set(err, ERR_CORRUPT, "the manifest is damaged: %s", why);
}

static int read_packed(struct manifest_file *m, struct err *err)
{
        ssize_t n;

        do
                n = read(m->fd, m->packed, ZSTD_DStreamInSize());
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read a manifest");
        if (n == 0)
                return corrupt(err, "it ends too early");
        m->in = (ZSTD_inBuffer){ m->packed, (size_t)n, 0 };
        return 0;
}

static int feed(struct manifest_file *m, struct err *err)
{
        ZSTD_outBuffer out = { m->plain, ZSTD_DStreamOutSize(), 0 };
        int r = m->in.pos == m->in.size ? read_packed(m, err) : 0;

        if (r < 0)
                return r;
        size_t left = ZSTD_decompressStream(m->zstd, &out, &m->in);
        if (ZSTD_isError(left))
                return corrupt(err, ZSTD_getErrorName(left));
        m->frame_over = left == 0; /* with it, the checksum was right */
        tree_decode_feed(&m->decoder, m->plain, out.pos);
        return 0;
}

static int manifest_next(struct tree_source *source, struct tree_entry *ret, struct err *err)
{
        struct manifest_file *m = container_of(source, struct manifest_file, source);
        int r;

        for (;;) {
                r = tree_decode_next(&m->decoder, ret, err);
                if (r < 0)
                        return corrupt(err, "an entry is malformed");
                if (r > 0 || (m->decoder.done && m->frame_over))
                        return r;
                r = feed(m, err);
                if (r < 0)
                        return r;
        }
}

int manifest_open(int dir_fd, const char *name, struct manifest_file **ret, struct err *err)
{
        int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
        struct manifest_file *m;

        if (fd < 0)
                return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "open %s",
                               name);
        m = xcalloc(1, sizeof(*m));
        m->source.next = manifest_next;
        m->fd = fd;
        m->zstd = ZSTD_createDCtx();
        if (!m->zstd)
                abort();
        m->packed = xcalloc(1, ZSTD_DStreamInSize());
        m->plain = xcalloc(1, ZSTD_DStreamOutSize());
        tree_decode_init(&m->decoder);
        *ret = m;
        return 0;
}

struct tree_source *manifest_source(struct manifest_file *m)
{
        return &m->source;
}

void manifest_close(struct manifest_file *m)
{
        if (!m)
                return;
        close(m->fd);
        ZSTD_freeDCtx(m->zstd);
        tree_decode_done(&m->decoder);
        free(m->packed);
        free(m->plain);
        free(m);
}
