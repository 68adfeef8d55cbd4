#define _GNU_SOURCE
#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode, int *ret_fd,
                      struct err *err)
{
        struct open_how how = {
                .flags = (uint64_t)(unsigned int)(flags | O_CLOEXEC),
                .mode = (flags & (O_CREAT | O_TMPFILE)) ? mode : 0,
                .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
        };
        long fd;

        do
                fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
        while (fd < 0 && (errno == EINTR || errno == EAGAIN));
        if (fd < 0) {
                if (errno == EXDEV || errno == ELOOP)
                        return err_set(err, ERR_FORBIDDEN, "%s leads out of its directory", path);
                return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "open %s",
                               path);
        }
        *ret_fd = (int)fd;
        return 0;
}

int path_make_dirs(const char *path, mode_t mode, struct err *err)
{
        char copy[4096];
        size_t len = strlen(path);

        if (len == 0 || len >= sizeof(copy))
                return err_set(err, ERR_INVALID, "not a usable path: '%s'", path);
        memcpy(copy, path, len + 1);
        for (size_t i = 1; i <= len; i++) {
                if (copy[i] != '/' && copy[i] != '\0')
                        continue;
                copy[i] = '\0';
                if (mkdir(copy, mode) < 0 && errno != EEXIST)
                        return err_sys(err, ERR_IO, errno, "create directory %s", copy);
                if (i < len)
                        copy[i] = '/';
        }
        return 0;
}
