/* Tree manifests: what a directory holds, as a stream of entries and as bytes.
 *
 * Entries come depth first, a directory before what is in it, siblings in the order of their bytes;
 * tree_compare() is that order. So two trees are compared by walking both once, in constant memory.
 *
 * A path is relative, its parts are separated by one slash, none is empty, "." or "..", and there
 * is no NUL; otherwise it is any bytes. The decoder takes nothing else, no entry out of order, and
 * none in anything but a directory that came before it: what it accepts is safe to hand to
 * openat2() part by part.
 *
 * A path that could not be read is an entry too: of kind TREE_UNKNOWN. Something is there, and
 * perhaps something beneath it, but it is not known what. It is equal to nothing, and code that
 * compares two trees must not conclude that a path beneath such an entry is absent
 * (workspace/scan.h, tree_diff()).
 *
 * Any thread. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define TREE_HASH       32 /* BLAKE2b-256 of the content */
#define TREE_MAX_PATH   4095
#define TREE_MAX_NAME   255
#define TREE_MAX_DEPTH  128
#define TREE_MAX_TARGET 4095
#define TREE_MAX_COUNT  10000000
#define TREE_MAX_SIZE   ((uint64_t)1 << 44) /* of one file */

enum tree_kind {
        TREE_DIR = 1,
        TREE_FILE = 2,
        TREE_LINK = 3,
        TREE_UNKNOWN = 4, /* could not be read; the path alone counts */
};

struct tree_entry {
        const char *path; /* NUL-terminated, borrowed until the next entry */
        enum tree_kind kind;
        uint32_t mode;           /* 0777 and no more; of files and directories, else 0 */
        uint64_t size;           /* of a file */
        int64_t mtime_ns;        /* of a file; for caches and readers, never compared */
        const char *target;      /* of a link, NUL-terminated; else NULL */
        uint8_t hash[TREE_HASH]; /* of a file */
};

/* Entries in order. next(): 1 with an entry, 0 at the end, ERR_*. */
struct tree_source {
        int (*next)(struct tree_source *s, struct tree_entry *ret, struct err *err);
};

static inline int tree_next(struct tree_source *s, struct tree_entry *ret, struct err *err)
{
        return s->next(s, ret, err);
}

int tree_compare(const char *a, const char *b);
/* Whether `path` is in `dir`, at any depth. */
bool tree_beneath(const char *path, const char *dir);
/* Whether the two are the same: kind; of a link the target; of a file hash, size and mode.
 * Directories always are (remote-execution 2.7); an unknown entry is never the same as anything. */
bool tree_same(const struct tree_entry *a, const struct tree_entry *b);
/* The same without the mode. */
bool tree_same_content(const struct tree_entry *a, const struct tree_entry *b);
bool tree_path_ok(const char *path);

/* Encoding: a header, entries that share the beginning of their path with the one before, an end
 * with their count. */
struct tree_encoder {
        struct buf *out; /* the caller may take bytes out of it between calls */
        char last[TREE_MAX_PATH + 1];
        uint64_t count;
};

void tree_encode_begin(struct tree_encoder *e, struct buf *out);
void tree_encode(struct tree_encoder *e, const struct tree_entry *entry);
void tree_encode_end(struct tree_encoder *e);

/* Decoding in pieces of any size. feed() takes a copy of what it does not use at once (bounded);
 * next(): 1 entry, 0 more bytes are needed, ERR_INVALID. done after the end was seen. */
struct tree_decoder {
        struct buf in;
        size_t used;
        bool begun, done, bad;
        uint64_t count;
        char path[TREE_MAX_PATH + 1];
        char target[TREE_MAX_TARGET + 1];
        enum tree_kind last_kind;
};

void tree_decode_init(struct tree_decoder *d);
void tree_decode_done(struct tree_decoder *d);
void tree_decode_feed(struct tree_decoder *d, const void *bytes, size_t len);
int tree_decode_next(struct tree_decoder *d, struct tree_entry *ret, struct err *err);
