/* Reading, syncing and replacing whole files. */
#define _GNU_SOURCE
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

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

ssize_t fd_read_some(int fd, struct buf *buf, size_t max)
{
        char *at = buf_reserve(buf, max);
        ssize_t n;

        if (!at) {
                errno = ENOBUFS;
                return -1;
        }
        do
                n = read(fd, at, max);
        while (n < 0 && errno == EINTR);
        if (n > 0)
                buf_grew(buf, (size_t)n);
        return n;
}

int fd_read_to_end(int fd, struct buf *buf)
{
        size_t max = buf->max ? buf->max : BUF_DEFAULT_MAX;
        ssize_t n;

        do {
                size_t room = max - buf->len;

                if (room == 0) {
                        errno = ENOBUFS;
                        return -1;
                }
                n = fd_read_some(fd, buf, MIN(room, (size_t)65536));
        } while (n > 0);
        return (int)n;
}

bool fd_send_some(int fd, struct buf *buf)
{
        while (buf->len > 0) {
                ssize_t n = send(fd, buf->data, buf->len, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return errno == EAGAIN;
                buf_consume(buf, (size_t)n);
        }
        return true;
}

void fd_close_from(unsigned first)
{
        if (syscall(SYS_close_range, first, ~0U, 0U) < 0)
                for (int fd = (int)first; fd < 65536; fd++)
                        close(fd);
}

/* One more byte decides whether a file ends exactly at the limit. */
static ssize_t read_or_probe(int fd, struct buf *buf, size_t want)
{
        char extra;
        ssize_t n;

        if (want > 0)
                return fd_read_some(fd, buf, want);
        do
                n = read(fd, &extra, 1);
        while (n < 0 && errno == EINTR);
        return n;
}

/* Straight into the buffer, which the caller may wipe: a file may hold a key. */
int file_read_at(int dirfd, const char *path, size_t limit, struct buf *buf, struct err *err)
{
        CLEAN(cleanup_fd) int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        size_t room = (buf->max ? buf->max : BUF_DEFAULT_MAX) - buf->len;
        size_t left = MIN(limit, room);

        if (fd < 0)
                return err_sys(err, life_by_errno(errno) == LIFE_NO ? ERR_NOT_FOUND : ERR_IO, errno,
                               "open %s", path);
        for (;;) {
                ssize_t n = read_or_probe(fd, buf, MIN(left, (size_t)8192));

                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read %s", path);
                if (n == 0)
                        return 0;
                if (left == 0)
                        return err_set(err, ERR_TOO_LARGE, "%s is larger than %zu bytes", path,
                                       MIN(limit, room));
                left -= (size_t)n;
        }
}

enum life file_life_at(int dirfd, const char *path)
{
        return faccessat(dirfd, path, F_OK, 0) == 0 ? LIFE_YES : life_by_errno(errno);
}

int file_sync(int dirfd, const char *path, struct err *err)
{
        CLEAN(cleanup_fd)
        int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

        if (fd < 0 || fsync(fd) < 0)
                return err_sys(err, ERR_IO, errno, "sync %s", path);
        return 0;
}

int file_sync_parent(int dirfd, const char *path, struct err *err)
{
        const char *slash = strrchr(path, '/');
        char parent[4096] = ".";

        if (slash) {
                size_t n = slash == path ? 1 : (size_t)(slash - path);

                if (n >= sizeof(parent))
                        return err_set(err, ERR_INVALID, "path too long: %s", path);
                memcpy(parent, path, n);
                parent[n] = '\0';
        }
        return file_sync(dirfd, parent, err);
}

int file_sync_removal(const char *path, struct err *err)
{
        int r = file_sync_parent(AT_FDCWD, path, err);

        if (r < 0 && life_by_errno(errno) == LIFE_NO) {
                err_clear(err);
                r = 0;
        }
        return r;
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
        return file_sync_parent(dirfd, path, err);
}
