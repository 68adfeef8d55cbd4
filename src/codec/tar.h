/* Tar archives: directories, files and links, in the old format with GNU's long names and numbers,
 * which every tar reads; and reading what tars of all kinds write, pax headers included.
 *
 * The reader is fed blocks of 512 bytes. It is meant for hostile archives: names are checked
 * (codec/tree.h) and headers are bounded. For layers of images (`is_layer`) it also reads owners,
 * extended attributes and sparse files, and a name may begin with "/", which means nothing.
 * Any thread. */
#pragma once

#include "codec/tree.h"

#define TAR_BLOCK    512
#define TAR_MAX_META 65536 /* of one extended header */
#define TAR_MAX_DATA 65536 /* pieces of a sparse file */

enum tar_kind { TAR_FILE = 1, TAR_DIR, TAR_LINK, TAR_HARD, TAR_OTHER, TAR_FIFO, TAR_DEVICE };

/* Append the header of an entry; of a file `size` bytes follow, then tar_pad(). */
void tar_put(struct buf *out, const struct tree_entry *entry);
/* The same with owners and all modes; `xattrs` is the content of a pax header (tar_put_xattr()) and
 * may be empty. */
struct tar_entry;
void tar_put_layer(struct buf *out, const struct tar_entry *entry, const struct buf *xattrs);
void tar_put_xattr(struct buf *xattrs, const char *name, const void *value, size_t len);
void tar_pad(struct buf *out, uint64_t size);
void tar_end(struct buf *out);

struct tar_entry {
        enum tar_kind kind;
        char path[TREE_MAX_PATH + 1]; /* as in codec/tree.h; empty: the directory itself */
        uint32_t mode;                /* 0777 and no more */
        uint32_t special;             /* of the mode: 07000 */
        uint32_t uid, gid;
        uint64_t size;      /* bytes that follow, in blocks; of any kind */
        uint64_t real_size; /* of a file: larger than `size` when it is sparse */
        bool is_sparse;     /* the bytes belong to the pieces of tar_reader.data */
        int64_t mtime_ns;
        char target[TREE_MAX_TARGET + 1]; /* of a link as it is; of a hard one a path */
};

/* A piece of a sparse file that is not a hole. */
struct tar_data {
        uint64_t offset, len;
};

/* What a map of pieces is read from, while it is being read. */
enum tar_map { TAR_MAP_NONE, TAR_MAP_BLOCKS, TAR_MAP_TEXT };

struct tar_reader {
        bool is_layer;   /* set by the caller after tar_reader_init() */
        struct buf meta; /* an extended header that is being read */
        uint64_t meta_left;
        char meta_type;
        bool has_path, has_target, has_size, has_mtime, has_uid, has_gid; /* by such headers */
        bool has_real_size, has_map_inside, has_sparse_name;
        enum tar_map map;
        uint64_t map_numbers, map_number; /* TAR_MAP_TEXT: how many to come, and the one begun */
        bool map_has_count, map_has_digit;
        struct tar_entry next;
        unsigned zeros;
        /* Of the entry that was returned last, until the next call: pieces in order, which do not
         * overlap and end within real_size; and extended attributes (tar_xattr()). */
        struct tar_data *data;
        size_t n_data, data_room;
        struct buf xattrs;
        bool returned;
};

void tar_reader_init(struct tar_reader *r);
void tar_reader_done(struct tar_reader *r);
/* One block that is no content: 1 with an entry, whose content follows; 0 for the next block; 2 at
 * the end of the archive; ERR_INVALID. */
int tar_read(struct tar_reader *r, const uint8_t block[TAR_BLOCK], struct tar_entry *ret,
             struct err *err);

/* The next extended attribute of the entry; *at begins with 0. False when there is no further one.
 * Borrowed until the next tar_read(). */
bool tar_xattr(const struct tar_reader *r, size_t *at, const char **ret_name,
               const void **ret_value, size_t *ret_len);
