/* Writing a bundle. Content is not synced file by file: everything is, at once, before the file
 * that makes it a bundle gets its name. So after a power cut an unfinished one may hold names with
 * torn content, and what a new writer finds there is read before it is believed. */
#define _GNU_SOURCE
#include "workspace/bundle.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <zstd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "workspace/bundle_dir.h"
#include "workspace/change_file.h"
#include "workspace/content.h"

#define BLOCK      ((size_t)256 << 10)
#define ZSTD_LEVEL 3

struct new_file {
        struct new_file *next;
        int fd;
        char name[32];
};

struct bundle_writer {
        int dir, files, changes;
        bool is_resumed; /* there was content before */
        struct new_file *new_files;
        ZSTD_CCtx *zstd;
        struct buf out;
        uint64_t count;
        char last[TREE_MAX_PATH + 1];
};

static int open_dirs(struct bundle_writer *w, const char *dir, struct err *err)
{
        int r = path_make_dirs(dir, 0700, err);

        if (r < 0)
                return r;
        w->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (w->dir < 0)
                return err_sys(err, ERR_IO, errno, "open %s", dir);
        if (faccessat(w->dir, BUNDLE_CHANGES, F_OK, 0) == 0)
                return err_set(err, ERR_CONFLICT, "%s holds a finished bundle", dir);
        if (mkdirat(w->dir, BUNDLE_FILES, 0700) < 0) {
                if (errno != EEXIST)
                        return err_sys(err, ERR_IO, errno, "create %s/%s", dir, BUNDLE_FILES);
                w->is_resumed = true;
        }
        w->files = openat(w->dir, BUNDLE_FILES, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        w->changes = openat(w->dir, BUNDLE_UNWRITTEN,
                            O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (w->files < 0 || w->changes < 0)
                return err_sys(err, ERR_IO, errno, "create a bundle in %s", dir);
        return 0;
}

/* Remove content that a killed writer had not checked yet. */
static int remove_unchecked(const struct bundle_writer *w, struct err *err)
{
        int fd = openat(w->files, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        const struct dirent *e;

        if (!d) {
                int r = err_sys(err, ERR_IO, errno, "read a bundle");

                cleanup_fd(&fd);
                return r;
        }
        while ((e = readdir(d)) != NULL)
                if (str_starts(e->d_name, BUNDLE_NEW))
                        (void)unlinkat(fd, e->d_name, 0);
        closedir(d);
        return 0;
}

int bundle_create(const char *dir, struct bundle_writer **ret, struct err *err)
{
        struct bundle_writer *w = xcalloc(1, sizeof(*w));

        w->dir = w->files = w->changes = -1;
        int r = open_dirs(w, dir, err);
        if (r >= 0 && w->is_resumed)
                r = remove_unchecked(w, err);
        if (r < 0) {
                bundle_close(w);
                return r;
        }
        w->zstd = ZSTD_createCCtx();
        if (!w->zstd)
                abort();
        ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL);
        ZSTD_CCtx_setParameter(w->zstd, ZSTD_c_checksumFlag, 1);
        change_encode_begin(&w->out);
        *ret = w;
        return 0;
}

void bundle_close(struct bundle_writer *w)
{
        if (!w)
                return;
        while (w->new_files) {
                struct new_file *n = w->new_files;

                w->new_files = n->next;
                (void)unlinkat(w->files, n->name, 0);
                free(n);
        }
        ZSTD_freeCCtx(w->zstd);
        buf_done(&w->out);
        cleanup_fd(&w->changes);
        cleanup_fd(&w->files);
        cleanup_fd(&w->dir);
        free(w);
}

/* Content */

/* A torn file that an earlier writer left is removed: its name is free for the right content. */
static bool is_sound(const struct bundle_writer *w, const char *name, const uint8_t hash[TREE_HASH])
{
        CLEAN(cleanup_fd) int fd = openat(w->files, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        uint8_t found[TREE_HASH];
        uint64_t size;

        if (fd < 0)
                return false;
        if (content_hash(NULL, fd, found, &size, NULL) == 0 && memcmp(found, hash, TREE_HASH) == 0)
                return true;
        (void)unlinkat(w->files, name, 0);
        return false;
}

bool bundle_has(const struct bundle_writer *w, const uint8_t hash[TREE_HASH])
{
        struct bundle_name name = bundle_name(hash);

        if (w->is_resumed)
                return is_sound(w, name.s, hash);
        return faccessat(w->files, name.s, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The descriptor is the caller's, which may have closed it without telling us. */
static struct new_file **find_new(struct bundle_writer *w, int fd)
{
        struct new_file **at = &w->new_files;

        while (*at && (*at)->fd != fd)
                at = &(*at)->next;
        return at;
}

static void forget_new(struct bundle_writer *w, int fd)
{
        struct new_file **at = find_new(w, fd), *n = *at;

        if (!n)
                return;
        *at = n->next;
        (void)unlinkat(w->files, n->name, 0);
        free(n);
}

int bundle_new_file(struct bundle_writer *w, int *ret_fd, struct err *err)
{
        struct new_file *n = xcalloc(1, sizeof(*n));
        char suffix[17];

        random_hex(suffix, 8);
        snprintf(n->name, sizeof(n->name), BUNDLE_NEW "%s", suffix);
        n->fd = openat(w->files, n->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (n->fd < 0) {
                int r = err_sys(err, ERR_IO, errno, "create a file in a bundle");

                free(n);
                return r;
        }
        forget_new(w, n->fd);
        n->next = w->new_files;
        w->new_files = n;
        *ret_fd = n->fd;
        FAULT("workspace.bundle.new");
        return 0;
}

static int give_name(struct bundle_writer *w, int fd, const uint8_t hash[TREE_HASH],
                     struct err *err)
{
        struct bundle_name name = bundle_name(hash);
        struct new_file **at = find_new(w, fd), *n = *at;

        if (!n)
                return err_set(err, ERR_INTERNAL, "not a file of this bundle");
        if (renameat(w->files, n->name, w->files, name.s) < 0)
                return err_sys(err, ERR_IO, errno, "keep a file in a bundle");
        *at = n->next;
        free(n);
        FAULT("workspace.bundle.kept");
        return 0;
}

int bundle_keep(struct bundle_writer *w, int take_fd, const uint8_t hash[TREE_HASH], uint64_t size,
                struct err *err)
{
        CLEAN(cleanup_fd) int fd = take_fd;
        uint8_t found[TREE_HASH];
        uint64_t found_size;
        int r = content_hash(NULL, fd, found, &found_size, err);

        if (r >= 0 && (found_size != size || memcmp(found, hash, TREE_HASH) != 0))
                r = err_set(err, ERR_INVALID, "the content that came is not what was named");
        if (r >= 0)
                r = give_name(w, fd, hash, err);
        if (r < 0)
                forget_new(w, fd);
        return r;
}

/* Changes */

static int compress(struct bundle_writer *w, ZSTD_EndDirective end, struct err *err)
{
        CLEAN(cleanup_free) char *block = xcalloc(1, BLOCK);
        ZSTD_inBuffer in = { buf_str(&w->out), w->out.len, 0 };
        size_t left;

        if (buf_failed(&w->out))
                return err_set(err, ERR_INTERNAL, "out of memory");
        do {
                ZSTD_outBuffer out = { block, BLOCK, 0 };
                int r;

                left = ZSTD_compressStream2(w->zstd, &out, &in, end);
                if (ZSTD_isError(left))
                        return err_set(err, ERR_INTERNAL, "zstd: %s", ZSTD_getErrorName(left));
                r = fd_write_all(w->changes, block, out.pos, err);
                if (r < 0)
                        return err_wrap(err, r, "write a bundle");
        } while (in.pos < in.size || (end == ZSTD_e_end && left > 0));
        buf_clear(&w->out);
        return 0;
}

static bool is_whole(const struct tree_entry *e)
{
        switch (e->kind) {
        case TREE_FILE:
                return e->size <= TREE_MAX_SIZE;
        case TREE_DIR:
                return true;
        case TREE_LINK:
                return e->target && *e->target && strlen(e->target) <= TREE_MAX_TARGET;
        default:
                return false;
        }
}

int bundle_add(struct bundle_writer *w, const struct change *c, struct err *err)
{
        const char *path = c->now.path;

        if (!tree_path_ok(path) || (!c->is_delete && !is_whole(&c->now)) ||
            (c->has_was && !is_whole(&c->was)))
                return err_set(err, ERR_INVALID, "not a change: %s", path);
        if (w->count > 0 && tree_compare(w->last, path) >= 0)
                return err_set(err, ERR_INVALID, "changes out of order: %s after %s", path,
                               w->last);
        if (w->count >= TREE_MAX_COUNT)
                return err_set(err, ERR_TOO_LARGE, "more than %d changes", TREE_MAX_COUNT);
        if (!c->is_delete && c->now.kind == TREE_FILE) {
                struct bundle_name name = bundle_name(c->now.hash);
                struct stat st;

                if (fstatat(w->files, name.s, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return err_set(err, ERR_INVALID, "the content of %s is missing", path);
                /* The size is what budgets go by. */
                if ((uint64_t)st.st_size != c->now.size)
                        return err_set(err, ERR_INVALID, "the content of %s has another size",
                                       path);
        }
        change_encode(&w->out, c);
        memcpy(w->last, path, strlen(path) + 1);
        w->count++;
        return w->out.len >= BLOCK ? compress(w, ZSTD_e_continue, err) : 0;
}

static int sync_all(struct bundle_writer *w, struct err *err)
{
        CLEAN(cleanup_fd) int parent = openat(w->dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (syncfs(w->dir) < 0 || parent < 0 || fsync(parent) < 0)
                return err_sys(err, ERR_IO, errno, "sync a bundle");
        return 0;
}

int bundle_finish(struct bundle_writer *w, struct err *err)
{
        change_encode_end(&w->out, w->count);
        int r = compress(w, ZSTD_e_end, err);
        if (r >= 0)
                r = sync_all(w, err);
        if (r < 0)
                return r;
        FAULT("workspace.bundle.finish.before");
        if (renameat(w->dir, BUNDLE_UNWRITTEN, w->dir, BUNDLE_CHANGES) < 0 || fsync(w->dir) < 0)
                return err_sys(err, ERR_IO, errno, "finish a bundle");
        FAULT("workspace.bundle.finish.after");
        return 0;
}

/* Taking a whole set */

/* The other side may still be writing: the copied bytes are the change. */
static int take_content(struct op *op, struct bundle_writer *w, struct change_set *from,
                        struct budget *budget, struct change *c, struct err *err)
{
        CLEAN(cleanup_fd) int in = -1;
        struct stat st;
        int out = -1, r = from->open(from, c, &in, err);

        if (r < 0)
                return r;
        if (fstat(in, &st) < 0 || !S_ISREG(st.st_mode))
                return err_set(err, ERR_INVALID, "not a file");
        if ((uint64_t)st.st_size > TREE_MAX_SIZE)
                return err_set(err, ERR_TOO_LARGE, "larger than a file may be");
        if ((uint64_t)st.st_size > c->now.size)
                r = budget_take(budget, 0, (uint64_t)st.st_size - c->now.size, c->now.path, err);
        if (r >= 0)
                r = bundle_new_file(w, &out, err);
        if (r < 0)
                return r;
        r = content_copy(op, in, out, (uint64_t)st.st_size, NULL, err);
        if (r >= 0)
                r = content_hash(op, out, c->now.hash, &c->now.size, err);
        if (r >= 0)
                r = give_name(w, out, c->now.hash, err);
        if (r < 0)
                forget_new(w, out);
        close(out);
        return r;
}

int bundle_take(struct op *op, struct bundle_writer *w, struct change_set *changes,
                struct budget *budget, struct err *err)
{
        struct budget_set watch;
        struct change_set *from = budget_watch(&watch, budget, changes);
        struct change c;
        int r;

        while ((r = from->next(from, &c, err)) > 0) {
                r = op_check(op, err);
                if (r < 0)
                        return r;
                if (!c.is_delete && c.now.kind == TREE_FILE && !bundle_has(w, c.now.hash)) {
                        r = take_content(op, w, from, budget, &c, err);
                        if (r == ERR_NOT_FOUND) { /* removed there since: nothing to save */
                                err_clear(err);
                                continue;
                        }
                        if (r < 0)
                                return err_wrap(err, r, "save %s", c.now.path);
                }
                r = bundle_add(w, &c, err);
                if (r < 0)
                        return r;
        }
        return r;
}
