/* Makes, changes, moves and removes the entries of a tree beneath its root. */
#define _GNU_SOURCE
#include "workspace/apply.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "workspace/owner.h"
#include "workspace/sync_file.h"

#define OWNER_ALL ((mode_t)0700)
#define NS_PER_S  INT64_C(1000000000)

struct apply_fix {
        struct apply_fix *next;
        mode_t mode;
        char path[];
};

void apply_init(struct apply *a, int take_root_fd)
{
        *a = (struct apply){ .root_fd = take_root_fd, .dir_fd = -1 };
}

static void leave_dir(struct apply *a)
{
        if (a->dir_fd >= 0)
                close(take_fd(&a->dir_fd));
}

void apply_done(struct apply *a)
{
        struct apply_fix *f;

        while ((f = a->fixes)) {
                a->fixes = f->next;
                free(f);
        }
        leave_dir(a);
        if (a->root_fd >= 0)
                close(take_fd(&a->root_fd));
}

/* Opening */

static int open_dir_by_parts(int root_fd, const char *path)
{
        int at = openat(root_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

        while (at >= 0 && *path) {
                size_t len = strcspn(path, "/");
                char name[TREE_MAX_NAME + 1];
                int next = -1;

                if (len < sizeof(name)) {
                        memcpy(name, path, len);
                        name[len] = '\0';
                        next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                } else {
                        errno = ENAMETOOLONG;
                }
                cleanup_fd(&at);
                at = next;
                path += len + (path[len] == '/');
        }
        return at;
}

/* Old kernels and some filters of system calls do not have openat2(). */
static int open_dir(int root_fd, const char *path)
{
        struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                                .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
                                           RESOLVE_NO_MAGICLINKS };
        long fd = syscall(SYS_openat2, root_fd, *path ? path : ".", &how, sizeof(how));

        if (fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EAGAIN))
                return open_dir_by_parts(root_fd, path);
        return (int)fd;
}

/* The directory that the path is in, and its name there. Files come in order, so it is mostly the
 * same as before. */
static int enter_dir(struct apply *a, const char *path, const char **ret_name)
{
        const char *slash = strrchr(path, '/');
        size_t len = slash ? (size_t)(slash - path) : 0;

        *ret_name = slash ? slash + 1 : path;
        if (a->dir_fd >= 0 && strlen(a->dir) == len && memcmp(a->dir, path, len) == 0)
                return 0;
        leave_dir(a);
        memcpy(a->dir, path, len);
        a->dir[len] = '\0';
        a->dir_fd = open_dir(a->root_fd, a->dir);
        return a->dir_fd;
}

static bool is_ours(const char *path)
{
        static const char name[] = ".paperclip-runtime";
        size_t len = sizeof(name) - 1;

        return strncmp(path, name, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

static int apply_enter(struct apply *a, const char *path, const char **ret_name, struct err *err)
{
        if (is_ours(path))
                return err_set(err, ERR_FORBIDDEN, "%s is not part of a workspace", path);
        if (enter_dir(a, path, ret_name) < 0)
                return err_sys(err, ERR_IO, errno, "open the directory of %s", path);
        return 0;
}

/* Directories that may not be written to */

static void fix_later(struct apply *a, const char *path, mode_t mode)
{
        struct apply_fix *f = xcalloc(1, sizeof(*f) + strlen(path) + 1);

        f->mode = mode;
        memcpy(f->path, path, strlen(path) + 1);
        f->next = a->fixes;
        a->fixes = f;
}

static int chmod_path(struct apply *a, const char *path, mode_t mode)
{
        const char *name;

        if (!*path)
                return fchmodat(a->root_fd, ".", mode, 0);
        if (enter_dir(a, path, &name) < 0)
                return -1;
        return fchmodat(a->dir_fd, name, mode, AT_SYMLINK_NOFOLLOW);
}

/* After EACCES: whether it is worth another try. */
static bool may_write_now(struct apply *a, const char *path, const char **ret_name)
{
        const char *slash = strrchr(path, '/');
        char dir[TREE_MAX_PATH + 1];
        struct stat st;

        if (errno != EACCES || a->dir_fd < 0 || fstat(a->dir_fd, &st) < 0 ||
            (st.st_mode & OWNER_ALL) == OWNER_ALL)
                return false;
        memcpy(dir, path, slash ? (size_t)(slash - path) : 0);
        dir[slash ? slash - path : 0] = '\0';
        if (chmod_path(a, dir, (st.st_mode & 0777) | OWNER_ALL) < 0)
                return false;
        fix_later(a, dir, st.st_mode & 0777);
        return enter_dir(a, path, ret_name) >= 0;
}

int apply_finish(struct apply *a, struct err *err)
{
        struct apply_fix *f;

        /* A later directory may lie in an earlier one. */
        while ((f = a->fixes)) {
                int r = chmod_path(a, f->path, f->mode);

                if (r < 0 && errno != ENOENT && errno != ENOTDIR)
                        return err_sys(err, ERR_IO, errno, "set the mode of %s", f->path);
                a->fixes = f->next;
                free(f);
        }
        return 0;
}

/* Removing */

static int remove_tree(int dir_fd, const char *name, int depth);

static int remove_inside(int fd, int depth)
{
        DIR *dir = fdopendir(fd);
        struct dirent *d;
        int r = 0;

        if (!dir) {
                close(fd);
                return -1;
        }
        while (r >= 0 && (d = readdir(dir)))
                if (!streq(d->d_name, ".") && !streq(d->d_name, ".."))
                        r = remove_tree(dirfd(dir), d->d_name, depth - 1);
        (void)closedir(dir);
        return r;
}

static int remove_tree(int dir_fd, const char *name, int depth)
{
        if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM && errno != EACCES)
                return -1;
        if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
                return 0;
        if ((errno != ENOTEMPTY && errno != EEXIST) || depth == 0)
                return -1;
        (void)!fchmodat(dir_fd, name, OWNER_ALL,
                        AT_SYMLINK_NOFOLLOW); /* it may be enough already */
        int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || remove_inside(fd, depth) < 0)
                return -1;
        return unlinkat(dir_fd, name, AT_REMOVEDIR);
}

static int remove_one(const struct apply *a, const char *name)
{
        if (unlinkat(a->dir_fd, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -1;
        if (unlinkat(a->dir_fd, name, AT_REMOVEDIR) == 0 || errno == ENOTEMPTY || errno == EEXIST ||
            errno == ENOENT || errno == EBUSY) /* something is mounted there */
                return 0;
        return -1;
}

int apply_remove(struct apply *a, const char *path, struct err *err)
{
        const char *name;
        int r = apply_enter(a, path, &name, err);

        if (r < 0)
                return r;
        r = remove_one(a, name);
        if (r < 0 && may_write_now(a, path, &name))
                r = remove_one(a, name);
        return r < 0 ? err_sys(err, ERR_IO, errno, "remove %s", path) : 0;
}

int apply_clear(struct apply *a, struct err *err)
{
        leave_dir(a);
        (void)!fchmod(a->root_fd, OWNER_ALL);
        int fd = openat(a->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || remove_inside(fd, TREE_MAX_DEPTH + 1) < 0)
                return err_sys(err, ERR_IO, errno, "remove a workspace");
        return 0;
}

/* Making */

/* Run `call` and, when the directory forbids it, once more. */
#define WITH_RIGHTS(a, path, name, call)                                                           \
        __extension__({                                                                            \
                int r_ = (call);                                                                   \
                if (r_ < 0 && may_write_now((a), (path), &(name)))                                 \
                        r_ = (call);                                                               \
                r_;                                                                                \
        })

/* 1 when there is a directory, 0 when there is nothing by now. */
static int make_way_for_dir(const struct apply *a, const char *name, mode_t *ret_mode)
{
        struct stat st;

        if (fstatat(a->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -1;
        *ret_mode = st.st_mode & 07777;
        return S_ISDIR(st.st_mode) ? 1 : unlinkat(a->dir_fd, name, 0);
}

static int make_dir(struct apply *a, const char *name, mode_t mode)
{
        mode_t has = 0;

        if (mkdirat(a->dir_fd, name, mode) == 0)
                return 0;
        if (errno != EEXIST)
                return -1;
        int r = make_way_for_dir(a, name, &has);
        if (r == 0)
                return mkdirat(a->dir_fd, name, mode);
        if (r > 0 && has != mode)
                return fchmodat(a->dir_fd, name, mode, AT_SYMLINK_NOFOLLOW);
        return r;
}

int apply_dir(struct apply *a, const char *path, uint32_t mode, struct err *err)
{
        mode_t now = (mode_t)mode | OWNER_ALL;
        const char *name;
        int r = apply_enter(a, path, &name, err);

        if (r < 0)
                return r;
        r = WITH_RIGHTS(a, path, name, make_dir(a, name, now));
        if (r < 0)
                return err_sys(err, ERR_IO, errno, "create the directory %s", path);
        if (now != mode)
                fix_later(a, path, (mode_t)mode);
        return 0;
}

static int make_link(struct apply *a, const char *name, const char *target)
{
        if (symlinkat(target, a->dir_fd, name) == 0)
                return 0;
        if (errno != EEXIST || remove_tree(a->dir_fd, name, TREE_MAX_DEPTH) < 0)
                return -1;
        return symlinkat(target, a->dir_fd, name);
}

int apply_link(struct apply *a, const char *path, const char *target, struct err *err)
{
        const char *name;
        int r = apply_enter(a, path, &name, err);

        if (r < 0)
                return r;
        r = WITH_RIGHTS(a, path, name, make_link(a, name, target));
        return r < 0 ? err_sys(err, ERR_IO, errno, "create the link %s", path) : 0;
}

int apply_mode(struct apply *a, const char *path, uint32_t mode, struct err *err)
{
        const char *name;
        int r = apply_enter(a, path, &name, err);

        if (r < 0)
                return r;
        if (fchmodat(a->dir_fd, name, (mode_t)mode, AT_SYMLINK_NOFOLLOW) < 0)
                return err_sys(err, ERR_IO, errno, "set the mode of %s", path);
        return 0;
}

/* A new file at its own name when nothing is there, else at a temporary one. */
static int apply_create_temp(struct apply *a, const char *name, mode_t mode, char temp[32])
{
        int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;

        temp[0] = '\0';
        int fd = openat(a->dir_fd, name, flags, mode);
        for (int tries = 0; fd < 0 && errno == EEXIST && tries < 1000; tries++) {
                (void)snprintf(temp, 32, ".berth-tmp-%u-%u", (unsigned)getpid() & 0xffffff,
                               a->next_temp++);
                fd = openat(a->dir_fd, temp, flags, mode);
        }
        return fd;
}

static int put_in_place(int from_fd, const char *from, const struct apply *a, const char *name)
{
        if (renameat(from_fd, from, a->dir_fd, name) == 0)
                return 0;
        if (errno != EISDIR && errno != ENOTEMPTY && errno != EEXIST)
                return -1;
        if (remove_tree(a->dir_fd, name, TREE_MAX_DEPTH) < 0)
                return -1;
        return renameat(from_fd, from, a->dir_fd, name);
}

static int set_times(int fd, int64_t mtime_ns)
{
        struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };

        times[1].tv_sec = mtime_ns / NS_PER_S;
        times[1].tv_nsec = mtime_ns % NS_PER_S;
        if (times[1].tv_nsec < 0) {
                times[1].tv_sec--;
                times[1].tv_nsec += NS_PER_S;
        }
        return futimens(fd, times);
}

static int apply_fill(int fd, const struct sync_msg *content, int from_fd, uint64_t size,
                      struct err *err)
{
        if (from_fd >= 0)
                return sync_copy(from_fd, 0, fd, 0, size, err);
        return content ? fd_write_all(fd, content->blob.p, content->blob.len, err) : 0;
}

/* Content from the message, or from a descriptor. */
static int write_file(struct apply *a, const char *path, const char *name, mode_t mode,
                      int64_t mtime_ns, const struct sync_msg *content, int from_fd, uint64_t size,
                      struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        char temp[32];

        fd = WITH_RIGHTS(a, path, name, apply_create_temp(a, name, mode, temp));
        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "create %s", path);
        int r = apply_fill(fd, content, from_fd, size, err);
        if (r >= 0 && set_times(fd, mtime_ns) < 0)
                r = err_sys(err, ERR_IO, errno, "set the time of %s", path);
        if (r >= 0 && temp[0] && put_in_place(a->dir_fd, temp, a, name) < 0)
                r = err_sys(err, ERR_IO, errno, "replace %s", path);
        if (r < 0)
                (void)unlinkat(a->dir_fd, temp[0] ? temp : name, 0);
        return r < 0 ? r : 0;
}

int apply_file(struct apply *a, const char *path, uint32_t mode, int64_t mtime_ns,
               const void *content, size_t len, struct err *err)
{
        struct sync_msg m = { .blob = { content, len } };
        const char *name;
        int r = apply_enter(a, path, &name, err);

        if (r < 0)
                return r;
        r = write_file(a, path, name, (mode_t)mode, mtime_ns, &m, -1, 0, err);
        return r < 0 ? err_wrap(err, r, "%s", path) : 0;
}

int apply_move(struct apply *a, const char *path, uint32_t mode, int64_t mtime_ns, int from_dir_fd,
               const char *from_name, int fd, struct err *err)
{
        const char *name;
        struct stat st;
        int r = apply_enter(a, path, &name, err);

        if (r < 0)
                return r;
        if (fchmod(fd, (mode_t)mode) < 0 || set_times(fd, mtime_ns) < 0 || fstat(fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "prepare %s", path);
        r = WITH_RIGHTS(a, path, name, put_in_place(from_dir_fd, from_name, a, name));
        if (r >= 0)
                return 0;
        if (errno != EXDEV)
                return err_sys(err, ERR_IO, errno, "replace %s", path);
        r = write_file(a, path, name, (mode_t)mode, mtime_ns, NULL, fd, (uint64_t)st.st_size, err);
        if (r < 0)
                return err_wrap(err, r, "%s", path);
        (void)unlinkat(from_dir_fd, from_name, 0);
        return 0;
}

static int open_file(struct apply *a, const char *path, int flags)
{
        const char *name;
        struct stat st;

        if (enter_dir(a, path, &name) < 0)
                return -1;
        int fd = openat(a->dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
                close(take_fd(&fd));
                errno = ENOENT;
        }
        return fd;
}

int apply_open(struct apply *a, const char *path)
{
        if (owner_enter(a->owner) < 0)
                return -1;
        int fd = open_file(a, path, O_RDONLY);
        owner_leave(a->owner);
        return fd;
}

int apply_open_to_write(struct apply *a, const char *path)
{
        return open_file(a, path, O_WRONLY);
}
