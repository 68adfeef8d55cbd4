/* Which paths are opened: what is followed on the way, and what is refused. */
#define _GNU_SOURCE
#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

/* The kernel asks to try again when something was renamed while it looked; a process that renames
 * without pause must not keep us here. */
#define OPEN_TRIES 64
#define LINKS_MAX  40

static bool creates_file(int flags)
{
        return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; /* O_TMPFILE has two bits */
}

static int open_resolved(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
        struct open_how how = {
                .flags = (uint64_t)(unsigned int)(flags | O_CLOEXEC),
                .mode = creates_file(flags) ? mode : 0,
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

struct walk {
        int at;
        char rest[PATH_MAX];
        int links;
        uid_t link_owner; /* of a symlink that was followed, if neither root nor our user; else 0 */
};

/* Put the target of the symlink in front of the rest of the path. */
static int follow_link(struct walk *w, int link, const struct stat *st)
{
        char target[PATH_MAX], rest[PATH_MAX];
        ssize_t n = readlinkat(link, "", target, sizeof(target));

        if (n <= 0 || n == (ssize_t)sizeof(target) || ++w->links > LINKS_MAX ||
            snprintf(rest, sizeof(rest), "%.*s/%s", (int)n, target, w->rest) >= (int)sizeof(rest)) {
                errno = ELOOP;
                return -1;
        }
        memcpy(w->rest, rest, sizeof(rest));
        if (st->st_uid != 0 && st->st_uid != geteuid()) {
                errno = EXDEV;
                if (w->link_owner && w->link_owner != st->st_uid)
                        return -1;
                w->link_owner = st->st_uid;
        }
        return 0;
}

/* One name, or the root: 1, or 0 at the end. */
static int walk_on(struct walk *w)
{
        size_t len = w->rest[0] == '/' ? strspn(w->rest, "/") : strcspn(w->rest, "/");
        char name[NAME_MAX + 2] = "/";
        CLEAN(cleanup_fd) int next = -1;
        struct stat st;

        if (len == 0)
                return 0;
        if (w->rest[0] != '/') {
                if (len > NAME_MAX) {
                        errno = ENAMETOOLONG;
                        return -1;
                }
                memcpy(name, w->rest, len);
                name[len] = '\0';
                len += strspn(w->rest + len, "/");
        }
        next = openat(w->at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0 || fstat(next, &st) < 0)
                return -1;
        memmove(w->rest, w->rest + len, strlen(w->rest + len) + 1);
        if (S_ISLNK(st.st_mode))
                return follow_link(w, next, &st) < 0 ? -1 : 1;
        cleanup_fd(&w->at);
        w->at = take_fd(&next);
        return 1;
}

int path_open_named(const char *path, int *ret_fd, struct err *err)
{
        struct walk w = { .at = -1 };
        struct stat st;
        int r = -1;

        errno = ENAMETOOLONG;
        if (*path == '/' && strlen(path) < sizeof(w.rest)) {
                memcpy(w.rest, path, strlen(path) + 1);
                do
                        r = walk_on(&w);
                while (r > 0);
        }
        if (r == 0 && fstat(w.at, &st) == 0) {
                errno = !S_ISDIR(st.st_mode) ? ENOTDIR : EXDEV;
                if (S_ISDIR(st.st_mode) && (!w.link_owner || w.link_owner == st.st_uid)) {
                        *ret_fd = w.at;
                        return 0;
                }
        }
        r = errno == EXDEV
                    ? err_set(err, ERR_FORBIDDEN,
                              "%s: a symlink of another user's leads to what is not his", path)
                    : err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "open %s",
                              path);
        cleanup_fd(&w.at);
        return r;
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
