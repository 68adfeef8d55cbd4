/* The changes of a bundle, cut into pieces of any size. What the decoder accepts is in order, has
 * paths that stay where they should, and is written back as the same bytes. */
#include "workspace/change_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_state(const struct tree_entry *e)
{
        if (e->kind < TREE_DIR || e->kind > TREE_LINK || e->mode > 0777 || e->size > TREE_MAX_SIZE)
                abort();
        if ((e->kind == TREE_LINK) != (e->target != NULL))
                abort();
        if (e->target && (*e->target == '\0' || strlen(e->target) > TREE_MAX_TARGET))
                abort();
}

static void check_change(const struct change *c, char last[TREE_MAX_PATH + 1], bool is_first)
{
        if (!tree_path_ok(c->now.path) || (!is_first && tree_compare(last, c->now.path) >= 0))
                abort();
        memcpy(last, c->now.path, strlen(c->now.path) + 1);
        if (!c->is_delete)
                check_state(&c->now);
        if (c->has_was)
                check_state(&c->was);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(buf_done) struct buf again = BUF_INIT;
        static char last[TREE_MAX_PATH + 1];
        static struct change_decoder d;
        size_t piece = size > 0 ? 1 + data[size - 1] : 1, at = 0;
        struct change c;
        int r = 0;

        change_decode_init(&d);
        change_encode_begin(&again);
        while (r >= 0 && !d.done && at < size) {
                size_t n = MIN(piece, size - at);

                change_decode_feed(&d, data + at, n);
                at += n;
                while ((r = change_decode_next(&d, &c, NULL)) > 0) {
                        check_change(&c, last, d.count == 1);
                        change_encode(&again, &c);
                }
        }
        if (d.done) {
                size_t used = at - (d.in.len - d.used);

                change_encode_end(&again, d.count);
                if (again.len != used || memcmp(again.data, data, used) != 0)
                        abort();
        }
        change_decode_done(&d);
        return 0;
}
