/* Packs a tree into a tar archive, unpacks one, and finds what differs. */
#define _GNU_SOURCE
#include "workspace/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "codec/tar.h"
#include "workspace/apply.h"
#include "workspace/chunk.h"
#include "workspace/owner.h"
#include "workspace/sync_file.h"

#define PIECE ((size_t)256 << 10)

/* Packing: the manifest is written from a source that packs each entry as it is asked for. */

struct packing {
        struct tree_source source;
        struct op *op;
        struct tree_source *scan;
        struct apply reader;
        struct buf out;
        int out_fd;
        uint64_t files, bytes;
};

static int flush(struct packing *p, size_t at_least, struct err *err)
{
        int r = 0;

        if (buf_failed(&p->out))
                return err_set(err, ERR_BUSY, "no memory for an archive");
        if (p->out.len >= at_least) {
                r = fd_write_all(p->out_fd, buf_str(&p->out), p->out.len, err);
                buf_clear(&p->out);
        }
        return r;
}

/* The size is in the header already: a file that shrank is filled up with zeros. */
static int pack_content(struct packing *p, int fd, struct tree_entry *e, struct err *err)
{
        crypto_generichash_state state;
        uint64_t at = 0;
        int r = 0;

        (void)crypto_generichash_init(&state, NULL, 0, TREE_HASH);
        while (at < e->size && r >= 0) {
                size_t want = (size_t)MIN(e->size - at, (uint64_t)PIECE);
                char *to = buf_reserve(&p->out, want);
                ssize_t n = to ? pread(fd, to, want, (off_t)at) : -1;

                if (n < 0 && errno == EINTR && to)
                        continue;
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read %s", e->path);
                if (n == 0) {
                        memset(to, 0, want);
                        n = (ssize_t)want;
                }
                (void)crypto_generichash_update(&state, (const uint8_t *)to, (size_t)n);
                buf_grew(&p->out, (size_t)n);
                at += (uint64_t)n;
                r = flush(p, PIECE, err);
                if (r >= 0)
                        r = op_check(p->op, err);
        }
        (void)crypto_generichash_final(&state, e->hash, TREE_HASH);
        tar_pad(&p->out, e->size);
        return r;
}

/* 1 packed, 0 when it is not there any more. */
static int pack_file(struct packing *p, struct tree_entry *e, struct err *err)
{
        CLEAN(cleanup_fd) int fd = apply_open(&p->reader, e->path);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return 0;
        e->size = (uint64_t)st.st_size;
        tar_put(&p->out, e);
        int r = pack_content(p, fd, e, err);
        p->files++;
        p->bytes += e->size;
        return r < 0 ? r : 1;
}

static int pack_next(struct tree_source *source, struct tree_entry *ret, struct err *err)
{
        struct packing *p = container_of(source, struct packing, source);
        int r;

        while ((r = tree_next(p->scan, ret, err)) > 0) {
                if (ret->kind == TREE_FILE) {
                        r = pack_file(p, ret, err);
                        if (r == 0)
                                continue;
                } else if (ret->kind != TREE_UNKNOWN) {
                        tar_put(&p->out, ret);
                }
                if (r >= 0)
                        r = flush(p, PIECE, err);
                return r < 0 ? r : 1;
        }
        return r;
}

int archive_pack(struct op *op, int tree_fd, struct tree_source *scan, int out_fd, int manifest_dir,
                 const char *name, uint64_t *ret_files, uint64_t *ret_bytes, struct err *err)
{
        struct packing p = { .source.next = pack_next, .op = op, .scan = scan, .out_fd = out_fd };
        struct owner owner;

        apply_init(&p.reader, fcntl(tree_fd, F_DUPFD_CLOEXEC, 3));
        int r = owner_find(tree_fd, &owner, &p.reader.owner, err);
        if (r >= 0)
                r = manifest_write(manifest_dir, name, &p.source, NULL, NULL, err);
        if (r >= 0) {
                tar_end(&p.out);
                r = flush(&p, 0, err);
        }
        apply_done(&p.reader);
        buf_done(&p.out);
        *ret_files = p.files;
        *ret_bytes = p.bytes;
        return r < 0 ? r : 0;
}

/* Unpacking */

struct unpacking {
        struct op *op;
        int in_fd;
        uint64_t at;
        struct apply apply;
        struct budget *budget;
        struct tar_entry entry;
};

static int read_block(struct unpacking *u, uint8_t block[TAR_BLOCK], struct err *err)
{
        ssize_t n = pread(u->in_fd, block, TAR_BLOCK, (off_t)u->at);

        u->at += TAR_BLOCK;
        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read an archive");
        return n == TAR_BLOCK ? 0 : err_set(err, ERR_INVALID, "an archive that ends too early");
}

static int put_file(struct unpacking *u, int from_fd, uint64_t offset, uint64_t size,
                    struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        int r = budget_take(u->budget, 0, size, u->entry.path, err);

        if (r >= 0)
                r = apply_file(&u->apply, u->entry.path, 0600, u->entry.mtime_ns, "", 0, err);

        if (r < 0 || size == 0)
                return r;
        fd = apply_open_to_write(&u->apply, u->entry.path);
        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "write %s", u->entry.path);
        r = sync_copy(from_fd, offset, fd, 0, size, err);
        return r < 0 ? r : op_check(u->op, err);
}

static int unpack_entry(struct unpacking *u, struct err *err)
{
        const struct tar_entry *e = &u->entry;
        CLEAN(cleanup_fd) int from = -1;
        struct stat st;
        int r;

        if (!e->path[0] || str_starts(e->path, ".paperclip-runtime/") ||
            streq(e->path, ".paperclip-runtime"))
                return 0;
        switch (e->kind) {
        case TAR_DIR:
                return apply_dir(&u->apply, e->path, e->mode, err);
        case TAR_LINK:
                return apply_link(&u->apply, e->path, e->target, err);
        case TAR_FILE:
                r = put_file(u, u->in_fd, u->at, e->size, err);
                break;
        case TAR_HARD:
                from = apply_open(&u->apply, e->target);
                if (from < 0 || fstat(from, &st) < 0)
                        return err_set(err, ERR_INVALID, "%s is a link to nothing", e->path);
                if (streq(e->path, e->target))
                        return 0;
                r = put_file(u, from, 0, (uint64_t)st.st_size, err);
                break;
        default:
                return 0;
        }
        return r < 0 ? r : apply_mode(&u->apply, e->path, e->mode, err);
}

int archive_unpack(struct op *op, int in_fd, int dir_fd, struct budget *budget, struct err *err)
{
        struct unpacking *u = xcalloc(1, sizeof(*u));
        struct tar_reader *reader = xcalloc(1, sizeof(*reader));
        uint8_t block[TAR_BLOCK];
        uint64_t count = 0;
        struct stat st;
        int r, got = 0;

        u->op = op;
        u->in_fd = in_fd;
        u->budget = budget;
        apply_init(&u->apply, fcntl(dir_fd, F_DUPFD_CLOEXEC, 3));
        tar_reader_init(reader);
        r = fstat(in_fd, &st) < 0 ? err_sys(err, ERR_IO, errno, "read an archive") : 0;
        while (r >= 0 && got != 2) {
                r = read_block(u, block, err);
                if (r >= 0)
                        r = got = tar_read(reader, block, &u->entry, err);
                if (r != 1)
                        continue;
                if (++count > TREE_MAX_COUNT || u->entry.size > (uint64_t)st.st_size - u->at)
                        r = err_set(err, ERR_INVALID, "an archive with more than there is");
                if (r >= 0)
                        r = budget_take(budget, 1, 0, u->entry.path, err);
                if (r >= 0)
                        r = unpack_entry(u, err);
                u->at += (u->entry.size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
        }
        if (r >= 0)
                r = apply_finish(&u->apply, err);
        apply_done(&u->apply);
        tar_reader_done(reader);
        free(reader);
        free(u);
        return r < 0 ? r : 0;
}

/* What differs */

struct gathering {
        struct op *op;
        struct apply reader;
        struct bundle_writer *into;
};

static int keep_content(struct gathering *g, const struct tree_entry *now, struct err *err)
{
        CLEAN(cleanup_fd) int from = apply_open(&g->reader, now->path);
        CLEAN(cleanup_fd) int to = -1;

        if (from < 0)
                return err_sys(err, ERR_IO, errno, "open %s", now->path);
        int r = bundle_new_file(g->into, &to, err);
        if (r >= 0)
                r = sync_copy(from, 0, to, 0, now->size, err);
        return r < 0 ? r : bundle_keep(g->into, take_fd(&to), now->hash, now->size, err);
}

static int on_difference(void *ctx, const struct tree_entry *was, const struct tree_entry *now,
                         struct err *err)
{
        struct gathering *g = ctx;
        struct change c = { .is_delete = now == NULL, .has_was = was != NULL };
        const struct tree_entry *entry = now ? now : was;
        int r = 0;

        if (!entry)
                return 0;
        c.now = *entry;
        if (was)
                c.was = *was;
        if (now && now->kind == TREE_FILE && !bundle_has(g->into, now->hash))
                r = keep_content(g, now, err);
        return r < 0 ? r : bundle_add(g->into, &c, err);
}

int archive_changes(struct op *op, int manifest_dir, const char *baseline, const char *next,
                    int dir_fd, struct bundle_writer *into, struct err *err)
{
        struct gathering g = { .op = op, .into = into };
        struct manifest_file *was = NULL, *now = NULL;
        int r = manifest_open(manifest_dir, baseline, &was, err);

        apply_init(&g.reader, fcntl(dir_fd, F_DUPFD_CLOEXEC, 3));
        if (r >= 0)
                r = manifest_open(manifest_dir, next, &now, err);
        if (r >= 0)
                r = tree_diff(manifest_source(was), manifest_source(now), on_difference, &g, err);
        if (was)
                manifest_close(was);
        if (now)
                manifest_close(now);
        apply_done(&g.reader);
        return r < 0 ? r : 0;
}
