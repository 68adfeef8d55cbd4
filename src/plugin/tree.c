/* Walks a directory tree to sum, remove, open, give or copy it. */
#define _GNU_SOURCE
#include "plugin/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/fd.h"

#define CHUNK 65536

static int open_dir(int at, const char *name, int *ret_fd, struct err *err)
{
        *ret_fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (*ret_fd < 0)
                return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno,
                               "open directory %s", name);
        return 0;
}

/* Names */

struct names {
        char **list;
        size_t n, room;
};

static void names_done(struct names *names)
{
        for (size_t i = 0; i < names->n; i++)
                free(names->list[i]);
        free(names->list);
}

static int compare_names(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_name(struct names *names, const char *name)
{
        if (names->n == names->room) {
                names->room = names->room ? names->room * 2 : 16;
                names->list = xrealloc(names->list, names->room * sizeof(*names->list));
        }
        names->list[names->n++] = xstrdup(name);
}

static void close_stream(DIR **dir)
{
        if (*dir)
                closedir(*dir);
}

/* All names in the directory, sorted; at most `limit`. */
static int read_names(int fd, size_t limit, struct names *ret, struct err *err)
{
        CLEAN(close_stream) DIR *dir = NULL;
        CLEAN(cleanup_fd) int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        const struct dirent *e;

        if (copy >= 0)
                dir = fdopendir(copy);
        if (!dir)
                return err_sys(err, ERR_IO, errno, "read a directory");
        take_fd(&copy);
        rewinddir(dir);
        while ((errno = 0, e = readdir(dir)) != NULL) {
                if (streq(e->d_name, ".") || streq(e->d_name, ".."))
                        continue;
                if (ret->n >= limit)
                        return err_set(err, ERR_TOO_LARGE, "a directory has too many files");
                add_name(ret, e->d_name);
        }
        if (errno)
                return err_sys(err, ERR_IO, errno, "read a directory");
        if (ret->n > 0)
                qsort(ret->list, ret->n, sizeof(*ret->list), compare_names);
        return 0;
}

/* Checksums. Everything that goes in has its length in front of it, so that no two trees read the
 * same. */

struct sum {
        crypto_generichash_state *state; /* wants an alignment that the heap does not give */
        const struct op *op;
        char chunk[CHUNK];
        int64_t files, bytes;
        int depth;
};

static int sum_dir(struct sum *sum, int fd, struct err *err);

static void sum_put(struct sum *sum, const void *data, size_t len)
{
        crypto_generichash_update(sum->state, data, len);
}

static void put_text(struct sum *sum, const char *text, size_t len)
{
        uint64_t n = len;

        sum_put(sum, &n, sizeof(n));
        sum_put(sum, text, len);
}

static int sum_file(struct sum *sum, int at, const char *name, struct err *err)
{
        CLEAN(cleanup_fd) int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        uint64_t total = 0;
        ssize_t n;

        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "open %s", name);
        while ((n = read(fd, sum->chunk, CHUNK)) > 0) {
                int r = op_check(sum->op, err);

                if (r < 0)
                        return r;
                sum_put(sum, sum->chunk, (size_t)n);
                total += (uint64_t)n;
                sum->bytes += n;
                if (sum->bytes > TREE_MAX_BYTES)
                        return err_set(err, ERR_TOO_LARGE, "it has more than 4 GiB");
        }
        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read %s", name);
        sum_put(sum, &total, sizeof(total));
        return 0;
}

static int sum_link(struct sum *sum, int at, const char *name, struct err *err)
{
        ssize_t n = readlinkat(at, name, sum->chunk, CHUNK);

        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read link %s", name);
        put_text(sum, sum->chunk, (size_t)n);
        return 0;
}

static int sum_below(struct sum *sum, int at, const char *name, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        int r;

        if (sum->depth >= TREE_MAX_DEPTH)
                return err_set(err, ERR_TOO_LARGE, "it is too deep");
        r = open_dir(at, name, &fd, err);
        if (r < 0)
                return r;
        sum->depth++;
        r = sum_dir(sum, fd, err);
        sum->depth--;
        return r;
}

static int sum_entry(struct sum *sum, int at, const char *name, struct err *err)
{
        struct stat st;
        char kind;

        if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return err_sys(err, ERR_IO, errno, "look at %s", name);
        if (++sum->files > TREE_MAX_FILES)
                return err_set(err, ERR_TOO_LARGE, "it has more than %d files", TREE_MAX_FILES);
        kind = S_ISDIR(st.st_mode) ? 'd' : S_ISLNK(st.st_mode) ? 'l' : '?';
        if (S_ISREG(st.st_mode))
                kind = st.st_mode & S_IXUSR ? 'x' : 'f';
        sum_put(sum, &kind, 1);
        put_text(sum, name, strlen(name));
        if (S_ISREG(st.st_mode))
                return sum_file(sum, at, name, err);
        if (S_ISLNK(st.st_mode))
                return sum_link(sum, at, name, err);
        return S_ISDIR(st.st_mode) ? sum_below(sum, at, name, err) : 0;
}

static int sum_dir(struct sum *sum, int fd, struct err *err)
{
        CLEAN(names_done) struct names names = { 0 };
        int r = read_names(fd, TREE_MAX_FILES, &names, err);

        for (size_t i = 0; r >= 0 && i < names.n; i++)
                if (!streq(names.list[i], ".git"))
                        r = sum_entry(sum, fd, names.list[i], err);
        sum_put(sum, "", 1); /* the end of a directory */
        return r;
}

int tree_checksum(const struct op *op, const char *path, char ret[TREE_CHECKSUM_MAX],
                  struct err *err)
{
        unsigned char hash[crypto_generichash_BYTES];
        crypto_generichash_state state;
        char hex[2 * crypto_generichash_BYTES + 1];
        CLEAN(cleanup_free) struct sum *sum = xcalloc(1, sizeof(*sum));
        CLEAN(cleanup_fd) int fd = -1;
        int r = open_dir(AT_FDCWD, path, &fd, err);

        if (r < 0)
                return r;
        sum->op = op;
        sum->state = &state;
        crypto_generichash_init(&state, NULL, 0, sizeof(hash));
        r = sum_dir(sum, fd, err);
        if (r < 0)
                return err_wrap(err, r, "checksum of %s", path);
        crypto_generichash_final(&state, hash, sizeof(hash));
        sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
        snprintf(ret, TREE_CHECKSUM_MAX, "blake2b-256:%s", hex);
        return 0;
}

/* Removing */

static int remove_at(const struct op *op, int at, const char *name, int depth, struct err *err);

static int empty_dir(const struct op *op, int fd, int depth, struct err *err)
{
        CLEAN(names_done) struct names names = { 0 };
        int r = read_names(fd, SIZE_MAX, &names, err);

        for (size_t i = 0; r >= 0 && i < names.n; i++)
                r = remove_at(op, fd, names.list[i], depth + 1, err);
        return r;
}

static int remove_at(const struct op *op, int at, const char *name, int depth, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        int r = op_check(op, err);

        if (r < 0)
                return r;
        if (unlinkat(at, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return err_sys(err, ERR_IO, errno, "remove %s", name);
        if (depth >= TREE_MAX_DEPTH)
                return err_set(err, ERR_TOO_LARGE, "%s is too deep to be removed", name);
        r = open_dir(at, name, &fd, err);
        if (r >= 0)
                r = empty_dir(op, fd, depth, err);
        if (r < 0)
                return r;
        if (unlinkat(at, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
                return err_sys(err, ERR_IO, errno, "remove directory %s", name);
        return 0;
}

int tree_remove(const struct op *op, const char *path, struct err *err)
{
        return remove_at(op, AT_FDCWD, path, 0, err);
}

/* For another user: one walk, the action on each entry, and where a copy goes */

struct walk {
        const struct op *op;
        int (*visit)(struct walk *w, int at, const char *name, const struct stat *st,
                     struct err *err);
        const char *const *without; /* directories; NULL: none */
        uid_t owner;
        int to; /* the directory of the copy; -1: there is none */
        int64_t files, bytes;
        int depth;
        bool all; /* there are no limits: entries that are too deep are left alone */
};

static int walk_entry(struct walk *w, int at, const char *name, struct err *err);

static int walk_below(struct walk *w, int at, const char *name, struct err *err)
{
        CLEAN(names_done) struct names names = { 0 };
        CLEAN(cleanup_fd) int fd = -1;
        int r;

        if (w->depth >= TREE_MAX_DEPTH)
                return w->all ? 0 : err_set(err, ERR_TOO_LARGE, "%s is too deep", name);
        r = open_dir(at, name, &fd, err);
        if (r >= 0)
                r = read_names(fd, w->all ? SIZE_MAX : TREE_MAX_FILES, &names, err);
        w->depth++;
        for (size_t i = 0; r == 0 && i < names.n; i++)
                r = walk_entry(w, fd, names.list[i], err);
        w->depth--;
        return r;
}

/* By identity: a directory under another name is the same directory. */
static bool is_left_out(const struct walk *w, const struct stat *st)
{
        struct stat other;

        for (const char *const *p = w->without; p && *p; p++)
                if (stat(*p, &other) == 0 && other.st_dev == st->st_dev &&
                    other.st_ino == st->st_ino)
                        return true;
        return false;
}

/* An entry, then what is below it. More than 0 ends the walk without an error. */
static int walk_entry(struct walk *w, int at, const char *name, struct err *err)
{
        int to = w->to, r = op_check(w->op, err);
        bool left_out;
        struct stat st;

        if (r < 0)
                return r;
        if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "look at %s",
                               name);
        left_out = S_ISDIR(st.st_mode) && is_left_out(w, &st);
        if (left_out && w->to < 0)
                return 0;
        if (++w->files > TREE_MAX_FILES && !w->all)
                return err_set(err, ERR_TOO_LARGE, "it has more than %d files", TREE_MAX_FILES);
        r = w->visit(w, at, name, &st, err);
        if (r == 0 && S_ISDIR(st.st_mode) && !left_out)
                r = walk_below(w, at, name, err);
        if (w->to != to) {
                close(w->to);
                w->to = to;
        }
        return r;
}

static int walk_tree(struct walk *w, const char *path, struct err *err)
{
        int r = walk_entry(w, AT_FDCWD, path, err);

        return r < 0 ? err_wrap(err, r, "%s", path) : r;
}

static int look_if_closed(struct walk *w UNUSED, int at UNUSED, const char *name UNUSED,
                          const struct stat *st, struct err *err UNUSED)
{
        mode_t needed = S_ISDIR(st->st_mode)   ? S_IROTH | S_IXOTH
                        : S_ISREG(st->st_mode) ? S_IROTH
                                               : 0;

        return (st->st_mode & needed) != needed;
}

int tree_is_open(const struct op *op, const char *path, const char *const *without, struct err *err)
{
        struct walk w = { .op = op, .visit = look_if_closed, .without = without, .to = -1 };
        int r = walk_tree(&w, path, err);

        return r < 0 ? r : !r;
}

static int open_entry(struct walk *w UNUSED, int at, const char *name, const struct stat *st,
                      struct err *err)
{
        mode_t mode = (st->st_mode & 07777) | S_IRGRP | S_IROTH;

        if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode))
                return 0;
        if (mode & S_IXUSR)
                mode |= S_IXGRP | S_IXOTH;
        if (mode != (st->st_mode & 07777) && fchmodat(at, name, mode, 0) < 0)
                return err_sys(err, ERR_IO, errno, "change the mode of %s", name);
        return 0;
}

int tree_open_up(const struct op *op, const char *path, struct err *err)
{
        struct walk w = { .op = op, .visit = open_entry, .to = -1 };

        return walk_tree(&w, path, err);
}

static int give_entry(struct walk *w, int at, const char *name, const struct stat *st,
                      struct err *err)
{
        if (st->st_nlink > 1 && !S_ISDIR(st->st_mode))
                return 0;
        if (fchownat(at, name, w->owner, w->owner, AT_SYMLINK_NOFOLLOW) < 0)
                return err_sys(err, ERR_IO, errno, "change the owner of %s", name);
        return 0;
}

int tree_give(const struct op *op, const char *path, uid_t owner, struct err *err)
{
        struct walk w = { .op = op, .visit = give_entry, .owner = owner, .to = -1, .all = true };

        return walk_tree(&w, path, err);
}

static int copy_bytes(struct walk *w, int from, int to, struct err *err)
{
        char chunk[16384];
        ssize_t n;

        while ((n = read(from, chunk, sizeof(chunk))) > 0) {
                int r = op_check(w->op, err);

                if (r < 0)
                        return r;
                w->bytes += n;
                if (w->bytes > TREE_COPY_MAX_BYTES)
                        return err_set(err, ERR_TOO_LARGE, "it has more than 256 MiB to copy");
                for (ssize_t done = 0, m; done < n; done += m) {
                        m = write(to, chunk + done, (size_t)(n - done));
                        if (m < 0)
                                return err_sys(err, ERR_IO, errno, "write a copy");
                }
        }
        return n < 0 ? err_sys(err, ERR_IO, errno, "read") : 0;
}

static int copy_file(struct walk *w, int at, const char *name, const char *as,
                     const struct stat *st, struct err *err)
{
        CLEAN(cleanup_fd)
        int from = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        CLEAN(cleanup_fd)
        int to = openat(w->to, as, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        int r;

        if (st->st_size > TREE_COPY_MAX_BYTES - w->bytes) /* before any of it is on the disk */
                return err_set(err, ERR_TOO_LARGE, "it has more than 256 MiB to copy");
        if (from < 0)
                return err_sys(err, ERR_IO, errno, "open %s", name);
        if (to < 0)
                return err_sys(err, ERR_IO, errno, "copy %s", name);
        r = copy_bytes(w, from, to, err);
        if (r >= 0 && (fchown(to, w->owner, w->owner) < 0 ||
                       fchmod(to, st->st_mode & S_IXUSR ? 0500 : 0400) < 0))
                r = err_sys(err, ERR_IO, errno, "give a copy of %s away", name);
        return r;
}

static int copy_link(const struct walk *w, int at, const char *name, const char *as,
                     struct err *err)
{
        char target[PATH_MAX];
        ssize_t n = readlinkat(at, name, target, sizeof(target) - 1);

        if (n >= 0)
                target[n] = '\0';
        if (n < 0 || symlinkat(target, w->to, as) < 0)
                return err_sys(err, ERR_IO, errno, "copy link %s", name);
        return 0;
}

/* The walk goes on in the directory that was made. */
static int copy_dir(struct walk *w, const char *as, struct err *err)
{
        int to;

        if (mkdirat(w->to, as, 0500) < 0)
                return err_sys(err, ERR_IO, errno, "make %s", as);
        to = openat(w->to, as, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (to < 0 || fchown(to, w->owner, w->owner) < 0) {
                int r = err_sys(err, ERR_IO, errno, "make %s", as);

                cleanup_fd(&to);
                return r;
        }
        w->to = to;
        return 0;
}

static int copy_entry(struct walk *w, int at, const char *name, const struct stat *st,
                      struct err *err)
{
        const char *slash = strrchr(name, '/'), *as = slash ? slash + 1 : name;

        if (w->files > TREE_COPY_MAX_FILES)
                return err_set(err, ERR_TOO_LARGE, "it has more than %d files to copy",
                               TREE_COPY_MAX_FILES);
        if (S_ISDIR(st->st_mode))
                return copy_dir(w, as, err);
        if (S_ISLNK(st->st_mode))
                return copy_link(w, at, name, as, err);
        return S_ISREG(st->st_mode) ? copy_file(w, at, name, as, st, err) : 0;
}

int tree_copy_for(const struct op *op, const char *path, const char *const *without,
                  const char *into, uid_t owner, struct err *err)
{
        struct walk w = { .op = op, .visit = copy_entry, .without = without, .owner = owner };
        CLEAN(cleanup_fd) int to = -1;
        int r = open_dir(AT_FDCWD, into, &to, err);

        w.to = to;
        return r < 0 ? r : walk_tree(&w, path, err);
}

int tree_each(const char *path, int (*fn)(void *ctx, const char *name), void *ctx, struct err *err)
{
        CLEAN(names_done) struct names names = { 0 };
        CLEAN(cleanup_fd) int fd = -1;
        int r = open_dir(AT_FDCWD, path, &fd, err);

        if (r >= 0)
                r = read_names(fd, TREE_MAX_FILES, &names, err);
        for (size_t i = 0; r >= 0 && i < names.n; i++)
                r = fn(ctx, names.list[i]);
        return r < 0 ? r : 0;
}
