/* Tar archives, as far as workspaces need them: directories, files and links, in the old format
 * with GNU's long names and numbers, which every tar reads; and reading what tars of all kinds
 * write, pax headers included.
 *
 * The reader is fed blocks of 512 bytes. It is meant for hostile archives: names are checked
 * (codec/tree.h), headers are bounded, entries other than directories, files and links are passed
 * over. Any thread. */
#pragma once

#include "codec/tree.h"

#define TAR_BLOCK    512
#define TAR_MAX_META 65536 /* of one extended header */

enum tar_kind { TAR_FILE = 1, TAR_DIR, TAR_LINK, TAR_HARD, TAR_OTHER };

/* Append the header of an entry; of a file `size` bytes follow, then tar_pad(). */
void tar_put(struct buf *out, const struct tree_entry *entry);
void tar_pad(struct buf *out, uint64_t size);
void tar_end(struct buf *out);

struct tar_entry {
        enum tar_kind kind;
        char path[TREE_MAX_PATH + 1]; /* as in codec/tree.h; empty: the directory itself */
        uint32_t mode;
        uint64_t size; /* bytes that follow, in blocks; of any kind */
        int64_t mtime_ns;
        char target[TREE_MAX_TARGET + 1]; /* of a link as it is; of a hard one a path */
};

struct tar_reader {
        struct buf meta; /* an extended header that is being read */
        uint64_t meta_left;
        char meta_type;
        bool has_path, has_target, has_size, has_mtime; /* said by extended headers */
        struct tar_entry next;
        unsigned zeros;
};

void tar_reader_init(struct tar_reader *r);
void tar_reader_done(struct tar_reader *r);
/* One block that is no content: 1 with an entry, whose content follows; 0 for the next block; 2 at
 * the end of the archive; ERR_INVALID. */
int tar_read(struct tar_reader *r, const uint8_t block[TAR_BLOCK], struct tar_entry *ret,
             struct err *err);
