/* Decides whether a directory or file belongs to the daemon itself. */
#define _GNU_SOURCE
#include "core/roots/own_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"

#define DEPTH_MAX     4096
#define MOUNTINFO_MAX ((size_t)4 << 20)
#define FIND_DIR      (O_PATH | O_DIRECTORY | O_CLOEXEC)

static bool same(const struct stat *a, const struct stat *b)
{
        return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Most likely for lack of descriptors, which passes. */
static int cannot_tell(const char *path, struct err *err)
{
        (void)err_set(err, ERR_UNPROCESSABLE,
                      "Whether '%s' belongs to the daemon itself cannot be told, so it is not "
                      "used.",
                      path);
        err_mark_transient(err);
        return ERR_UNPROCESSABLE;
}

static bool path_of(int fd, char *ret, size_t size)
{
        char link[64];

        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, ret, size - 1);
        ret[MAX(n, 0)] = '\0';
        return n > 0 && (size_t)n < size - 1 && ret[0] == '/';
}

static bool is_root(int fd)
{
        char path[4096];

        return path_of(fd, path, sizeof(path)) && streq(path, "/");
}

/* Whether `wanted` is the directory or one of those above it. */
static int is_at_or_above(int fd, const struct stat *wanted, bool *ret)
{
        CLEAN(cleanup_fd) int at = openat(fd, ".", FIND_DIR);
        struct stat st, above;

        *ret = false;
        if (at < 0 || fstat(at, &st) < 0)
                return -1;
        for (int depth = 0; depth < DEPTH_MAX; depth++) {
                int up;

                *ret = same(&st, wanted);
                if (*ret)
                        return 0;
                up = openat(at, "..", FIND_DIR);
                if (up < 0)
                        return -1;
                close(at);
                at = up;
                if (fstat(at, &above) < 0)
                        return -1;
                if (same(&above, &st) && is_root(at)) /* a mount may have the inode of its parent */
                        return 0;
                st = above;
        }
        return -1;
}

/* Within the file system */

struct fs_place {
        char device[32]; /* "major:minor" of the file system */
        char path[4096]; /* from its root on, whatever it is mounted as */
};

/* Fields of mountinfo write blanks and the like as \ooo. */
static void unescape(char *s)
{
        char *to = s;

        for (; *s; s++) {
                if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
                    s[3] >= '0' && s[3] <= '7') {
                        *to++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
                        s += 3;
                } else {
                        *to++ = *s;
                }
        }
        *to = '\0';
}

/* The fields of the line of a mount: device, root, where it is mounted. The text is cut up. */
static bool find_mount(char *text, uint64_t id, const char *ret[3])
{
        char *line, *rest = text;

        while ((line = strsep(&rest, "\n"))) {
                char *field[5];
                size_t n = 0;

                while (n < ARRAY_LEN(field) && (field[n] = strsep(&line, " ")))
                        n++;
                if (n < ARRAY_LEN(field) || strtoull(field[0], NULL, 10) != id)
                        continue;
                for (size_t i = 0; i < 3; i++) {
                        unescape(field[2 + i]);
                        ret[i] = field[2 + i];
                }
                return true;
        }
        return false;
}

/* The rest of a path beneath another; NULL: it is not beneath it. */
static const char *beneath(const char *path, const char *base)
{
        size_t n = strlen(base);

        while (n > 0 && base[n - 1] == '/')
                n--;
        if (strncmp(path, base, n) != 0 || (path[n] != '/' && path[n] != '\0'))
                return NULL;
        return path + n;
}

static bool find_in_fs(int fd, const struct buf *mountinfo, struct fs_place *ret)
{
        CLEAN(cleanup_free) char *text = xstrdup(buf_str(mountinfo));
        const char *mount[3], *rest;
        char path[4096];
        struct statx st;

        if (statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0 || !(st.stx_mask & STATX_MNT_ID) ||
            !path_of(fd, path, sizeof(path)) || !find_mount(text, st.stx_mnt_id, mount))
                return false;
        rest = beneath(path, mount[2]);
        if (!rest)
                return false;
        (void)snprintf(ret->device, sizeof(ret->device), "%s", mount[0]);
        return snprintf(ret->path, sizeof(ret->path), "%s%s", streq(mount[1], "/") ? "" : mount[1],
                        rest) < (int)sizeof(ret->path);
}

/* The daemon's own files */

enum own_kind { OWN_MISSING, OWN_DIR, OWN_FILE };

/* One of the daemon's own: its directory, or the directory of a file. */
struct own {
        enum own_kind kind;
        int dir;
        struct stat st;
};

static void own_done(struct own *o)
{
        cleanup_fd(&o->dir);
}

static int open_parent_of(const char *path)
{
        const char *slash = strrchr(path, '/');
        CLEAN(cleanup_free) char *parent = xstrndup(path, slash ? (size_t)(slash - path) : 0);

        return open(*parent ? parent : "/", FIND_DIR);
}

static bool is_not_there(int errno_value)
{
        return errno_value == ENOENT || errno_value == ENOTDIR || errno_value == ELOOP;
}

/* Open the path as it is written or, for a file with `resolved`, the target of its links. -1: it
 * cannot be determined. */
static int own_open(const char *path, bool resolved, struct own *ret)
{
        CLEAN(cleanup_fd) int fd = open(path, O_PATH | O_CLOEXEC);
        char real[4096];

        *ret = (struct own){ .dir = -1 };
        if (fd < 0 && !is_not_there(errno))
                return -1;
        if (fd >= 0 && fstat(fd, &ret->st) < 0)
                return -1;
        if (fd >= 0)
                ret->kind = S_ISDIR(ret->st.st_mode) ? OWN_DIR : OWN_FILE;
        if (ret->kind == OWN_DIR)
                ret->dir = take_fd(&fd);
        else if (!resolved)
                ret->dir = open_parent_of(path);
        else if (fd >= 0 && path_of(fd, real, sizeof(real)))
                ret->dir = open_parent_of(real);
        else
                return fd < 0 ? 0 : -1;
        return ret->dir >= 0 || is_not_there(errno) ? 0 : -1;
}

/* The directory that the caller named. */
struct named {
        int fd;
        struct stat st;
        struct buf mountinfo;
        struct fs_place place;
        bool has_place;
};

static void named_done(struct named *n)
{
        buf_done(&n->mountinfo);
}

/* Whether one lies in the other, by their positions in the file system. The directory of a file
 * counts only when it is the one that is contained. */
static bool overlap_in_fs(const struct own *o, const struct named *theirs)
{
        struct fs_place ours;

        if (!theirs->has_place || !find_in_fs(o->dir, &theirs->mountinfo, &ours) ||
            !streq(ours.device, theirs->place.device))
                return false;
        return beneath(ours.path, theirs->place.path) ||
               (o->kind == OWN_DIR && beneath(theirs->place.path, ours.path));
}

static int check_one(const char *own_path, bool resolved, const struct named *n, bool *ret)
{
        CLEAN(own_done) struct own o;
        int r = own_open(own_path, resolved, &o);

        *ret = false;
        if (r < 0 || o.dir < 0) /* no directory: it does not exist, so nothing lies in it */
                return r;
        r = is_at_or_above(o.dir, &n->st, ret);
        if (r >= 0 && !*ret && o.kind == OWN_DIR)
                r = is_at_or_above(n->fd, &o.st, ret);
        if (r >= 0 && !*ret)
                *ret = overlap_in_fs(&o, n);
        return r;
}

static bool lies_in(int fd, const char *allowed)
{
        CLEAN(cleanup_fd) int dir = allowed ? open(allowed, FIND_DIR) : -1;
        struct stat st;
        bool found;

        return dir >= 0 && fstat(dir, &st) == 0 && is_at_or_above(fd, &st, &found) == 0 && found;
}

int own_files_check_but(const struct runtime *rt, int fd, const char *path, const char *allowed,
                        struct err *err)
{
        CLEAN(named_done) struct named n = { .fd = fd };
        CLEAN(err_done) struct err unread = { 0 };

        if (fstat(fd, &n.st) < 0)
                return cannot_tell(path, err);
        if (lies_in(fd, allowed))
                return 0;
        /* Where the kernel does not say, only the way up is compared. */
        int r = file_read_at(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX, &n.mountinfo,
                             &unread);
        if (r < 0 && unread.is_transient)
                return cannot_tell(path, err);
        n.has_place = r >= 0 && find_in_fs(fd, &n.mountinfo, &n.place);
        for (const char *const *p = rt->settings.own_paths; p && *p; p++) {
                bool as_written, as_led;

                if (check_one(*p, false, &n, &as_written) < 0 ||
                    check_one(*p, true, &n, &as_led) < 0)
                        return cannot_tell(path, err);
                if (as_written || as_led)
                        return err_set(err, ERR_UNPROCESSABLE,
                                       "'%s' is, contains, or lies in what belongs to the daemon "
                                       "itself (its data directory, keys, database or plugins), "
                                       "which is never part of a workspace. Choose another "
                                       "directory, or move the daemon's with --data.",
                                       path);
        }
        return 0;
}

int own_files_check(const struct runtime *rt, int fd, const char *path, struct err *err)
{
        return own_files_check_but(rt, fd, path, NULL, err);
}

int own_files_check_file(const struct runtime *rt, int fd, const char *path, struct err *err)
{
        CLEAN(cleanup_fd) int dir = -1;
        struct stat st;
        char real[4096];

        if (fstat(fd, &st) < 0 || !path_of(fd, real, sizeof(real)) ||
            (dir = open_parent_of(real)) < 0)
                return cannot_tell(path, err);
        for (const char *const *p = rt->settings.own_paths; p && *p; p++) {
                CLEAN(own_done) struct own o;
                bool found = false;

                if (own_open(*p, false, &o) < 0)
                        return cannot_tell(path, err);
                if (o.kind == OWN_DIR && is_at_or_above(dir, &o.st, &found) < 0)
                        return cannot_tell(path, err);
                if (found || (o.kind == OWN_FILE && same(&o.st, &st)))
                        return err_set(err, ERR_UNPROCESSABLE, "'%s' belongs to the daemon itself",
                                       path);
        }
        return 0;
}

const struct tree_ids *own_files_ids(const struct runtime *rt, struct arena *arena)
{
        const char *const *p = rt->settings.own_paths;
        struct tree_ids *ids;
        size_t n = 0;

        while (p && p[n])
                n++;
        ids = arena_alloc(arena, sizeof(*ids) + n * sizeof(ids->at[0]));
        ids->n = 0;
        ids->has_links = false;
        for (size_t i = 0; i < n; i++) {
                struct stat st;

                if (stat(p[i], &st) < 0)
                        continue;
                ids->at[ids->n++] = tree_id_of(&st);
                ids->has_links |= !S_ISDIR(st.st_mode) && st.st_nlink > 1;
        }
        return ids;
}
