/* Walking a directory into a manifest, without reading again what did not change.
 *
 * Names are read and files hashed by a few threads; entries come out in order (codec/tree.h), with
 * a bounded window, so memory does not grow with the tree. Nothing is followed: every step is an
 * open beneath the directory before it. Sockets, FIFOs and devices are left out and counted; so is
 * what cannot be read, by name. A file that changes while it is read is read again, and taken as it
 * is after the third time.
 *
 * Part of berth and of berth-box: base, codec, libsodium and libc only. Blocking; any thread. */
#ifndef BERTH_WORKSPACE_SCAN_H
#define BERTH_WORKSPACE_SCAN_H

#include "codec/tree.h"

/* Paths to leave out, by the rules of remote-execution 2.7: "x" the path x and what is beneath it;
 * "base/∗" what is beneath base; "∗/name" and "∗/name/∗" (with plain asterisks) a part of that name
 * at any depth. ".paperclip-runtime" at the root, and names that begin with "._", are always left
 * out. Borrowed strings. */
struct excludes {
        const char *const *patterns; /* NULL-terminated; may be NULL */
};

bool excludes_match(const struct excludes *x, const char *path);

/* What is known of files that were read before: hash by device, inode, size, mtime and ctime. One
 * file, replaced as a whole when the scan is done; a broken one is an empty one. NULL path: none.
 * A file changed within the last two seconds before it was read is not remembered. */

struct scan_options {
        const struct excludes *excludes;
        const char *cache_path; /* NULL: none */
        unsigned threads;       /* 0: as many as there are processors, at most 4 */
        uint64_t max_entries;   /* 0: TREE_MAX_COUNT */
        /* 0 goes on; anything else ends the scan with it. Called often. May be NULL. */
        int (*check)(void *ctx, struct err *err);
        void *ctx;
};

struct scan_skipped {
        uint64_t special;    /* sockets, FIFOs, devices */
        uint64_t unreadable; /* files and directories that could not be read */
        uint64_t too_long;   /* names and paths beyond the limits */
        char first_unreadable[256];
};

struct scan;

/* Takes dir_fd. */
int scan_open(int take_dir_fd, const struct scan_options *options, struct scan **ret,
              struct err *err);
struct tree_source *scan_source(struct scan *s);
const struct scan_skipped *scan_skipped(const struct scan *s);
/* Entries so far and bytes that were really read: for progress and for tests of the cache. */
uint64_t scan_count(const struct scan *s);
uint64_t scan_bytes_read(const struct scan *s);
/* Saves the cache when the scan came to its end. */
void scan_close(struct scan *s);

/* One path as the scan would see it: 1, 0 when it is not there (or of a kind that is left out). */
int scan_one(int dir_fd, const char *path, bool with_hash, struct tree_entry *ret,
             char target[TREE_MAX_TARGET + 1], struct err *err);

/* A manifest in a file (zstd), written by temporary file and rename, and read as a stream. */
int manifest_write(int dir_fd, const char *name, struct tree_source *from, uint64_t *ret_count,
                   uint64_t *ret_bytes, struct err *err);
struct manifest_file;
int manifest_open(int dir_fd, const char *name, struct manifest_file **ret, struct err *err);
struct tree_source *manifest_source(struct manifest_file *m);
void manifest_close(struct manifest_file *m);

/* Walk two trees side by side; fn is called for every path that is not the same (tree_same()) in
 * both, with NULL for a side that has none. */
typedef int (*tree_diff_fn)(void *ctx, const struct tree_entry *a, const struct tree_entry *b,
                            struct err *err);
int tree_diff(struct tree_source *a, struct tree_source *b, tree_diff_fn fn, void *ctx,
              struct err *err);

#endif
