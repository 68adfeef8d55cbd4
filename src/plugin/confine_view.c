/* The view of a worker: a root of its own on which only what it is shown is mounted, under the
 * names that it has on the host. Everything is cloned before anything is mounted, mounted shortest
 * path first, so that what lies deeper comes on top, and the old root is taken away at the end.
 *
 * A daemon that is not root does this in a user namespace, in which the worker keeps its user. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "base/mount.h"
#include "plugin/confine_internal.h"

#define QUIET      (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define ACCOUNT    "berth-worker"
#define TMPFS_SIZE "1m"

/* Leaving */

static int write_map(const char *path, const char *text)
{
        CLEAN(cleanup_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);

        if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
                return confine_complain("write", path);
        return 0;
}

/* The worker's user and group are in it what they are outside, and there is no other. */
static int map_self(uid_t uid, gid_t gid)
{
        char uids[64], gids[64];

        snprintf(uids, sizeof(uids), "%u %u 1", (unsigned)uid, (unsigned)uid);
        snprintf(gids, sizeof(gids), "%u %u 1", (unsigned)gid, (unsigned)gid);
        if (write_map("/proc/self/setgroups", "deny") < 0 ||
            write_map("/proc/self/uid_map", uids) < 0)
                return -1;
        return write_map("/proc/self/gid_map", gids);
}

int view_leave_host(void)
{
        uid_t uid = geteuid();
        gid_t gid = getegid();

        if (unshare(CLONE_NEWPID | CLONE_NEWIPC | (uid == 0 ? 0 : CLONE_NEWUSER)) < 0)
                return confine_complain("new namespaces", NULL);
        return uid == 0 ? 0 : map_self(uid, gid);
}

/* The root */

struct view {
        const struct trampoline *t;
        struct shown shown[SHOWN_MAX];
        int mounts[SHOWN_MAX]; /* of shown[i]; -1: there is nothing to show */
        size_t n;
        int root;
};

/* Where a mount goes. Missing directories on the way are made; no link is followed. Opened, or
 * -1. */
static int mount_point(const struct view *v, const char *path, bool is_dir)
{
        CLEAN(cleanup_free) char *copy = xstrdup(path);
        CLEAN(cleanup_fd) int at = fcntl(v->root, F_DUPFD_CLOEXEC, 0);
        char *rest = copy, *name;

        while (at >= 0 && (name = strsep(&rest, "/"))) {
                bool last = !rest;
                int next;

                if (!*name)
                        continue;
                next = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                if (next < 0 && errno == ENOENT) {
                        if (!last || is_dir)
                                (void)mkdirat(at, name, 0755);
                        else
                                close(openat(at, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
                        next = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
                }
                close(at);
                at = next;
        }
        return take_fd(&at);
}

static int attach(const struct view *v, int mount, const char *path)
{
        struct stat st;
        CLEAN(cleanup_fd) int point = -1;

        if (fstat(mount, &st) < 0)
                return confine_complain("look at", path);
        point = mount_point(v, path, S_ISDIR(st.st_mode));
        if (point < 0 ||
            move_mount(mount, "", point, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return confine_complain("show", path);
        return 0;
}

static int attach_new(const struct view *v, const char *type, uint64_t attr,
                      const char *const options[], const char *path, int *ret)
{
        *ret = mount_new(type, attr, options);
        if (*ret < 0)
                return confine_complain("mount", type);
        return attach(v, *ret, path);
}

static int make_read_only(int mount)
{
        struct mount_attr set = { .attr_set = MOUNT_ATTR_RDONLY };

        return mount_setattr(mount, "", AT_EMPTY_PATH, &set, sizeof(set)) < 0
                       ? confine_complain("make read-only", NULL)
                       : 0;
}

/* Of two for one path the cover comes last, and stays. */
static int shorter_first(const void *one, const void *other)
{
        const struct shown *a = one, *b = other;
        size_t m = strlen(a->path), n = strlen(b->path);

        if (m != n)
                return m < n ? -1 : 1;
        return (a->how == SHOWN_NEVER) - (b->how == SHOWN_NEVER);
}

/* The system's files about users are not for a worker that is none of these users. */
static bool is_made_up(const struct view *v, const char *path)
{
        return v->t->uid && (streq(path, "/etc/passwd") || streq(path, "/etc/group"));
}

/* Clone what there is to show. */
static int clone_shown(struct view *v)
{
        for (size_t i = 0; i < v->t->n_shown; i++)
                if (!is_made_up(v, v->t->shown[i].path))
                        v->shown[v->n++] = v->t->shown[i];
        qsort(v->shown, v->n, sizeof(*v->shown), shorter_first);
        for (size_t i = 0; i < v->n; i++) {
                const struct shown *s = &v->shown[i];
                uint64_t attr = s->how == SHOWN_READ    ? QUIET | MOUNT_ATTR_RDONLY
                                : s->how == SHOWN_WRITE ? QUIET
                                                        : MOUNT_ATTR_NOSUID;

                v->mounts[i] = -1;
                if (s->how == SHOWN_NEVER)
                        continue;
                v->mounts[i] = mount_clone(AT_FDCWD, s->copy ? s->copy : s->path, true, attr);
                if (v->mounts[i] < 0 && errno != ENOENT && errno != ENOTDIR && errno != EACCES)
                        return confine_complain("show", s->path);
        }
        return 0;
}

/* Empty, where something that is shown would have shown it. Deeper paths are mounted into it. */
static int cover(struct view *v, size_t i)
{
        static const char *const options[] = { "mode", "0755", "size", TMPFS_SIZE, NULL };
        struct stat st;

        if (fstatat(v->root, v->shown[i].path + 1, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISDIR(st.st_mode))
                return 0;
        return attach_new(v, "tmpfs", QUIET, options, v->shown[i].path, &v->mounts[i]);
}

static int write_text(const struct view *v, const char *path, const char *text)
{
        CLEAN(cleanup_fd) int fd = -1;

        close(mount_point(v, path, false));
        fd = openat(v->root, path + 1, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
                return confine_complain("write", path);
        return 0;
}

/* Programs such as ssh refuse to work for a user without a name. */
static int write_accounts(const struct view *v)
{
        CLEAN(cleanup_free)
        char *users =
                xasprintf("root:x:0:0::/:/usr/sbin/nologin\n" ACCOUNT ":x:%u:%u::%s:/bin/sh\n",
                          (unsigned)v->t->uid, (unsigned)v->t->uid,
                          v->t->private_dir ? v->t->private_dir : "/");
        CLEAN(cleanup_free)
        char *groups = xasprintf("root:x:0:\n" ACCOUNT ":x:%u:\n", (unsigned)v->t->uid);

        if (v->t->uid == 0)
                return 0;
        return write_text(v, "/etc/passwd", users) < 0 ? -1 : write_text(v, "/etc/group", groups);
}

static int link_streams(const struct view *v)
{
        static const char *const links[][2] = { { "/proc/self/fd", "dev/fd" },
                                                { "/proc/self/fd/0", "dev/stdin" },
                                                { "/proc/self/fd/1", "dev/stdout" },
                                                { "/proc/self/fd/2", "dev/stderr" } };

        for (size_t i = 0; i < ARRAY_LEN(links); i++)
                if (symlinkat(links[i][0], v->root, links[i][1]) < 0)
                        return confine_complain("make", links[i][1]);
        return 0;
}

/* Where programs that know of no other directory begin. Nothing can be put there: TMPDIR is. */
static int make_tmp(const struct view *v)
{
        CLEAN(cleanup_fd) int fd = mount_point(v, "/tmp", true);

        return fd < 0 ? confine_complain("make", "/tmp") : 0;
}

static int change_root(const struct view *v)
{
        struct stat wanted, got;

        if (fchdir(v->root) < 0 || fstat(v->root, &wanted) < 0 ||
            syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
            chdir("/") < 0 || stat("/", &got) < 0)
                return confine_complain("change the root", NULL);
        if (got.st_dev != wanted.st_dev || got.st_ino != wanted.st_ino) {
                errno = EXDEV;
                return confine_complain("change the root", NULL);
        }
        return 0;
}

int view_enter(const struct trampoline *t)
{
        static const char *const options[] = { "mode", "0755", "size", TMPFS_SIZE, NULL };
        static struct view v;
        int proc, r = 0;

        v.t = t;
        umask(022);
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return confine_complain("new mounts", NULL);
        if (clone_shown(&v) < 0)
                return -1;
        v.root = mount_new("tmpfs", QUIET, options);
        if (v.root < 0 || mount_attach_somewhere(v.root) < 0)
                return confine_complain("mount", "tmpfs");
        for (size_t i = 0; r >= 0 && i < v.n; i++) {
                if (v.shown[i].how == SHOWN_NEVER)
                        r = cover(&v, i);
                else if (v.mounts[i] >= 0)
                        r = attach(&v, v.mounts[i], v.shown[i].path);
        }
        if (r < 0 || write_accounts(&v) < 0 || link_streams(&v) < 0 || make_tmp(&v) < 0 ||
            attach_new(&v, "proc", QUIET | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY, NULL, "/proc",
                       &proc) < 0)
                return -1;
        for (size_t i = 0; i < v.n; i++)
                if (v.shown[i].how == SHOWN_NEVER && v.mounts[i] >= 0 &&
                    make_read_only(v.mounts[i]) < 0)
                        return -1;
        if (make_read_only(v.root) < 0 || change_root(&v) < 0)
                return -1;
        if (t->private_dir && chdir(t->private_dir) < 0)
                return confine_complain("enter", t->private_dir);
        return 0;
}
