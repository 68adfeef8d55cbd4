/* Sending files: sync_file.h. */
#include "workspace/sync_file.h"

#include <errno.h>

static ssize_t read_full(int fd, char *p, size_t len, uint64_t offset)
{
        size_t got = 0;

        while (got < len) {
                ssize_t n = pread(fd, p + got, len - got, (off_t)(offset + got));

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -1;
                if (n == 0)
                        break;
                got += (size_t)n;
        }
        return (ssize_t)got;
}

static struct sync_msg about(uint8_t type, uint32_t slot, const struct tree_entry *entry)
{
        return (struct sync_msg){ .type = type,
                                  .slot = slot,
                                  .path = sync_text(entry->path),
                                  .mode = entry->mode,
                                  .mtime_ns = entry->mtime_ns };
}

int sync_out_small(struct sync_io *io, uint32_t slot, int fd, const struct tree_entry *entry,
                   struct sync_sent *ret, struct err *err)
{
        CLEAN(cleanup_free) char *content = xcalloc(1, (size_t)entry->size + 1);
        struct sync_msg m = about(SYNC_FILE, slot, entry);
        ssize_t n = read_full(fd, content, (size_t)entry->size, 0);

        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read %s", entry->path);
        (void)crypto_generichash(m.hash, TREE_HASH, (const uint8_t *)content, (size_t)n, NULL, 0);
        m.blob = (struct frame_bytes){ content, (size_t)n };
        memcpy(ret->hash, m.hash, TREE_HASH);
        ret->size = (uint64_t)n;
        return sync_send(io, &m, err);
}

static int send_end(struct sync_io *io, uint32_t slot, uint64_t size, const uint8_t hash[TREE_HASH],
                    struct err *err)
{
        struct sync_msg m = { .type = SYNC_BIG_END, .slot = slot, .size = size };

        memcpy(m.hash, hash, TREE_HASH);
        return sync_send(io, &m, err);
}

/* A run of the file as DATA; *ret_sent is less when the file is shorter by now. */
static int send_run(struct sync_io *io, uint32_t slot, int fd, uint64_t offset, uint64_t len,
                    crypto_generichash_state *hash, uint64_t *ret_sent, struct err *err)
{
        CLEAN(cleanup_free) char *piece = xcalloc(1, SYNC_PIECE);
        uint64_t at = 0;
        int r = 0;

        while (at < len && r >= 0) {
                ssize_t n = read_full(fd, piece, (size_t)MIN(len - at, (uint64_t)SYNC_PIECE),
                                      offset + at);
                struct sync_msg m = { .type = SYNC_DATA,
                                      .slot = slot,
                                      .offset = offset + at,
                                      .blob = { piece, n > 0 ? (size_t)n : 0 } };

                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read a file");
                if (n == 0)
                        break;
                if (hash)
                        (void)crypto_generichash_update(hash, (const uint8_t *)piece, (size_t)n);
                at += (uint64_t)n;
                r = sync_send(io, &m, err);
                if (r >= 0)
                        r = sync_io_check(io, err);
        }
        *ret_sent = at;
        return r;
}

int sync_out_whole(struct sync_io *io, uint32_t slot, int fd, const struct tree_entry *entry,
                   struct sync_sent *ret, struct err *err)
{
        struct sync_msg m = about(SYNC_BIG, slot, entry);
        crypto_generichash_state state;

        m.size = entry->size;
        m.flags = SYNC_WHOLE;
        memcpy(m.hash, entry->hash, TREE_HASH);
        int r = sync_send(io, &m, err);
        if (r < 0)
                return r;
        (void)crypto_generichash_init(&state, NULL, 0, TREE_HASH);
        r = send_run(io, slot, fd, 0, entry->size, &state, &ret->size, err);
        (void)crypto_generichash_final(&state, ret->hash, TREE_HASH);
        return r < 0 ? r : send_end(io, slot, ret->size, ret->hash, err);
}

static int send_chunks(struct sync_io *io, const struct sync_out *o, struct err *err)
{
        CLEAN(buf_done) struct buf list = BUF_INIT;
        struct frame_out f = { &list, 0 };
        int r = 0;

        for (size_t i = 0; i <= o->chunks.n && r >= 0; i++) {
                bool last = i == o->chunks.n;

                if (!last) {
                        frame_put_u64(&f, o->chunks.at[i].len);
                        frame_put_blob(&f, o->chunks.at[i].id, TREE_HASH);
                }
                if (!last && list.len < SYNC_CHUNKS * SYNC_CHUNK_SIZE)
                        continue;
                r = sync_send(io,
                              &(struct sync_msg){ .type = SYNC_CHUNKS_ARE,
                                                  .slot = o->slot,
                                                  .flags = last ? SYNC_LAST : 0,
                                                  .blob = { buf_str(&list), list.len } },
                              err);
                buf_clear(&list);
        }
        return r;
}

int sync_out_offer(struct sync_io *io, struct sync_out *o, const struct tree_entry *entry,
                   struct err *err)
{
        struct sync_msg m = about(SYNC_BIG, o->slot, entry);

        o->chunks.n = 0;
        int r = chunk_file(o->fd, entry->size, chunk_average(entry->size), &o->chunks, o->hash,
                           io->check, io->ctx, err);
        if (r < 0)
                return r;
        o->size = 0;
        for (size_t i = 0; i < o->chunks.n; i++)
                o->size += o->chunks.at[i].len;
        m.size = o->size;
        memcpy(m.hash, o->hash, TREE_HASH);
        r = sync_send(io, &m, err);
        return r < 0 ? r : send_chunks(io, o, err);
}

int sync_out_wanted(struct sync_io *io, const struct sync_out *o, struct frame_bytes bitmap,
                    struct err *err)
{
        int r = 0;

        if (bitmap.len != (o->chunks.n + 7) / 8)
                return err_set(err, ERR_INVALID, "chunks were asked for that do not exist");
        for (size_t i = 0; i < o->chunks.n && r >= 0; i++) {
                const struct chunk *c = &o->chunks.at[i];
                uint64_t sent;

                if (bitmap.p[i / 8] & 1 << (i % 8))
                        r = send_run(io, o->slot, o->fd, c->offset, c->len, NULL, &sent, err);
        }
        return r < 0 ? r : send_end(io, o->slot, o->size, o->hash, err);
}

void sync_out_done(struct sync_out *o)
{
        if (o->fd >= 0)
                close(o->fd);
        chunk_list_done(&o->chunks);
        *o = (struct sync_out){ .fd = -1 };
}
