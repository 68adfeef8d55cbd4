/* Unpacks a layer, entry by entry, and decides what becomes of each.
 *
 * The directory that an entry goes into is opened from the root of the tree by openat2(), without
 * links and without leaving the tree, and everything after that is done with its descriptor and one
 * name. Nobody else writes into the tree, and no content of the archive is ever followed, so there
 * is nothing to race with.
 *
 * Directories get their modes and times at the end, those inside before those around them: until
 * then an ordinary user needs to write into them. */
#define _GNU_SOURCE
#include "image/layer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "base/path.h"
#include "codec/tar.h"
#include "image/layer_stream.h"

#define DEFAULT_MAX_ID 65535
#define IMPLIED_MODE   0755 /* of a directory that has no entry of its own */
#define WHITEOUT       ".wh."
#define WHITEOUT_META  ".wh..wh." /* of aufs; only the opaque mark has a meaning */
#define OPAQUE_MARK    ".wh..wh..opq"
#define OPAQUE_XATTR   "user.overlay.opaque"
#define MAX_DIR_BYTES  ((size_t)512 << 20) /* of the names of directories */
#define NS_PER_S       INT64_C(1000000000)

/* What a directory has to look like in the end. */
struct dir_note {
        const char *path;
        size_t number; /* in the order of the archive: of two notes on one path the later counts */
        mode_t mode;
        int64_t mtime_ns; /* -1: as it is */
};

struct unpack {
        struct op *op;
        const struct layer_spec *spec;
        struct layer_stream *stream;
        struct tar_reader tar;
        struct tar_entry entry;
        struct layer_result result;
        bool is_root;    /* modes do not stop us */
        bool in_the_way; /* something of this layer, where a directory is needed */

        int parent_fd; /* the directory of the last entry, or -1 */
        char parent[TREE_MAX_PATH + 1];

        struct arena arena;
        struct dir_note *dirs;
        size_t n_dirs, dirs_room, dir_bytes;

        /* LAYER_FLAT: hashes of the paths that this layer has made; 0: no path */
        uint64_t *made;
        size_t n_made, made_room;
        uint8_t made_key[crypto_shorthash_KEYBYTES];

        uint8_t piece[LAYER_PIECE];
};

static int refuse(const struct unpack *u, struct err *err, const char *why)
{
        return err_set(err, ERR_INVALID, "the layer is refused: '%.200s' %s", u->entry.path, why);
}

static int failed(const struct unpack *u, struct err *err, const char *what)
{
        return err_sys(err, ERR_IO, errno, "%s '%.200s' of a layer", what, u->entry.path);
}

/* What this layer has made */

static uint64_t path_hash(const struct unpack *u, const char *path, size_t len)
{
        uint64_t hash;

        (void)crypto_shorthash((uint8_t *)&hash, (const uint8_t *)path, len, u->made_key);
        return hash ? hash : 1;
}

static bool was_made(const struct unpack *u, const char *path, size_t len)
{
        uint64_t hash = path_hash(u, path, len);

        if (u->spec->form == LAYER_OVERLAY) /* there is nothing else */
                return true;
        for (size_t i = hash; u->made_room; i++) {
                uint64_t found = u->made[i & (u->made_room - 1)];

                if (found == hash || !found)
                        return found;
        }
        return false;
}

static void put_hash(uint64_t *table, size_t room, uint64_t hash)
{
        size_t i = hash;

        while (table[i & (room - 1)])
                i++;
        table[i & (room - 1)] = hash;
}

static void note_made(struct unpack *u, const char *path, size_t len)
{
        if (u->spec->form == LAYER_OVERLAY || was_made(u, path, len))
                return;
        if (2 * (u->n_made + 1) > u->made_room) {
                size_t room = MAX(2 * u->made_room, (size_t)4096);
                uint64_t *larger = xcalloc(room, sizeof(*larger));

                for (size_t i = 0; i < u->made_room; i++)
                        if (u->made[i])
                                put_hash(larger, room, u->made[i]);
                free(u->made);
                u->made = larger;
                u->made_room = room;
        }
        put_hash(u->made, u->made_room, path_hash(u, path, len));
        u->n_made++;
}

static int note_dir(struct unpack *u, const char *path, size_t len, mode_t mode, int64_t mtime_ns,
                    struct err *err)
{
        u->dir_bytes += len + sizeof(*u->dirs);
        if (u->dir_bytes > MAX_DIR_BYTES)
                return err_set(err, ERR_TOO_LARGE, "the layer has too many directories");
        u->dirs = arena_more(&u->arena, u->dirs, u->n_dirs, &u->dirs_room, sizeof(*u->dirs));
        u->dirs[u->n_dirs] = (struct dir_note){ .path = arena_strndup(&u->arena, path, len),
                                                .number = u->n_dirs,
                                                .mode = mode,
                                                .mtime_ns = mtime_ns };
        u->n_dirs++;
        return 0;
}

/* Directories */

static void forget_parent(struct unpack *u)
{
        cleanup_fd(&u->parent_fd);
        u->parent_fd = -1;
}

static int remove_old(struct unpack *u, int at, const char *name, struct err *err)
{
        if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
                return 0;
        int r = layer_remove(u->op, at, name, err);

        forget_parent(u); /* it may have been beneath; `at` must live until here */
        return r;
}

static bool is_whiteout(const struct stat *st)
{
        return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

static int set_opaque(struct unpack *u, int dir_fd, struct err *err)
{
        if (fsetxattr(dir_fd, OPAQUE_XATTR, "y", 1, 0) < 0)
                return err_sys(err, ERR_IO, errno,
                               "mark the directory of '%.200s' as opaque (the file system of the "
                               "store needs user xattrs)",
                               u->entry.path);
        return 0;
}

static int give_away(const struct unpack *u, int at, const char *name, uint32_t uid, uint32_t gid)
{
        const struct layer_spec *s = u->spec;

        if (s->owners == LAYER_OWNERS_CALLER)
                return 0;
        return fchownat(at, name, s->first_id + uid, s->first_id + gid,
                        AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH));
}

/* Make and open one; what was there is gone. */
static int make_dir(struct unpack *u, int at, const char *name, bool opaque, int *ret_fd,
                    struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;

        if (mkdirat(at, name, 0700) < 0)
                return failed(u, err, "make a directory for");
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return failed(u, err, "open a directory for");
        if (opaque) {
                int r = set_opaque(u, fd, err);

                if (r < 0)
                        return r;
        }
        *ret_fd = take_fd(&fd);
        return 0;
}

/* A directory of a lower layer keeps its mode and its time although something changes in it. What
 * is noted first counts, so it is remembered, under a name that no path has. */
static int keep_look(struct unpack *u, const struct stat *st, const char *path, size_t len,
                     struct err *err)
{
        char name[TREE_MAX_PATH + 2] = "/";

        memcpy(name + 1, path, len);
        if (u->spec->form == LAYER_OVERLAY || was_made(u, path, len) || was_made(u, name, len + 1))
                return 0;
        note_made(u, name, len + 1);
        return note_dir(u, path, len, st->st_mode & 07777,
                        (int64_t)st->st_mtim.tv_sec * NS_PER_S + st->st_mtim.tv_nsec, err);
}

/* An ordinary user needs to write into a directory that a layer below has closed. */
static int open_up(struct unpack *u, int at, const char *name, const char *path, size_t len,
                   struct err *err)
{
        struct stat st;

        if (u->is_root || fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
            (st.st_mode & 0700) == 0700)
                return 0;
        int r = keep_look(u, &st, path, len, err);
        if (r >= 0 && fchmodat(at, name, (st.st_mode & 07777) | 0700, 0) < 0)
                r = failed(u, err, "open the directory of");
        return r;
}

/* One step down, to `name`, which is path[0..len). A directory that is missing is made; of a lower
 * layer's file or link a new directory takes the place; what this layer itself has put there is in
 * the way. */
static int step_down(struct unpack *u, int at, const char *name, const char *path, size_t len,
                     int *ret_fd, struct err *err)
{
        struct stat st;
        bool opaque = false;
        int r = open_up(u, at, name, path, len, err);

        if (r < 0)
                return r;
        *ret_fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (*ret_fd >= 0)
                return 0;
        if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
                return failed(u, err, "open the directory of");
        if (errno != ENOENT) {
                if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return failed(u, err, "look at the directory of");
                opaque = is_whiteout(&st);
                u->in_the_way = !opaque && was_made(u, path, len);
                if (u->in_the_way)
                        return refuse(u, err,
                                      S_ISLNK(st.st_mode)
                                              ? "goes through a link of the same layer"
                                              : "is beneath something that is not a directory");
                r = remove_old(u, at, name, err);
                if (r < 0)
                        return r;
        }
        r = make_dir(u, at, name, opaque, ret_fd, err);
        if (r >= 0 && give_away(u, *ret_fd, "", 0, 0) < 0)
                r = failed(u, err, "give away the directory of");
        if (r >= 0)
                r = note_dir(u, path, len, IMPLIED_MODE, -1, err);
        if (r >= 0)
                u->result.entries++;
        else
                cleanup_fd(ret_fd);
        note_made(u, path, len);
        return r;
}

static int walk_down(struct unpack *u, const char *dir, int *ret_fd, struct err *err)
{
        CLEAN(cleanup_fd) int at = fcntl(u->spec->dir_fd, F_DUPFD_CLOEXEC, 3);
        char name[TREE_MAX_NAME + 1];

        if (at < 0)
                return failed(u, err, "open the directory of");
        for (const char *part = dir; part;) {
                const char *slash = strchr(part, '/');
                size_t len = slash ? (size_t)(slash - part) : strlen(part);
                int next = -1, r;

                memcpy(name, part, len); /* tree_path_ok() has bounded it */
                name[len] = '\0';
                r = step_down(u, at, name, dir, (size_t)(part - dir) + len, &next, err);
                if (r < 0)
                        return r;
                close(at);
                at = next;
                part = slash ? slash + 1 : NULL;
        }
        *ret_fd = take_fd(&at);
        return 0;
}

/* The directory that the path lies in, which is u->parent_fd, and its last part. */
static int open_parent(struct unpack *u, const char *path, int *ret_fd, const char **ret_name,
                       struct err *err)
{
        const char *slash = strrchr(path, '/');
        size_t len = slash ? (size_t)(slash - path) : 0;
        struct stat st;
        int fd = -1, r;

        *ret_name = slash ? slash + 1 : path;
        if (!slash) {
                *ret_fd = u->spec->dir_fd;
                return 0;
        }
        if (u->parent_fd >= 0 && strlen(u->parent) == len && memcmp(u->parent, path, len) == 0) {
                *ret_fd = u->parent_fd;
                return 0;
        }
        forget_parent(u);
        memcpy(u->parent, path, len);
        u->parent[len] = '\0';
        /* Most are there; an ordinary user may have to open them up on the way. */
        r = u->is_root || u->spec->form == LAYER_OVERLAY
                    ? path_open_plain(u->spec->dir_fd, u->parent, O_RDONLY | O_DIRECTORY, 0, &fd,
                                      NULL)
                    : ERR_NOT_FOUND;
        if (r < 0)
                r = walk_down(u, u->parent, &fd, err);
        if (r < 0)
                return r;
        *ret_fd = u->parent_fd = fd;
        return fstat(fd, &st) < 0 ? failed(u, err, "look at the directory of")
                                  : keep_look(u, &st, u->parent, len, err);
}

/* Whiteouts */

/* Remove what is in the directory and does not come from this layer. */
static int clear_lower(struct unpack *u, int dir_fd, char *path, size_t len, struct err *err)
{
        CLEAN(cleanup_fd) int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *e;
        int r = 0;

        if (!dir)
                return failed(u, err, "read the directory of");
        (void)take_fd(&fd);
        while (r >= 0 && (e = readdir(dir))) {
                size_t more = strlen(e->d_name) + (len ? 1 : 0);
                CLEAN(cleanup_fd) int below = -1;

                if (streq(e->d_name, ".") || streq(e->d_name, ".."))
                        continue;
                if (len + more > TREE_MAX_PATH) {
                        r = refuse(u, err, "is in a directory whose path is too long");
                        break;
                }
                if (len)
                        path[len] = '/';
                memcpy(path + len + more - strlen(e->d_name), e->d_name, strlen(e->d_name) + 1);
                if (!was_made(u, path, len + more)) {
                        forget_parent(u);
                        r = layer_remove(u->op, dirfd(dir), e->d_name, err);
                        continue;
                }
                below = openat(dirfd(dir), e->d_name,
                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (below >= 0)
                        r = clear_lower(u, below, path, len + more, err);
        }
        (void)closedir(dir);
        path[len] = '\0';
        return r;
}

static int apply_opaque(struct unpack *u, int at, const char *dir, struct err *err)
{
        char path[TREE_MAX_PATH + 1];
        size_t len = strlen(dir);

        u->result.whiteouts++;
        if (u->spec->form == LAYER_OVERLAY)
                return *dir ? set_opaque(u, at, err)
                            : refuse(u, err, "hides all layers below, which an overlay cannot");
        memcpy(path, dir, len + 1);
        CLEAN(cleanup_fd) int own = fcntl(at, F_DUPFD_CLOEXEC, 3); /* the cached one may go */
        return own < 0 ? failed(u, err, "open the directory of")
                       : clear_lower(u, own, path, len, err);
}

/* `name` in the directory, path in the tree, is to be hidden. */
static int hide(struct unpack *u, int at, const char *name, const char *path, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        struct stat st;

        u->result.whiteouts++;
        if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                if (errno != ENOENT)
                        return failed(u, err, "look at");
                if (u->spec->form == LAYER_FLAT)
                        return 0;
                return mknodat(at, name, S_IFCHR, 0) < 0 ? failed(u, err, "make the whiteout") : 0;
        }
        if (!was_made(u, path, strlen(path)))
                return remove_old(u, at, name, err);
        if (!S_ISDIR(st.st_mode))
                return 0;
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return failed(u, err, "open");
        u->result.whiteouts--;
        return apply_opaque(u, fd, path, err);
}

/* 1 when the entry is a whiteout, 0 when not. */
static int take_whiteout(struct unpack *u, struct err *err)
{
        char path[TREE_MAX_PATH + 1], *hidden;
        const char *entry = u->entry.path, *name = strrchr(entry, '/');
        size_t dir_len = name ? (size_t)(name - entry) : 0;
        int at, r;

        name = name ? name + 1 : entry;
        if (str_starts(entry, WHITEOUT_META) && !streq(entry, OPAQUE_MARK))
                return 1; /* what aufs keeps for itself, at the top only */
        for (const char *part = entry; part != name; part = strchr(part, '/') + 1)
                if (str_starts(part, WHITEOUT))
                        return refuse(u, err, "uses a whiteout as a directory");
        if (!str_starts(name, WHITEOUT))
                return 0;
        if (str_starts(name, WHITEOUT_META) && !streq(name, OPAQUE_MARK))
                return 1;
        memcpy(path, entry, strlen(entry) + 1);
        hidden = path + (name - entry) + strlen(WHITEOUT);
        if (!streq(name, OPAQUE_MARK) && (!*hidden || streq(hidden, ".") || streq(hidden, "..")))
                return refuse(u, err, "is a whiteout that names no file");
        u->in_the_way = false;
        r = open_parent(u, entry, &at, &name, err);
        if (r < 0 && u->in_the_way) {
                /* A directory of a lower layer became something else: umoci writes both, the new
                 * thing and whiteouts for what was in the directory. */
                err_clear(err);
                return 1;
        }
        if (r < 0)
                return r;
        if (streq(name, OPAQUE_MARK)) {
                path[dir_len] = '\0';
                r = apply_opaque(u, at, path, err);
        } else {
                memmove(path + (name - entry), hidden, strlen(hidden) + 1);
                r = hide(u, at, path + (name - entry), path, err);
        }
        return r < 0 ? r : 1;
}

/* Entries */

static mode_t mode_of(struct unpack *u)
{
        uint32_t special = u->entry.special;

        /* Of a directory setgid is a matter of its files' group; the sticky bit is no right. */
        if (u->entry.kind != TAR_DIR && !u->spec->keep_setid && (special & 06000)) {
                u->result.setids++;
                special &= 01000;
        }
        return u->entry.mode | special;
}

static void set_xattrs(struct unpack *u, int fd)
{
        const char *name;
        const void *value;
        size_t at = 0, len;

        while (tar_xattr(&u->tar, &at, &name, &value, &len))
                if (fd < 0 || !str_starts(name, "user.") || str_starts(name, "user.overlay.") ||
                    fsetxattr(fd, name, value, len, 0) < 0)
                        u->result.xattrs++;
}

static int set_times(int at, const char *name, int64_t mtime_ns)
{
        struct timespec t = { .tv_sec = mtime_ns / NS_PER_S, .tv_nsec = mtime_ns % NS_PER_S };
        struct timespec times[2] = { t, t };

        return name ? utimensat(at, name, times, AT_SYMLINK_NOFOLLOW) : futimens(at, times);
}

static int take_dir(struct unpack *u, struct err *err)
{
        const struct tar_entry *e = &u->entry;
        CLEAN(cleanup_fd) int fd = -1;
        const char *name;
        struct stat st;
        int at, r;

        if (!e->path[0]) {
                set_xattrs(u, u->spec->dir_fd);
                if (give_away(u, u->spec->dir_fd, "", e->uid, e->gid) < 0)
                        return failed(u, err, "give away");
                return note_dir(u, "", 0, mode_of(u), e->mtime_ns, err);
        }
        r = open_parent(u, e->path, &at, &name, err);
        if (r < 0)
                return r;
        if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                if (errno != ENOENT)
                        return failed(u, err, "look at");
                r = make_dir(u, at, name, false, &fd, err);
        } else if (S_ISDIR(st.st_mode)) {
                r = open_up(u, at, name, e->path, strlen(e->path), err);
                if (r >= 0)
                        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (r >= 0 && fd < 0)
                        r = failed(u, err, "open");
        } else {
                if (unlinkat(at, name, 0) < 0)
                        return failed(u, err, "replace");
                r = make_dir(u, at, name, is_whiteout(&st), &fd, err);
        }
        if (r < 0)
                return r;
        set_xattrs(u, fd);
        if (give_away(u, fd, "", e->uid, e->gid) < 0)
                return failed(u, err, "give away");
        return note_dir(u, e->path, strlen(e->path), mode_of(u), e->mtime_ns, err);
}

/* `len` bytes of the stream to the file, from `offset` on. */
static int take_bytes(struct unpack *u, int fd, uint64_t offset, uint64_t len, struct err *err)
{
        while (len > 0) {
                size_t want = (size_t)MIN(len, (uint64_t)sizeof(u->piece)), put = 0;
                int64_t n = layer_stream_read(u->stream, u->piece, want, err);

                if (n < 0)
                        return (int)n;
                if ((size_t)n < want)
                        return refuse(u, err, "ends too early");
                while (put < want) {
                        ssize_t w = pwrite(fd, u->piece + put, want - put, (off_t)(offset + put));

                        if (w < 0 && errno == EINTR)
                                continue;
                        if (w < 0)
                                return failed(u, err, "write");
                        put += (size_t)w;
                }
                offset += want;
                len -= want;
        }
        return 0;
}

static int take_content(struct unpack *u, int fd, struct err *err)
{
        const struct tar_entry *e = &u->entry;
        int r = 0;

        if (!e->is_sparse)
                return take_bytes(u, fd, 0, e->size, err);
        if (ftruncate(fd, (off_t)e->real_size) < 0)
                return failed(u, err, "write");
        for (size_t i = 0; r >= 0 && i < u->tar.n_data; i++)
                r = take_bytes(u, fd, u->tar.data[i].offset, u->tar.data[i].len, err);
        return r;
}

static int take_file(struct unpack *u, int at, const char *name, struct err *err)
{
        const struct tar_entry *e = &u->entry;
        CLEAN(cleanup_fd)
        int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        int r;

        if (fd < 0)
                return failed(u, err, "make");
        u->result.bytes += e->real_size;
        if (u->result.bytes > u->stream->limits.bytes)
                return err_set(err, ERR_TOO_LARGE, "the files of the layer have more than %llu MiB",
                               (unsigned long long)(u->stream->limits.bytes >> 20));
        r = take_content(u, fd, err);
        if (r < 0)
                return r;
        set_xattrs(u, fd);
        if (give_away(u, fd, "", e->uid, e->gid) < 0 || fchmod(fd, mode_of(u)) < 0 ||
            set_times(fd, NULL, e->mtime_ns) < 0)
                return failed(u, err, "finish");
        return 0;
}

/* Another name of a file or a link that is there already. */
static int take_hard_link(struct unpack *u, int at, const char *name, struct err *err)
{
        const struct tar_entry *e = &u->entry;
        CLEAN(cleanup_fd) int dir = -1;
        char path[TREE_MAX_PATH + 1];
        const char *slash = strrchr(e->target, '/');
        size_t len = slash ? (size_t)(slash - e->target) : 0;
        struct stat st;

        memcpy(path, e->target, len);
        path[len] = '\0';
        if (path_open_plain(u->spec->dir_fd, len ? path : ".", O_RDONLY | O_DIRECTORY, 0, &dir,
                            NULL) < 0 ||
            fstatat(dir, slash ? slash + 1 : e->target, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            is_whiteout(&st))
                return err_set(err, ERR_INVALID,
                               "the layer is refused: '%.200s' is a hard link to '%.200s', which "
                               "is not in the layer",
                               e->path, e->target);
        if (S_ISDIR(st.st_mode))
                return refuse(u, err, "is a hard link to a directory");
        return linkat(dir, slash ? slash + 1 : e->target, at, name, 0) < 0 ? failed(u, err, "link")
                                                                           : 0;
}

static int take_symlink(struct unpack *u, int at, const char *name, struct err *err)
{
        const struct tar_entry *e = &u->entry;

        set_xattrs(u, -1);
        if (symlinkat(e->target, at, name) < 0 || give_away(u, at, name, e->uid, e->gid) < 0 ||
            set_times(at, name, e->mtime_ns) < 0)
                return failed(u, err, "make the link");
        return 0;
}

static int take_fifo(struct unpack *u, int at, const char *name, struct err *err)
{
        const struct tar_entry *e = &u->entry;

        set_xattrs(u, -1);
        if (mkfifoat(at, name, 0600) < 0 || give_away(u, at, name, e->uid, e->gid) < 0 ||
            fchmodat(at, name, mode_of(u), 0) < 0 || set_times(at, name, e->mtime_ns) < 0)
                return failed(u, err, "make the fifo");
        return 0;
}

/* A hard link that names itself is the file that is there. */
static bool links_to_itself(const struct tar_entry *e)
{
        return e->kind == TAR_HARD && streq(e->path, e->target);
}

static int check_entry(const struct unpack *u, struct err *err)
{
        const struct tar_entry *e = &u->entry;
        const struct layer_limits *l = &u->stream->limits;
        uint32_t max_id = u->spec->max_id ? u->spec->max_id : DEFAULT_MAX_ID;
        unsigned depth = 1;

        for (const char *c = e->path; *c; c++)
                depth += *c == '/';
        if (depth > l->depth)
                return refuse(u, err, "is too deep");
        if (u->result.entries >= l->entries)
                return err_set(err, ERR_TOO_LARGE, "the layer has more than %llu entries",
                               (unsigned long long)l->entries);
        if (e->real_size > l->bytes)
                return err_set(err, ERR_TOO_LARGE, "'%.200s' of the layer has more than %llu MiB",
                               e->path, (unsigned long long)(l->bytes >> 20));
        if (!e->path[0] && e->kind != TAR_DIR)
                return refuse(u, err, "would replace the root");
        if (e->kind == TAR_OTHER)
                return refuse(u, err, "is of an unknown kind");
        if (u->spec->owners == LAYER_OWNERS_KEPT && (e->uid > max_id || e->gid > max_id))
                return err_set(err, ERR_UNPROCESSABLE,
                               "'%.200s' of the layer belongs to %u:%u, and a sandbox has ids up "
                               "to %u",
                               e->path, e->uid, e->gid, max_id);
        return 0;
}

static int take_entry(struct unpack *u, struct err *err)
{
        static int (*const take[])(struct unpack *, int, const char *, struct err *) = {
                [TAR_FILE] = take_file,
                [TAR_LINK] = take_symlink,
                [TAR_HARD] = take_hard_link,
                [TAR_FIFO] = take_fifo,
        };
        const char *name;
        int at, r = check_entry(u, err);

        if (r >= 0)
                r = take_whiteout(u, err);
        if (r != 0)
                return r < 0 ? r : 0;
        if (u->entry.kind == TAR_DEVICE) {
                u->result.devices++;
                return 0;
        }
        if (links_to_itself(&u->entry))
                return refuse(u, err, "is a hard link to itself");
        u->result.entries++;
        if (u->entry.kind == TAR_DIR) {
                r = take_dir(u, err);
        } else {
                r = open_parent(u, u->entry.path, &at, &name, err);
                if (r >= 0)
                        r = remove_old(u, at, name, err);
                /* Removing a directory forgets the one that it was opened from. */
                if (r >= 0)
                        r = open_parent(u, u->entry.path, &at, &name, err);
                if (r >= 0)
                        r = take[u->entry.kind](u, at, name, err);
        }
        /* The directories around it, too, are then part of this layer. */
        for (size_t len = strlen(u->entry.path); len && !was_made(u, u->entry.path, len);) {
                note_made(u, u->entry.path, len);
                while (len && u->entry.path[--len] != '/')
                        ;
        }
        return r;
}

/* Content that was not taken, and what fills the last block. */
static int skip_rest(struct unpack *u, uint64_t end, struct err *err)
{
        while (u->stream->given < end) {
                size_t want = (size_t)MIN(end - u->stream->given, (uint64_t)sizeof(u->piece));
                int64_t n = layer_stream_read(u->stream, u->piece, want, err);

                if (n < 0)
                        return (int)n;
                if ((size_t)n < want)
                        return refuse(u, err, "ends too early");
        }
        return 0;
}

static int take_entries(struct unpack *u, struct err *err)
{
        uint8_t block[TAR_BLOCK];
        uint64_t headers = 0;

        for (;;) {
                int64_t n = layer_stream_read(u->stream, block, sizeof(block), err);
                uint64_t end;
                int r;

                if (n < 0)
                        return (int)n;
                if (n == 0 && u->tar.meta_left == 0 && u->tar.map == TAR_MAP_NONE)
                        return 0; /* some tars do not say that they end */
                if (n != TAR_BLOCK)
                        return err_set(err, ERR_INVALID, "the layer is broken: it ends too early");
                r = tar_read(&u->tar, block, &u->entry, err);
                if (r < 0)
                        return err_wrap(err, r, "the layer is broken");
                if (r == 2)
                        return 0;
                if (r == 0)
                        continue;
                /* Those that make nothing count as well: they cost time. */
                if (++headers > 2 * u->stream->limits.entries)
                        return err_set(err, ERR_TOO_LARGE, "the layer has too many entries");
                end = u->stream->given +
                      (u->entry.size + TAR_BLOCK - 1) / TAR_BLOCK * (uint64_t)TAR_BLOCK;
                r = take_entry(u, err);
                if (r >= 0)
                        r = skip_rest(u, end, err);
                if (r < 0)
                        return r;
        }
}

/* The digest is that of everything, also of what follows the end of the archive. */
static int take_tail(struct unpack *u, struct err *err)
{
        int64_t n;

        do
                n = layer_stream_read(u->stream, u->piece, sizeof(u->piece), err);
        while (n == (int64_t)sizeof(u->piece));
        return n < 0 ? (int)n : 0;
}

/* The end */

/* Those inside first; of the same path the last that came. */
static int compare_notes(const void *a, const void *b)
{
        const struct dir_note *x = a, *y = b;
        int order = strcmp(y->path, x->path);

        return order ? order : x->number < y->number ? 1 : -1;
}

static int finish_dirs(struct unpack *u, struct err *err)
{
        const char *last = NULL;

        if (u->n_dirs)
                qsort(u->dirs, u->n_dirs, sizeof(*u->dirs), compare_notes);
        for (size_t i = 0; i < u->n_dirs; i++) {
                const struct dir_note *n = &u->dirs[i];
                CLEAN(cleanup_fd) int fd = -1;
                int r = op_check(u->op, err);

                if (r < 0)
                        return r;
                if (last && streq(last, n->path))
                        continue;
                last = n->path;
                /* A later entry may have replaced it. */
                if (path_open_plain(u->spec->dir_fd, *n->path ? n->path : ".",
                                    O_RDONLY | O_DIRECTORY, 0, &fd, NULL) < 0)
                        continue;
                if ((n->mtime_ns >= 0 && set_times(fd, NULL, n->mtime_ns) < 0) ||
                    fchmod(fd, n->mode) < 0)
                        return err_sys(err, ERR_IO, errno, "finish '%.200s' of a layer", n->path);
        }
        return 0;
}

static int compare_diff_id(const struct unpack *u, struct err *err)
{
        if (!u->spec->diff_id || streq(u->spec->diff_id, u->result.diff_id))
                return 0;
        return err_set(err, ERR_UNPROCESSABLE,
                       "the layer has the content %s, but the configuration of the image says %s",
                       u->result.diff_id, u->spec->diff_id);
}

static int begin_root(struct unpack *u, struct err *err)
{
        struct stat st;

        if (fstat(u->spec->dir_fd, &st) < 0 || !S_ISDIR(st.st_mode))
                return err_set(err, ERR_INTERNAL, "a layer goes into a directory");
        /* Until the layer says something of it. */
        if (u->spec->form == LAYER_OVERLAY) {
                if (give_away(u, u->spec->dir_fd, "", 0, 0) < 0)
                        return failed(u, err, "give away the directory of");
                return note_dir(u, "", 0, IMPLIED_MODE, -1, err);
        }
        if (!u->is_root && (st.st_mode & 0700) != 0700)
                return note_dir(u, "", 0, st.st_mode & 07777, -1, err) < 0 ? ERR_TOO_LARGE
                       : fchmod(u->spec->dir_fd, 0700) < 0 ? failed(u, err, "open the directory of")
                                                           : 0;
        return 0;
}

int layer_unpack(struct op *op, const struct layer_spec *spec, struct layer_result *ret,
                 struct err *err)
{
        struct unpack *u = xcalloc(1, sizeof(*u));
        int r;

        u->op = op;
        u->spec = spec;
        u->parent_fd = -1;
        u->is_root = geteuid() == 0;
        arena_init(&u->arena);
        tar_reader_init(&u->tar);
        u->tar.is_layer = true;
        crypto_shorthash_keygen(u->made_key);
        r = layer_stream_open(op, &spec->from, &spec->limits, &u->stream, err);
        if (r >= 0)
                r = begin_root(u, err);
        if (r >= 0)
                r = take_entries(u, err);
        if (r >= 0)
                r = take_tail(u, err);
        if (r >= 0)
                r = finish_dirs(u, err);
        if (r >= 0) {
                digest_end(&u->stream->digest, u->result.diff_id);
                r = compare_diff_id(u, err);
        }
        if (r >= 0)
                *ret = u->result;
        layer_stream_close(&u->stream);
        forget_parent(u);
        tar_reader_done(&u->tar);
        arena_done(&u->arena);
        free(u->made);
        free(u);
        return r < 0 ? r : 0;
}
