/* Copies and hashes the content of one file. */
#define _GNU_SOURCE
#include "workspace/content.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sodium.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"

#define PIECE ((size_t)64 << 20) /* between two looks at deadline and cancel */
#define BLOCK ((size_t)128 << 10)

int content_open(int dir_fd, const char *path, int *ret_fd, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        struct stat st;
        int r = path_open_plain(dir_fd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, &fd, err);

        if (r < 0)
                return r;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return err_set(err, ERR_CONFLICT, "%s is no file any more", path);
        *ret_fd = take_fd(&fd);
        return 0;
}

/* A run of bytes between holes, at or after `at`: where the file system says what is a hole. One
 * that was cut off meanwhile looks like a hole to the end. */
static void next_run(int fd, uint64_t at, uint64_t size, uint64_t *ret_from, uint64_t *ret_to)
{
        off_t from = lseek(fd, (off_t)at, SEEK_DATA), to;

        *ret_from = from >= 0 ? MIN((uint64_t)from, size) : errno == ENXIO ? size : at;
        to = *ret_from < size ? lseek(fd, (off_t)*ret_from, SEEK_HOLE) : -1;
        *ret_to = to > (off_t)*ret_from ? MIN((uint64_t)to, size) : size;
}

static bool is_whole(int fd, uint64_t size)
{
        struct stat st;

        return fstat(fd, &st) == 0 && (uint64_t)st.st_size == size;
}

/* The kernel copies up to `size`, without the bytes coming through here. *done is how far it came:
 * it may stop at any point, because it cannot go on between these two. */
static int copy_in_kernel(struct op *op, int from, int to, uint64_t *done_at, uint64_t size,
                          struct err *err)
{
        uint64_t done = *done_at;

        while (done < size) {
                off_t in = (off_t)done, out = (off_t)done;
                ssize_t n = copy_file_range(from, &in, to, &out,
                                            (size_t)MIN(size - done, (uint64_t)PIECE), 0);
                int r;

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO))
                        return err_sys(err, ERR_IO, errno, "write");
                if (n <= 0)
                        break;
                done += (uint64_t)n;
                r = op_check(op, err);
                if (r < 0)
                        return r;
        }
        *done_at = done;
        return 0;
}

static int copy_block(int from, int to, char *block, size_t want, uint64_t at, struct err *err)
{
        ssize_t n;

        do
                n = pread(from, block, want, (off_t)at);
        while (n < 0 && errno == EINTR);
        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read");
        if (n == 0)
                return err_set(err, ERR_CONFLICT, "it became shorter while it was read");
        return fd_write_all(to, block, (size_t)n, err) < 0 ? ERR_IO : (int)n;
}

static int copy_bytes(struct op *op, int from, int to, uint64_t done, uint64_t size,
                      struct err *err)
{
        CLEAN(cleanup_free) char *block = NULL;

        if (done == size)
                return 0;
        block = xcalloc(1, BLOCK);
        if (lseek(to, (off_t)done, SEEK_SET) < 0)
                return err_sys(err, ERR_IO, errno, "write");
        while (done < size) {
                int r = op_check(op, err);

                if (r < 0)
                        return r;
                r = copy_block(from, to, block, (size_t)MIN(size - done, (uint64_t)BLOCK), done,
                               err);
                if (r < 0)
                        return r;
                done += (uint64_t)r;
        }
        return 0;
}

/* 1: done; 0: it has to be copied. */
static int share(int from, int to, uint64_t size, struct err *err)
{
        if (!is_whole(from, size) || ioctl(to, FICLONE, from) < 0)
                return 0;
        if (is_whole(to, size))
                return 1;
        return ftruncate(to, 0) < 0 ? err_sys(err, ERR_IO, errno, "write") : 0; /* it grew */
}

int content_copy(struct op *op, int from, int to, uint64_t size, bool *ret_shared, struct err *err)
{
        int r = size > 0 ? share(from, to, size, err) : 1;
        struct stat st;

        if (ret_shared)
                *ret_shared = r > 0;
        if (r != 0)
                return r < 0 ? r : 0;
        if (ftruncate(to, (off_t)size) < 0) /* holes stay holes */
                return err_sys(err, ERR_IO, errno, "write");
        for (uint64_t at = 0, end; at < size && r >= 0; at = end) {
                next_run(from, at, size, &at, &end);
                r = copy_in_kernel(op, from, to, &at, end, err);
                if (r >= 0)
                        r = copy_bytes(op, from, to, at, end, err);
        }
        if (r >= 0 && (fstat(from, &st) < 0 || (uint64_t)st.st_size < size))
                r = err_set(err, ERR_CONFLICT, "it became shorter while it was read");
        return r < 0 ? r : 0;
}

int content_hash(struct op *op, int fd, uint8_t ret_hash[TREE_HASH], uint64_t *ret_size,
                 struct err *err)
{
        CLEAN(cleanup_free) unsigned char *block = xcalloc(1, BLOCK);
        crypto_generichash_state state;
        uint64_t done = 0;

        crypto_generichash_init(&state, NULL, 0, TREE_HASH);
        for (;;) {
                ssize_t n = pread(fd, block, BLOCK, (off_t)done);
                int r = op ? op_check(op, err) : 0;

                if (r < 0)
                        return r;
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read");
                if (n == 0)
                        break;
                crypto_generichash_update(&state, block, (unsigned long long)n);
                done += (uint64_t)n;
        }
        crypto_generichash_final(&state, ret_hash, TREE_HASH);
        *ret_size = done;
        return 0;
}
