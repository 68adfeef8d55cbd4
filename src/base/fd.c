#define _GNU_SOURCE
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/uuid.h"

void cleanup_fd(int *fd)
{
        int saved = errno;

        if (*fd >= 0)
                close(*fd);
        errno = saved;
}

int fd_write_all(int fd, const void *data, size_t len, struct err *err)
{
        const char *at = data;

        while (len > 0) {
                ssize_t n = write(fd, at, len);

                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return err_sys(err, ERR_IO, errno, "write");
                }
                at += n;
                len -= (size_t)n;
        }
        return 0;
}

int file_read_at(int dirfd, const char *path, size_t limit, struct buf *buf, struct err *err)
{
        CLEAN(cleanup_fd) int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        size_t total = 0;

        if (fd < 0)
                return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "open %s",
                               path);
        for (;;) {
                char *at = buf_reserve(buf, 4096);
                ssize_t n;

                if (!at)
                        return err_set(err, ERR_TOO_LARGE, "%s is too large", path);
                n = read(fd, at, 4096);
                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        return err_sys(err, ERR_IO, errno, "read %s", path);
                }
                if (n == 0)
                        return 0;
                buf_grew(buf, (size_t)n);
                total += (size_t)n;
                if (total > limit)
                        return err_set(err, ERR_TOO_LARGE, "%s is larger than %zu bytes", path,
                                       limit);
        }
}

static int sync_directory(int dirfd, struct err *err)
{
        CLEAN(cleanup_fd) int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0 || fsync(fd) < 0)
                return err_sys(err, ERR_IO, errno, "sync directory");
        return 0;
}

int file_write_at(int dirfd, const char *path, const void *data, size_t len, mode_t mode,
                  struct err *err)
{
        char suffix[17], temporary[4096];
        int r;

        random_hex(suffix, 8);
        if (snprintf(temporary, sizeof(temporary), "%s.%s.tmp", path, suffix) >=
            (int)sizeof(temporary))
                return err_set(err, ERR_INVALID, "path too long: %s", path);
        {
                CLEAN(cleanup_fd)
                int fd = openat(dirfd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);

                if (fd < 0)
                        return err_sys(err, ERR_IO, errno, "create %s", path);
                r = fd_write_all(fd, data, len, err);
                if (r >= 0 && fsync(fd) < 0)
                        r = err_sys(err, ERR_IO, errno, "sync %s", path);
        }
        if (r >= 0 && renameat(dirfd, temporary, dirfd, path) < 0)
                r = err_sys(err, ERR_IO, errno, "rename to %s", path);
        if (r < 0) {
                (void)unlinkat(dirfd, temporary, 0);
                return r;
        }
        return dirfd == AT_FDCWD ? 0 : sync_directory(dirfd, err);
}
