/* One file on its way, either direction: what sync.h and serve.h share.
 *
 * A file up to SYNC_SMALL goes as one message. Of a larger one the sender names the chunks, the
 * receiver says which it lacks, the sender sends those; or all of it follows at once (SYNC_WHOLE),
 * when the sender knows that the receiver has nothing like it. BIG_END has the hash of what was
 * sent. The receiver puts the file together as part-<hash> in a directory of its own, where the
 * next try finds what arrived.
 *
 * Part of berth and of berth-box. Blocking; one thread. */
#pragma once

#include <sys/stat.h>

#include "workspace/chunk.h"
#include "workspace/sync_io.h"

/* Sending */

struct sync_out {
        int fd;
        uint32_t slot;
        uint64_t size;
        struct chunk_list chunks;
        uint8_t hash[TREE_HASH];
};

struct sync_sent {
        uint64_t size;
        uint8_t hash[TREE_HASH];
};

/* As one message. *ret is what was sent: a file that changed meanwhile is sent as it is now.
 * `entry` has path, mode and mtime. */
int sync_out_small(struct sync_io *io, uint32_t slot, int fd, const struct tree_entry *entry,
                   struct sync_sent *ret, struct err *err);
/* All of a large one: BIG, DATA, BIG_END. */
int sync_out_whole(struct sync_io *io, uint32_t slot, int fd, const struct tree_entry *entry,
                   struct sync_sent *ret, struct err *err);
/* BIG and its chunks; `o` is ready for the answer. o->fd belongs to the caller; o->hash is the hash
 * of its content. */
int sync_out_offer(struct sync_io *io, struct sync_out *o, const struct tree_entry *entry,
                   struct err *err);
/* The chunks that the bitmap asks for, and BIG_END. */
int sync_out_wanted(struct sync_io *io, const struct sync_out *o, struct frame_bytes bitmap,
                    struct err *err);
void sync_out_done(struct sync_out *o); /* closes fd */

/* Receiving */

struct sync_in {
        int fd;     /* the part; -1: none */
        int dir_fd; /* where it is; borrowed */
        char name[5 + 2 * TREE_HASH + 12];
        bool had_part, whole, all_chunks;
        uint64_t size, listed;
        struct chunk_list chunks;
        /* What has to come: all of it, or the chunks that were asked for, in order. A file is no
         * longer than what came, whatever its sender says. */
        uint8_t *wanted;      /* a bit for each chunk */
        size_t next_chunk;    /* where the next byte belongs: in this chunk, */
        uint64_t next_offset; /* and there in the file */
        uint64_t got, due;
        crypto_generichash_state *state; /* wants an alignment that the heap does not give */
};

/* The name of its part. */
void sync_in_name(struct sync_in *in, const struct sync_msg *big, bool twin);
/* `twin`: a file with the same content is on its way already, so the part needs another name. */
int sync_in_begin(struct sync_in *in, int parts_fd, const struct sync_msg *big, bool twin,
                  struct err *err);
/* 1 when these were the last. What a list of chunks says costs the memory of the list alone. */
int sync_in_chunks(struct sync_in *in, const struct sync_msg *m, struct err *err);
/* Take what the part and `old_fd` (-1: none) have; the rest is wanted. */
int sync_in_want(struct sync_io *io, struct sync_in *in, int old_fd, struct buf *ret_bitmap,
                 struct err *err);
/* Bytes come in the order of the file; ERR_INVALID for those that were not asked for. */
int sync_in_data(struct sync_in *in, const struct sync_msg *m, struct err *err);
/* 1 when the file is what the sender says, 0 when it is not. */
int sync_in_end(struct sync_io *io, struct sync_in *in, const struct sync_msg *end,
                struct err *err);
/* Forget the part, on disk too when `remove`. */
void sync_in_done(struct sync_in *in, bool remove);

/* Hashes of the parts in a directory: a blob for READY. */
void sync_parts_list(int parts_fd, struct buf *ret);
void sync_parts_remove(int parts_fd);

/* Copy the content of a file: reflink, copy_file_range, or plain. */
int sync_copy(int from_fd, uint64_t from_offset, int to_fd, uint64_t to_offset, uint64_t len,
              struct err *err);
