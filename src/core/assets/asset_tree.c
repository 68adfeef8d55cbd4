/* Decides which files of a directory go into an asset, with which modes and limits. */
#define _GNU_SOURCE
#include "core/assets/asset_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "workspace/apply.h"

#define PATH_LEN_MAX 2048
#define OPEN_READ    (O_RDONLY | O_NONBLOCK | O_NOCTTY)

int asset_tree_init(struct asset_tree *t, struct op *op, const char *path, struct err *err)
{
        *t = (struct asset_tree){ .op = op, .fd = -1 };
        (void)crypto_hash_sha256_init(&t->hash);
        if (!path)
                return 0;
        if (mkdir(path, 0700) < 0)
                return err_sys(err, ERR_IO, errno, "create %s", path);
        t->fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return t->fd < 0 ? err_sys(err, ERR_IO, errno, "open %s", path) : 0;
}

void asset_tree_done(struct asset_tree *t)
{
        cleanup_fd(&t->fd);
}

void asset_tree_key(struct asset_tree *t, char ret[ASSET_KEY_LEN + 1])
{
        unsigned char hash[crypto_hash_sha256_BYTES];

        (void)crypto_hash_sha256_final(&t->hash, hash);
        (void)sodium_bin2hex(ret, ASSET_KEY_LEN + 1, hash, sizeof(hash));
}

static void hash_text(struct asset_tree *t, const char *text)
{
        (void)crypto_hash_sha256_update(&t->hash, (const unsigned char *)text, strlen(text));
}

/* The lengths separate each entry from the ones before and after it. */
static void hash_head(struct asset_tree *t, char kind, const char *path, uint64_t size)
{
        char head[64];

        (void)snprintf(head, sizeof(head), "%c %zu %llu\n", kind, strlen(path),
                       (unsigned long long)size);
        hash_text(t, head);
        hash_text(t, path);
}

static int count(struct asset_tree *t, uint64_t bytes, struct err *err)
{
        t->files++;
        t->bytes += bytes;
        if (t->files > ASSET_FILES_MAX)
                return err_set(err, ERR_TOO_LARGE, "there are more than %d files", ASSET_FILES_MAX);
        if (t->bytes > ASSET_BYTES_MAX)
                return err_set(err, ERR_TOO_LARGE, "there are more than %llu MiB",
                               (unsigned long long)(ASSET_BYTES_MAX >> 20));
        return op_check(t->op, err);
}

/* Followed links may lead to the same directory on many paths, with no file in any of them. */
static int count_entry(struct asset_tree *t, struct err *err)
{
        if (++t->entries > ASSET_ENTRIES_MAX)
                return err_set(err, ERR_TOO_LARGE, "there are more than %d files and directories",
                               ASSET_ENTRIES_MAX);
        return op_check(t->op, err);
}

/* Writing: everything beneath the root is ours. */

static int make_dir(struct asset_tree *t, const char *path, struct err *err)
{
        if (t->fd < 0 || mkdirat(t->fd, path, 0700) == 0 || errno == EEXIST)
                return 0;
        return err_sys(err, ERR_IO, errno, "create %s", path);
}

/* The directories above `path`. */
static int make_parents(struct asset_tree *t, const char *path, struct err *err)
{
        int r = 0;

        for (const char *slash = strchr(path, '/'); r >= 0 && slash;
             slash = strchr(slash + 1, '/')) {
                CLEAN(cleanup_free) char *parent = xstrndup(path, (size_t)(slash - path));

                r = make_dir(t, parent, err);
        }
        return r;
}

static int create(struct asset_tree *t, const char *path, bool executable, int *ret,
                  struct err *err)
{
        int r = make_parents(t, path, err);

        *ret = -1;
        if (r < 0 || t->fd < 0)
                return r;
        *ret = openat(t->fd, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                      executable ? 0700 : 0600);
        if (*ret < 0)
                return err_sys(err, ERR_IO, errno, "create %s", path);
        return 0;
}

/* A file that became shorter or longer meanwhile is accepted: the bytes that were read count. */
static int copy_content(struct asset_tree *t, int in, int out, uint64_t size, struct err *err)
{
        unsigned char piece[65536];
        uint64_t left = size;

        while (left > 0) {
                ssize_t n = read(in, piece, MIN(left, (uint64_t)sizeof(piece)));
                int r = op_check(t->op, err);

                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read");
                if (n == 0 || r < 0)
                        return r;
                (void)crypto_hash_sha256_update(&t->hash, piece, (size_t)n);
                if (out >= 0)
                        r = fd_write_all(out, piece, (size_t)n, err);
                if (r < 0)
                        return r;
                left -= (uint64_t)n;
        }
        return 0;
}

static int add_open_file(struct asset_tree *t, int in, const struct stat *st, const char *to,
                         struct err *err)
{
        CLEAN(cleanup_fd) int out = -1;
        bool executable = st->st_mode & 0111;
        uint64_t size = (uint64_t)st->st_size;
        int r = count(t, size, err);

        if (r >= 0)
                r = create(t, to, executable, &out, err);
        if (r < 0)
                return r;
        hash_head(t, executable ? 'x' : 'f', to, size);
        return copy_content(t, in, out, size, err);
}

/* Directories */

struct adding {
        struct asset_tree *t;
        int root; /* of the added directory */
        bool follow;
        const char *const *exclude;
        int depth;
};

struct names {
        char **at;
        size_t n;
};

static void names_done(struct names *names)
{
        for (size_t i = 0; i < names->n; i++)
                free(names->at[i]);
        free(names->at);
}

static int by_text(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_left_out(const struct adding *a, const char *name)
{
        if (streq(name, ".") || streq(name, "..") || strncmp(name, "._", 2) == 0)
                return true;
        for (const char *const *x = a->exclude; x && *x; x++)
                if (streq(*x, name))
                        return true;
        return false;
}

/* In order, so that the key does not depend on the file system. */
static int list_names(const struct adding *a, int take_dir, struct names *ret, struct err *err)
{
        DIR *dir = fdopendir(take_dir);
        const struct dirent *entry;

        if (!dir) {
                close(take_dir);
                return err_sys(err, ERR_IO, errno, "read");
        }
        while ((entry = readdir(dir)) && ret->n <= ASSET_FILES_MAX) {
                if (is_left_out(a, entry->d_name))
                        continue;
                ret->at = xrealloc(ret->at, (ret->n + 1) * sizeof(*ret->at));
                ret->at[ret->n++] = xstrdup(entry->d_name);
        }
        closedir(dir);
        if (ret->n > ASSET_FILES_MAX)
                return err_set(err, ERR_TOO_LARGE, "there are more than %d files", ASSET_FILES_MAX);
        if (ret->n)
                qsort(ret->at, ret->n, sizeof(*ret->at), by_text);
        return 0;
}

static int add_beneath(struct adding *a, int take_dir, const char *from, const char *to,
                       struct err *err);

int asset_tree_add_link(struct asset_tree *t, const char *target, const char *to, struct err *err)
{
        int r = count(t, strlen(target), err);

        if (r >= 0)
                r = make_parents(t, to, err);
        hash_head(t, 'l', to, strlen(target));
        hash_text(t, target);
        if (r >= 0 && t->fd >= 0 && symlinkat(target, t->fd, to) < 0)
                r = err_sys(err, ERR_IO, errno, "create %s", to);
        return r;
}

static int add_link(struct adding *a, int in, const char *from, const char *to, struct err *err)
{
        char target[PATH_LEN_MAX];
        ssize_t n = readlinkat(in, "", target, sizeof(target) - 1);

        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read %s", from);
        target[n] = '\0';
        return asset_tree_add_link(a->t, target, to, err);
}

/* `from` is beneath the root of the added directory, `to` beneath that of the tree. */
static int add_one(struct adding *a, const char *from, const char *to, struct err *err)
{
        CLEAN(cleanup_fd) int in = -1;
        struct stat st;
        int r = count_entry(a->t, err);

        if (r < 0)
                return r;
        r = path_open_beneath(a->root, from, O_PATH | (a->follow ? 0 : O_NOFOLLOW), 0, &in, err);
        if (r == ERR_FORBIDDEN)
                return err_set(err, ERR_UNPROCESSABLE, "%s leads out of its directory", from);
        if (r < 0)
                return err_set(err, ERR_UNPROCESSABLE, "%s cannot be read", from);
        if (fstat(in, &st) < 0)
                return err_sys(err, ERR_IO, errno, "read %s", from);
        if (S_ISLNK(st.st_mode))
                return add_link(a, in, from, to, err);
        if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
                return 0;
        cleanup_fd(&in);
        in = -1;
        r = path_open_beneath(a->root, from, OPEN_READ | (a->follow ? 0 : O_NOFOLLOW), 0, &in, err);
        if (r < 0 || fstat(in, &st) < 0)
                return err_set(err, ERR_UNPROCESSABLE, "%s cannot be read", from);
        if (S_ISREG(st.st_mode))
                return add_open_file(a->t, in, &st, to, err);
        return S_ISDIR(st.st_mode) ? add_beneath(a, take_fd(&in), from, to, err) : 0;
}

static int add_beneath(struct adding *a, int take_dir, const char *from, const char *to,
                       struct err *err)
{
        CLEAN(names_done) struct names names = { 0 };
        int r = list_names(a, take_dir, &names, err);

        if (r >= 0 && ++a->depth > ASSET_DEPTH_MAX)
                r = err_set(err, ERR_TOO_LARGE, "%s lies too deep", from);
        if (r >= 0 && *to) {
                hash_head(a->t, 'd', to, 0);
                r = make_parents(a->t, to, err);
        }
        if (r >= 0 && *to)
                r = make_dir(a->t, to, err);
        for (size_t i = 0; r >= 0 && i < names.n; i++) {
                CLEAN(cleanup_free)
                char *f = xasprintf("%s%s%s", from, *from ? "/" : "", names.at[i]);
                CLEAN(cleanup_free) char *p = xasprintf("%s%s%s", to, *to ? "/" : "", names.at[i]);

                if (strlen(p) > PATH_LEN_MAX)
                        r = err_set(err, ERR_TOO_LARGE, "%s: the path is too long", f);
                else
                        r = add_one(a, f, p, err);
        }
        a->depth--;
        return r;
}

int asset_tree_add_dir(struct asset_tree *t, const char *from, const char *to, bool follow,
                       const char *const *exclude, struct err *err)
{
        CLEAN(cleanup_fd) int root = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct adding a = { .t = t, .root = root, .follow = follow, .exclude = exclude };

        if (root < 0)
                return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "open %s",
                               from);
        int dir = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
                return err_sys(err, ERR_IO, errno, "open %s", from);
        return add_beneath(&a, dir, "", to, err);
}

/* Whether a file that could not be opened is left out or is an error. */
static int leave_out(const char *from, bool follow, int e, struct err *err)
{
        if (e == ENOENT || e == ENOTDIR)
                return 0;
        if (e != ELOOP || follow)
                return err_sys(err, ERR_IO, e, "open %s", from);
        log_warn("a link is left out of what an agent is given", LOG_S("path", from));
        return 0;
}

int asset_tree_add_file(struct asset_tree *t, const char *from, const char *to, bool follow,
                        struct err *err)
{
        CLEAN(cleanup_fd)
        int in = open(from, OPEN_READ | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW));
        struct stat st;

        if (in < 0)
                return leave_out(from, follow, errno, err);
        if (fstat(in, &st) < 0 || !S_ISREG(st.st_mode))
                return err_set(err, ERR_UNPROCESSABLE, "%s is no file", from);
        int r = add_open_file(t, in, &st, to, err);
        return r < 0 ? r : 1;
}

int asset_tree_add_text(struct asset_tree *t, const char *to, const char *text, struct err *err)
{
        CLEAN(cleanup_fd) int out = -1;
        size_t n = strlen(text);
        int r = count(t, n, err);

        if (r >= 0)
                r = create(t, to, false, &out, err);
        if (r < 0)
                return r;
        hash_head(t, 'f', to, n);
        hash_text(t, text);
        return out < 0 ? 0 : fd_write_all(out, text, n, err);
}

void asset_tree_note(struct asset_tree *t, const char *text)
{
        hash_head(t, 'n', text, 0);
}

int asset_tree_remove(const char *path, struct err *err)
{
        struct apply a;
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0)
                return errno == ENOENT ? 0 : err_sys(err, ERR_IO, errno, "open %s", path);
        apply_init(&a, fd);
        int r = apply_clear(&a, err);
        apply_done(&a);
        if (r >= 0 && rmdir(path) < 0 && errno != ENOENT)
                r = err_sys(err, ERR_IO, errno, "remove %s", path);
        return r;
}
