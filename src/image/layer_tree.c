/* Removes a tree that a layer was unpacked into. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "codec/tree.h"
#include "image/layer.h"

#define MAX_DEPTH                                                                                  \
        (TREE_MAX_DEPTH + 16) /* as deep as layers are, and the store's own above them             \
                               */

static void close_dir(DIR **dir)
{
        if (*dir)
                (void)closedir(*dir);
}

static int remove_beneath(struct op *op, int at, const char *name, dev_t dev, unsigned depth,
                          struct err *err);

/* Modes may forbid the owner what has to be done; root asks nobody. */
static int open_to_remove(int at, const char *name)
{
        int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        int fd = openat(at, name, flags);
        struct stat st;

        if (fd < 0 && errno == EACCES && fchmodat(at, name, 0700, 0) == 0)
                fd = openat(at, name, flags);
        if (fd >= 0 && geteuid() != 0 && fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
                (void)fchmod(fd, 0700);
        return fd;
}

static int remove_dir(struct op *op, int at, const char *name, dev_t dev, unsigned depth,
                      struct err *err)
{
        CLEAN(cleanup_fd) int fd = open_to_remove(at, name);
        CLEAN(close_dir) DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *e;
        struct stat st;
        int r = op_check(op, err);

        if (r < 0)
                return r;
        if (!dir || fstat(fd, &st) < 0) {
                r = err_sys(err, ERR_IO, errno, "open %s to remove it", name);
                return r;
        }
        int dir_fd = take_fd(&fd); /* closed with the stream */
        if (st.st_dev != dev || depth == 0)
                return err_set(err, ERR_IO, "%s is %s", name,
                               depth == 0 ? "too deep to be removed" : "another file system");
        while ((errno = 0, e = readdir(dir))) {
                if (streq(e->d_name, ".") || streq(e->d_name, ".."))
                        continue;
                r = remove_beneath(op, dir_fd, e->d_name, dev, depth - 1, err);
                if (r < 0)
                        return r;
        }
        return errno ? err_sys(err, ERR_IO, errno, "read %s", name) : 0;
}

static int remove_beneath(struct op *op, int at, const char *name, dev_t dev, unsigned depth,
                          struct err *err)
{
        int r;

        if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM && errno != EACCES)
                return err_sys(err, ERR_IO, errno, "remove %s", name);
        r = remove_dir(op, at, name, dev, depth, err);
        if (r < 0)
                return r;
        if (unlinkat(at, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
                return err_sys(err, ERR_IO, errno, "remove %s", name);
        return 0;
}

int layer_remove(struct op *op, int dir_fd, const char *name, struct err *err)
{
        struct stat st;

        if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : err_sys(err, ERR_IO, errno, "remove %s", name);
        return remove_beneath(op, dir_fd, name, st.st_dev, MAX_DEPTH, err);
}
