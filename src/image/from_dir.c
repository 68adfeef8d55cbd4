/* Packs a directory as an image of one layer. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "codec/json.h"
#include "codec/tar.h"
#include "image/archive_internal.h"
#include "image/digest.h"

#define PIECE     ((size_t)256 << 10)
#define NS_PER_S  INT64_C(1000000000)
#define MAX_XATTR 4096

/* A file with several names, under its first. */
struct first_name {
        dev_t dev;
        ino_t ino;
        const char *path;
};

struct packing {
        struct op *op;
        int out_fd;
        struct buf out;
        struct digest digest;
        uint64_t size;
        dev_t dev;
        struct arena arena;
        struct first_name *names; /* a table by hash; room is a power of two, or 0 */
        size_t n_names, names_room;
};

static int flush_out(struct packing *p, size_t at_least, struct err *err)
{
        int r = 0;

        if (buf_failed(&p->out))
                return err_set(err, ERR_BUSY, "no memory for an archive");
        if (p->out.len < at_least)
                return 0;
        digest_add(&p->digest, buf_str(&p->out), p->out.len);
        p->size += p->out.len;
        r = fd_write_all(p->out_fd, buf_str(&p->out), p->out.len, err);
        buf_clear(&p->out);
        return r;
}

static int changed(struct err *err, const char *path)
{
        return err_set(err, ERR_CONFLICT, "'%.200s' changed while it was read", path);
}

/* Hard links */

static struct first_name *name_slot(struct first_name *names, size_t room, dev_t dev, ino_t ino)
{
        size_t i = (size_t)(ino * UINT64_C(0x9e3779b97f4a7c15) >> 20);

        while (names[i & (room - 1)].path &&
               (names[i & (room - 1)].ino != ino || names[i & (room - 1)].dev != dev))
                i++;
        return &names[i & (room - 1)];
}

/* The first name of a file that has several; NULL: this is it. */
static const char *first_name(struct packing *p, const struct stat *st, const char *path)
{
        struct first_name *slot;

        if (st->st_nlink < 2)
                return NULL;
        if (2 * (p->n_names + 1) > p->names_room) {
                size_t room = MAX(2 * p->names_room, (size_t)1024);
                struct first_name *larger = xcalloc(room, sizeof(*larger));

                for (size_t i = 0; i < p->names_room; i++)
                        if (p->names[i].path)
                                *name_slot(larger, room, p->names[i].dev, p->names[i].ino) =
                                        p->names[i];
                free(p->names);
                p->names = larger;
                p->names_room = room;
        }
        slot = name_slot(p->names, p->names_room, st->st_dev, st->st_ino);
        if (slot->path)
                return slot->path;
        *slot = (struct first_name){ st->st_dev, st->st_ino, arena_strdup(&p->arena, path) };
        p->n_names++;
        return NULL;
}

/* Entries */

static void take_xattrs(int fd, struct buf *xattrs)
{
        char names[MAX_XATTR], value[MAX_XATTR];
        ssize_t n = flistxattr(fd, names, sizeof(names));

        for (const char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
                ssize_t len = str_starts(name, "user.") && !str_starts(name, "user.overlay.")
                                      ? fgetxattr(fd, name, value, sizeof(value))
                                      : -1;

                if (len >= 0)
                        tar_put_xattr(xattrs, name, value, (size_t)len);
        }
}

static int pack_content(struct packing *p, int fd, const struct tar_entry *e, struct err *err)
{
        uint64_t at = 0;
        int r = 0;

        while (at < e->size && r >= 0) {
                size_t want = (size_t)MIN(e->size - at, (uint64_t)PIECE);
                char *to = buf_reserve(&p->out, want);
                ssize_t n = to ? pread(fd, to, want, (off_t)at) : -1;

                if (n < 0 && errno == EINTR && to)
                        continue;
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read '%.200s'", e->path);
                if (n == 0)
                        return changed(err, e->path);
                buf_grew(&p->out, (size_t)n);
                at += (uint64_t)n;
                r = flush_out(p, PIECE, err);
                if (r >= 0)
                        r = op_check(p->op, err);
        }
        tar_pad(&p->out, e->size);
        return r;
}

static int pack_file(struct packing *p, int at, const char *name, struct tar_entry *e,
                     const struct stat *st, struct err *err)
{
        CLEAN(cleanup_fd)
        int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        CLEAN(buf_done) struct buf xattrs = { .max = TAR_MAX_META };
        struct stat now;
        int r;

        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "read '%.200s'", e->path);
        take_xattrs(fd, &xattrs);
        e->size = (uint64_t)st->st_size;
        tar_put_layer(&p->out, e, &xattrs);
        r = pack_content(p, fd, e, err);
        if (r < 0)
                return r;
        return fstat(fd, &now) == 0 && now.st_ino == st->st_ino && now.st_size == st->st_size &&
                               now.st_mtim.tv_sec == st->st_mtim.tv_sec &&
                               now.st_mtim.tv_nsec == st->st_mtim.tv_nsec
                       ? 0
                       : changed(err, e->path);
}

static int pack_dir(struct packing *p, int fd, const char *path, struct err *err);

static int pack_entry(struct packing *p, int at, const char *name, const char *dir, struct err *err)
{
        CLEAN(cleanup_free)
        struct tar_entry *e = xcalloc(1, sizeof(*e)); /* too large for the stack */
        CLEAN(buf_done) struct buf none = BUF_INIT;
        const char *first;
        struct stat st;
        int n = snprintf(e->path, sizeof(e->path), "%s%s%s", dir, *dir ? "/" : "", name);
        int r = op_check(p->op, err);

        if (r < 0)
                return r;
        if (n < 0 || (size_t)n >= sizeof(e->path) || !tree_path_ok(e->path))
                return err_set(err, ERR_UNPROCESSABLE,
                               "'%.200s' in '%.200s' is too long or too deep", name, dir);
        if (str_starts(name, ".wh."))
                return err_set(err, ERR_UNPROCESSABLE,
                               "'%.200s' cannot be part of an image: names that begin with .wh. "
                               "mean that something is removed",
                               e->path);
        if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return err_sys(err, ERR_IO, errno, "look at '%.200s'", e->path);
        e->mode = st.st_mode & 0777;
        e->special = st.st_mode & 07000;
        e->uid = st.st_uid;
        e->gid = st.st_gid;
        e->mtime_ns = (int64_t)st.st_mtim.tv_sec * NS_PER_S;
        if (S_ISDIR(st.st_mode)) {
                CLEAN(cleanup_fd)
                int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                CLEAN(buf_done) struct buf xattrs = { .max = TAR_MAX_META };

                if (fd < 0)
                        return err_sys(err, ERR_IO, errno, "read '%.200s'", e->path);
                e->kind = TAR_DIR;
                take_xattrs(fd, &xattrs);
                tar_put_layer(&p->out, e, &xattrs);
                return st.st_dev == p->dev ? pack_dir(p, fd, e->path, err) : 0;
        }
        first = S_ISREG(st.st_mode) || S_ISLNK(st.st_mode) ? first_name(p, &st, e->path) : NULL;
        if (first) {
                e->kind = TAR_HARD;
                memcpy(e->target, first, strlen(first) + 1);
        } else if (S_ISREG(st.st_mode)) {
                e->kind = TAR_FILE;
                return pack_file(p, at, name, e, &st, err);
        } else if (S_ISLNK(st.st_mode)) {
                ssize_t len = readlinkat(at, name, e->target, sizeof(e->target) - 1);

                if (len <= 0)
                        return err_sys(err, ERR_IO, errno, "read the link '%.200s'", e->path);
                e->target[len] = '\0';
                e->kind = TAR_LINK;
        } else if (S_ISFIFO(st.st_mode)) {
                e->kind = TAR_FIFO;
        } else {
                return 0;
        }
        tar_put_layer(&p->out, e, &none);
        return flush_out(p, PIECE, err);
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
        return strcmp((*a)->d_name, (*b)->d_name);
}

static int pack_dir(struct packing *p, int fd, const char *path, struct err *err)
{
        struct dirent **found = NULL;
        int n = scandirat(fd, ".", &found, NULL, compare_names), r = 0;

        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read '%.200s'", path);
        for (int i = 0; i < n; i++) {
                const char *name = found[i]->d_name;

                if (r >= 0 && !streq(name, ".") && !streq(name, ".."))
                        r = pack_entry(p, fd, name, path, err);
                free(found[i]);
        }
        free(found);
        return r;
}

/* The configuration */

static void put_list(struct jw *w, const char *key, const char *const *list)
{
        if (!list || !*list)
                return;
        jw_key(w, key);
        jw_array(w);
        for (; *list; list++)
                jw_string(w, *list);
        jw_array_end(w);
}

static void put_text(struct jw *w, const char *key, const char *text)
{
        if (text && *text)
                jw_kstring(w, key, text);
}

static void put_config(struct buf *b, const struct image_config *c, const char *diff_id)
{
        struct image_platform platform;
        struct jw w;

        image_platform_here(&platform);
        jw_init(&w, b);
        jw_object(&w);
        jw_kstring(&w, "architecture", platform.architecture);
        jw_kstring(&w, "os", platform.os);
        put_text(&w, "variant", platform.variant);
        jw_key(&w, "config");
        jw_object(&w);
        if (c) {
                put_text(&w, "User", c->user);
                put_text(&w, "WorkingDir", c->working_dir);
                put_list(&w, "Env", c->env);
                put_list(&w, "Entrypoint", c->entrypoint);
                put_list(&w, "Cmd", c->cmd);
        }
        jw_object_end(&w);
        jw_key(&w, "rootfs");
        jw_object(&w);
        jw_kstring(&w, "type", "layers");
        put_list(&w, "diff_ids", (const char *const[]){ diff_id, NULL });
        jw_object_end(&w);
        jw_object_end(&w);
}

int image_from_dir(struct op *op, int dir_fd, const struct image_config *config, int to_fd,
                   struct image *ret, struct err *err)
{
        struct packing p = { .op = op, .out_fd = to_fd };
        CLEAN(buf_done) struct buf text = { .max = IMAGE_MAX_DOCUMENT };
        struct tar_entry *root = arena_new(op->arena, struct tar_entry);
        CLEAN(buf_done) struct buf none = BUF_INIT;
        char digest[IMAGE_DIGEST_SIZE];
        struct stat st;
        int r = 0;

        if (fstat(dir_fd, &st) < 0 || !S_ISDIR(st.st_mode))
                return err_set(err, ERR_INVALID, "an image is made from a directory");
        p.dev = st.st_dev;
        arena_init(&p.arena);
        digest_begin(&p.digest);
        *root = (struct tar_entry){ .kind = TAR_DIR,
                                    .path = "./",
                                    .mode = st.st_mode & 0777,
                                    .special = st.st_mode & 07000,
                                    .uid = st.st_uid,
                                    .gid = st.st_gid,
                                    .mtime_ns = (int64_t)st.st_mtim.tv_sec * NS_PER_S };
        tar_put_layer(&p.out, root, &none);
        r = pack_dir(&p, dir_fd, "", err);
        if (r >= 0) {
                tar_end(&p.out);
                r = flush_out(&p, 0, err);
        }
        digest_end(&p.digest, digest);
        put_config(&text, config, digest);
        if (r >= 0)
                r = image_of_one_layer(op, buf_str(&text), text.len, digest, p.size, ret, err);
        buf_done(&p.out);
        arena_done(&p.arena);
        free(p.names);
        return r < 0 ? r : 0;
}
