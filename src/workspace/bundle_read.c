/* Reads and removes a bundle: the changes and the content that are kept in a directory of ours. */
#define _GNU_SOURCE
#include "workspace/bundle.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <zstd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "workspace/bundle_dir.h"
#include "workspace/change_file.h"

#define BLOCK      ((size_t)64 << 10)
#define WINDOW_LOG 27 /* of what we wrote; no bundle needs more memory than this */

struct bundle {
        struct change_set set;
        int files, changes;
        ZSTD_DCtx *zstd;
        struct change_decoder decoder;
        char in[BLOCK], out[BLOCK];
        ZSTD_inBuffer have;
        bool is_frame_done;
};

static int read_more(struct bundle *b, struct err *err)
{
        ssize_t n;

        do
                n = read(b->changes, b->in, sizeof(b->in));
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read a bundle");
        if (n == 0)
                return err_set(err, ERR_CORRUPT, "a bundle ends early");
        b->have = (ZSTD_inBuffer){ b->in, (size_t)n, 0 };
        return 0;
}

static int decompress(struct bundle *b, struct err *err)
{
        ZSTD_outBuffer out = { b->out, sizeof(b->out), 0 };

        if (b->is_frame_done)
                return err_set(err, ERR_CORRUPT, "a bundle ends early");
        if (b->have.pos == b->have.size) {
                int r = read_more(b, err);

                if (r < 0)
                        return r;
        }
        size_t left = ZSTD_decompressStream(b->zstd, &out, &b->have);
        if (ZSTD_isError(left))
                return err_set(err, ERR_CORRUPT, "a bundle is damaged: %s",
                               ZSTD_getErrorName(left));
        b->is_frame_done = left == 0;
        change_decode_feed(&b->decoder, out.dst, out.pos);
        return 0;
}

static int next_change(struct change_set *s, struct change *ret, struct err *err)
{
        struct bundle *b = container_of(s, struct bundle, set);
        int r;

        while ((r = change_decode_next(&b->decoder, ret, err)) == 0) {
                if (b->decoder.done)
                        return 0;
                r = decompress(b, err);
                if (r < 0)
                        return r;
        }
        return r;
}

static int open_content(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        struct bundle *b = container_of(s, struct bundle, set);
        struct bundle_name name = bundle_name(c->now.hash);
        CLEAN(cleanup_fd)
        int fd = openat(b->files, name.s, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        struct stat st;

        if (fd < 0)
                return err_sys(err, errno == ENOENT ? ERR_CORRUPT : ERR_IO, errno,
                               "open the content of %s in a bundle", c->now.path);
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != c->now.size)
                return err_set(err, ERR_CORRUPT, "the content of %s in a bundle is damaged",
                               c->now.path);
        *ret_fd = take_fd(&fd);
        return 0;
}

static void close_bundle(struct change_set *s)
{
        struct bundle *b = container_of(s, struct bundle, set);

        change_decode_done(&b->decoder);
        ZSTD_freeDCtx(b->zstd);
        cleanup_fd(&b->files);
        cleanup_fd(&b->changes);
        free(b);
}

static int open_files(struct bundle *b, const char *dir, struct err *err)
{
        CLEAN(cleanup_fd) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd >= 0)
                b->changes = openat(fd, BUNDLE_CHANGES, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || b->changes < 0)
                return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno,
                               "open the bundle %s", dir);
        b->files = openat(fd, BUNDLE_FILES, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (b->files < 0)
                return err_sys(err, ERR_CORRUPT, errno, "open the bundle %s", dir);
        return 0;
}

static void rewind_bundle(struct bundle *b)
{
        change_decode_done(&b->decoder);
        change_decode_init(&b->decoder);
        ZSTD_DCtx_reset(b->zstd, ZSTD_reset_session_only);
        b->have = (ZSTD_inBuffer){ b->in, 0, 0 };
        b->is_frame_done = false;
}

/* All of a bundle is read first, so that no change of a damaged bundle is acted on. */
static int measure(struct bundle *b, struct bundle_size *ret, struct err *err)
{
        struct bundle_size size = { 0 };
        struct change c;
        int r;

        while ((r = next_change(&b->set, &c, err)) > 0) {
                size.changes++;
                if (c.is_delete)
                        size.deletes++;
                else if (c.now.kind == TREE_FILE)
                        size.bytes += c.now.size;
        }
        if (r < 0)
                return r;
        if (lseek(b->changes, 0, SEEK_SET) < 0)
                return err_sys(err, ERR_IO, errno, "read a bundle");
        rewind_bundle(b);
        *ret = size;
        return 0;
}

int bundle_open(const char *dir, struct change_set **ret, struct bundle_size *ret_size,
                struct err *err)
{
        struct bundle *b = xcalloc(1, sizeof(*b));
        struct bundle_size size;

        b->set = (struct change_set){ next_change, open_content, close_bundle };
        b->files = b->changes = -1;
        b->zstd = ZSTD_createDCtx();
        if (!b->zstd)
                abort();
        ZSTD_DCtx_setParameter(b->zstd, ZSTD_d_windowLogMax, WINDOW_LOG);
        rewind_bundle(b);
        int r = open_files(b, dir, err);
        if (r >= 0)
                r = measure(b, &size, err);
        if (r < 0) {
                close_bundle(&b->set);
                return r;
        }
        if (ret_size)
                *ret_size = size;
        *ret = &b->set;
        return 0;
}

/* Removing */

static int remove_files(struct op *op, int files, struct err *err)
{
        DIR *d = fdopendir(files);
        const struct dirent *e;
        int r = 0;

        if (!d) {
                close(files);
                return err_sys(err, ERR_IO, errno, "read a bundle");
        }
        while (r >= 0 && (e = readdir(d)) != NULL) {
                if (streq(e->d_name, ".") || streq(e->d_name, ".."))
                        continue;
                r = op_check(op, err);
                if (r >= 0 && unlinkat(dirfd(d), e->d_name, 0) < 0 && errno != ENOENT)
                        r = err_sys(err, ERR_IO, errno, "remove a bundle's %s", e->d_name);
        }
        closedir(d);
        return r;
}

int bundle_remove(struct op *op, const char *dir, struct err *err)
{
        CLEAN(cleanup_fd) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        int files, rest, r;

        if (fd < 0)
                return errno == ENOENT ? file_sync_removal(dir, err)
                                       : err_sys(err, ERR_IO, errno, "open %s", dir);
        /* First what makes it one: half of a bundle must never look like a whole one. */
        if ((unlinkat(fd, BUNDLE_CHANGES, 0) < 0 && errno != ENOENT) || fsync(fd) < 0)
                return err_sys(err, ERR_IO, errno, "remove %s", dir);
        FAULT("workspace.bundle.remove.begun");
        files = openat(fd, BUNDLE_FILES, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (files >= 0) {
                r = remove_files(op, files, err);
                if (r < 0)
                        return r;
        }
        FAULT("workspace.bundle.remove.emptied");
        if (unlinkat(fd, BUNDLE_FILES, AT_REMOVEDIR) < 0 && errno != ENOENT)
                return err_sys(err, ERR_IO, errno, "remove %s", dir);
        rest = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = rest < 0 ? err_sys(err, ERR_IO, errno, "read %s", dir) : remove_files(op, rest, err);
        if (r >= 0 && rmdir(dir) < 0)
                r = err_sys(err, ERR_IO, errno, "remove %s", dir);
        return r < 0 ? r : file_sync_removal(dir, err);
}
