/* A manifest from the other side: first byte, in pieces of which size; then the manifest. What is
 * accepted is in order, beneath directories that came before, and has this one encoding; and it
 * does not depend on the pieces in which it came. */
#include "codec/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct walk {
        char last[TREE_MAX_PATH + 1];
        struct tree_encoder encoder;
        struct buf again;
        int result;
        bool done;
};

static void must(bool condition)
{
        if (!condition)
                abort();
}

static void check_entry(struct walk *w, const struct tree_entry *e)
{
        must(tree_path_ok(e->path));
        must(tree_compare(w->last, e->path) < 0 && tree_compare(e->path, w->last) > 0);
        must(e->kind >= TREE_DIR && e->kind <= TREE_UNKNOWN);
        must(e->mode <= 0777 && e->size <= TREE_MAX_SIZE);
        must((e->kind == TREE_LINK) == (e->target != NULL));
        must(!e->target || (*e->target && strlen(e->target) <= TREE_MAX_TARGET));
        must(e->kind == TREE_UNKNOWN ? !tree_same(e, e) : tree_same(e, e));
        memcpy(w->last, e->path, strlen(e->path) + 1);
        tree_encode(&w->encoder, e);
}

static void walk(struct walk *w, const uint8_t *data, size_t size, size_t step)
{
        static struct tree_decoder d;
        struct tree_entry e;

        memset(w, 0, sizeof(*w));
        tree_decode_init(&d);
        tree_encode_begin(&w->encoder, &w->again);
        for (size_t at = 0; at < size && w->result >= 0; at += step) {
                tree_decode_feed(&d, data + at, MIN(step, size - at));
                while ((w->result = tree_decode_next(&d, &e, NULL)) > 0)
                        check_entry(w, &e);
        }
        w->done = d.done && w->result >= 0;
        tree_encode_end(&w->encoder);
        tree_decode_done(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static struct walk whole, pieces;

        if (size == 0)
                return 0;
        walk(&whole, data + 1, size - 1, size);
        walk(&pieces, data + 1, size - 1, (size_t)data[0] + 1);
        must(whole.result == pieces.result && whole.done == pieces.done);
        must(whole.encoder.count == pieces.encoder.count);
        if (whole.done)
                must(whole.again.len == size - 1 &&
                     memcmp(whole.again.data, data + 1, size - 1) == 0);
        buf_done(&whole.again);
        buf_done(&pieces.again);
        return 0;
}
