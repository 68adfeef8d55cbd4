/* An archive from somebody hostile: paths that come out are safe, and what is written is read. */
#include "codec/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const struct tar_entry *e)
{
        struct tree_entry out = { .path = e->path, .kind = TREE_FILE, .mode = e->mode };
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct tar_entry back = { 0 };
        struct tar_reader r;
        int found = 0;

        out.size = e->size;
        if (e->kind == TAR_DIR)
                out.kind = TREE_DIR;
        if (e->kind == TAR_LINK) {
                out.kind = TREE_LINK;
                out.target = e->target;
        }
        tar_put(&b, &out);
        tar_reader_init(&r);
        for (size_t at = 0; at < b.len && found == 0; at += TAR_BLOCK)
                found = tar_read(&r, (const uint8_t *)b.data + at, &back, NULL);
        tar_reader_done(&r);
        if (found != 1 || strcmp(back.path, e->path) != 0 || back.kind != e->kind ||
            back.size != e->size || (e->kind == TAR_LINK && strcmp(back.target, e->target) != 0))
                abort();
}

/* What only layers have: pieces in order, which are all that follows, and attributes with names. */
static void check_layer(const struct tar_reader *r, const struct tar_entry *e)
{
        uint64_t sum = 0, end = 0;
        const char *name;
        const void *value;
        size_t at = 0, len;

        for (size_t i = 0; e->is_sparse && i < r->n_data; i++) {
                if (r->data[i].offset < end)
                        abort();
                end = r->data[i].offset + r->data[i].len;
                sum += r->data[i].len;
        }
        if (e->is_sparse && (sum != e->size || end > e->real_size || e->kind != TAR_FILE))
                abort();
        while (tar_xattr(r, &at, &name, &value, &len))
                if (!*name || len > TAR_MAX_META || at > r->xattrs.len)
                        abort();
}

static void read_all(const uint8_t *data, size_t size, bool is_layer)
{
        struct tar_entry e;
        struct tar_reader r;
        size_t at = 0;
        int got = 0;

        tar_reader_init(&r);
        r.is_layer = is_layer;
        while (at + TAR_BLOCK <= size && (got = tar_read(&r, data + at, &e, NULL)) >= 0 &&
               got != 2) {
                at += TAR_BLOCK;
                if (got == 0)
                        continue;
                if (e.path[0] && !tree_path_ok(e.path))
                        abort();
                if (e.kind == TAR_HARD && !tree_path_ok(e.target))
                        abort();
                check_layer(&r, &e);
                if (e.path[0] && !e.is_sparse &&
                    (e.kind == TAR_FILE || e.kind == TAR_DIR || e.kind == TAR_LINK))
                        check_round_trip(&e);
                at += (size_t)MIN((e.size + TAR_BLOCK - 1) / TAR_BLOCK, (uint64_t)size) * TAR_BLOCK;
        }
        tar_reader_done(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        read_all(data, size, false);
        read_all(data, size, true);
        return 0;
}
