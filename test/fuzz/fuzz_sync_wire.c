/* Messages between the daemon and a file worker: reading stays inside, what is accepted is written
 * back as it was, and its path is safe to open beneath a directory. */
#include "codec/sync_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_path(struct frame_bytes path)
{
        char text[TREE_MAX_PATH + 1];

        if (path.len == 0)
                return;
        if (path.len > TREE_MAX_PATH)
                abort();
        memcpy(text, path.p, path.len);
        text[path.len] = '\0';
        if (!tree_path_ok(text) || text[0] == '/' || strstr(text, "/../"))
                abort();
}

static void read_texts(struct frame_bytes blob)
{
        CLEAN(buf_done) struct buf again = BUF_INIT;
        struct frame_bytes all = blob, text;
        int r;

        while ((r = sync_text_next(&blob, &text, NULL)) > 0) {
                CLEAN(cleanup_free) char *copy = xstrndup(text.p, text.len);

                sync_text_add(&again, copy);
        }
        if (r == 0 && (again.len != all.len || (all.len && memcmp(again.data, all.p, all.len))))
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        size_t at = 0, len;
        struct sync_msg m;

        while (sync_msg_read(data + at, size - at, &m, &len, NULL) > 0) {
                CLEAN(buf_done) struct buf b = BUF_INIT;

                check_path(m.path);
                if (m.type == SYNC_TREE)
                        read_texts(m.blob);
                sync_msg_write(&b, &m);
                if (b.failed || b.len != len || memcmp(b.data, data + at, len) != 0)
                        abort();
                at += len;
        }
        return 0;
}
