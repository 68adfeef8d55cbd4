#define _GNU_SOURCE
#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fd.h"

/* The kernel asks to try again when something was renamed while it looked; whoever renames without
 * pause must not keep us here. */
#define OPEN_TRIES 64

static bool creates(int flags)
{
        return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; /* O_TMPFILE has two bits */
}

static int open_resolved(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
        struct open_how how = {
                .flags = (uint64_t)(unsigned int)(flags | O_CLOEXEC),
                .mode = creates(flags) ? mode : 0,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve,
        };
        int tries = OPEN_TRIES;
        long fd;

        do
                fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
        while (fd < 0 && (errno == EINTR || (errno == EAGAIN && --tries > 0)));
        return (int)fd;
}

int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode, int *ret_fd,
                      struct err *err)
{
        int fd = open_resolved(dirfd, path, flags, mode, 0);

        if (fd < 0) {
                if (errno == EXDEV || errno == ELOOP)
                        return err_set(err, ERR_FORBIDDEN, "%s leads out of its directory", path);
                return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "open %s",
                               path);
        }
        *ret_fd = fd;
        return 0;
}

static bool leads_out(const char *path)
{
        for (const char *part = path; part; part = strchr(part, '/')) {
                if (*part == '/' && part++ == path)
                        return true;
                if (part[0] == '.' && part[1] == '.' && (part[2] == '/' || part[2] == '\0'))
                        return true;
        }
        return false;
}

int path_open_plain(int dirfd, const char *path, int flags, mode_t mode, int *ret_fd,
                    struct err *err)
{
        int fd = open_resolved(dirfd, path, flags, mode, RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);

        if (fd >= 0) {
                *ret_fd = fd;
                return 0;
        }
        if (errno == ELOOP)
                return err_set(err, ERR_FORBIDDEN, "%s: a symlink is in the way", path);
        if (errno == EXDEV && leads_out(path))
                return err_set(err, ERR_FORBIDDEN, "%s leads out of its directory", path);
        if (errno == EXDEV)
                return err_set(err, ERR_UNPROCESSABLE, "%s lies behind a mount point", path);
        return err_sys(err, errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_IO, errno,
                       "open %s", path);
}

static int make_dirs(const char *path, mode_t mode, bool durable, struct err *err)
{
        char copy[4096];
        size_t len = strlen(path);
        struct stat st;

        if (len == 0 || len >= sizeof(copy))
                return err_set(err, ERR_INVALID, "not a usable path: '%s'", path);
        memcpy(copy, path, len + 1);
        for (size_t i = 1; i <= len; i++) {
                int r;

                if (copy[i] != '/' && copy[i] != '\0')
                        continue;
                copy[i] = '\0';
                r = mkdir(copy, mode);
                if (r < 0 && errno != EEXIST)
                        return err_sys(err, ERR_IO, errno, "create directory %s", copy);
                if (r == 0 && durable && file_sync_parent(AT_FDCWD, copy, err) < 0)
                        return ERR_IO;
                if (i < len)
                        copy[i] = '/';
        }
        if (stat(path, &st) < 0)
                return err_sys(err, ERR_IO, errno, "create directory %s", path);
        if (!S_ISDIR(st.st_mode))
                return err_set(err, ERR_IO, "%s exists and is not a directory", path);
        return 0;
}

int path_make_dirs(const char *path, mode_t mode, struct err *err)
{
        return make_dirs(path, mode, false, err);
}

int path_make_durable_dirs(const char *path, mode_t mode, struct err *err)
{
        return make_dirs(path, mode, true, err);
}
