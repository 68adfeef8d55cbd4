/* Walking a directory into a manifest, without reading again what did not change.
 *
 * Files are hashed by a few threads; entries come out in order (codec/tree.h), with a bounded
 * window, so memory does not grow with the tree. Nothing is followed: every step is an open of one
 * name in the directory before it.
 *
 *   - An entry that cannot be read comes as TREE_UNKNOWN, so that it is not taken for deleted. So
 *     do mount points: a mount in a workspace is not part of it, as in an overlay. So does what is
 *     never part of a tree (excludes.never).
 *   - Sockets, FIFOs and devices are left out and counted; they are never opened.
 *   - A file that changes while it is read is read again, and taken as it is after the third time.
 *   - That descriptors or memory ran out is an error, never an unreadable file.
 *
 * Part of berth and of berth-box: base, codec, libsodium and libc only. Blocking; any thread, one
 * at a time for each scan. */
#pragma once

#include "codec/tree.h"

/* Paths to leave out, by the rules of remote-execution 2.7: "x" the path x and what is beneath it;
 * "base/∗" what is beneath base; "∗/name" and "∗/name/∗" (with plain asterisks) a part of that name
 * at any depth, at the root too. A leading "./" or "/" and a trailing "/" do not count.
 * ".paperclip-runtime" at the root, and names that begin with "._", are always left out, with or
 * without patterns (x may be NULL). Borrowed strings. */
struct excludes {
        const char *const *patterns; /* NULL-terminated; may be NULL */
        const struct tree_ids *never;
};

bool excludes_match(const struct excludes *x, const char *path);

/* Files and directories that are part of no tree, wherever they are met: told by what they are, so
 * that a mount or another link does not bring them in. */
struct tree_id {
        uint64_t dev, ino; /* dev: major << 32 | minor */
};
struct tree_ids {
        size_t n;
        bool has_links; /* one of the files has several names */
        struct tree_id at[];
};

struct stat;
struct tree_id tree_id_of(const struct stat *st);
/* Whether it is one of those; x may be NULL. */
bool excludes_never(const struct excludes *x, struct tree_id id);

/* The cache: what is known of files that were read before. The hash at a path holds while device,
 * inode, size, mtime and ctime are the same. One file, replaced as a whole when the scan came to
 * its end; a broken one is as good as none. A file that changed within the last two seconds before
 * it was read is not remembered: it could change again without a sign. */

struct owner;

struct scan_options {
        const struct excludes *excludes;
        const char *cache_path;    /* NULL: none */
        const struct owner *owner; /* owner.h: with whose rights; NULL: our own */
        unsigned threads;     /* 0: as many as there are processors, at most 4. 1: none but ours */
        uint64_t max_entries; /* 0: TREE_MAX_COUNT */
        /* 0 goes on; anything else ends the scan with it. Called often, by the thread that asks for
         * entries. May be NULL. */
        int (*check)(void *ctx, struct err *err);
        void *ctx;
        int64_t now_ns; /* for tests: the time to tell fresh changes by. 0: the clock's */
};

struct scan_skipped {
        uint64_t special;    /* sockets, FIFOs, devices */
        uint64_t unreadable; /* entries that are TREE_UNKNOWN */
        uint64_t too_long;   /* paths beyond the limits: in no manifest of either side */
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
uint64_t scan_bytes_read(struct scan *s);
/* Saves the cache when the scan came to its end. */
void scan_close(struct scan *s);

/* One path as it is now: 1, 0 when it is not there, which includes parents that are no directories.
 * Sockets, FIFOs, devices, mount points and what cannot be read are TREE_UNKNOWN: something is in
 * the way. ret->path is `path`. Without hash, a file's hash is zeros and it need not be readable.
 */
int scan_one(int dir_fd, const char *path, bool with_hash, struct tree_entry *ret,
             char target[TREE_MAX_TARGET + 1], struct err *err);

/* A manifest in a file (zstd), written by temporary file, sync and rename, and read as a stream;
 * one that is damaged or cut short is ERR_CORRUPT. ret_bytes: of all files; both may be NULL. */
int manifest_write(int dir_fd, const char *name, struct tree_source *from, uint64_t *ret_count,
                   uint64_t *ret_bytes, struct err *err);
struct manifest_file;
int manifest_open(int dir_fd, const char *name, struct manifest_file **ret, struct err *err);
struct tree_source *manifest_source(struct manifest_file *m);
void manifest_close(struct manifest_file *m);

/* Walk two trees side by side, how it was and how it is; fn is called, in order, for every path
 * that is not the same (tree_same()) in both, with NULL for a side that has none. An entry that is
 * unknown now, and all beneath it, is no difference; an entry that was unknown counts as if it had
 * not been there. So fn never sees TREE_UNKNOWN. Less than 0 from fn ends it. */
typedef int (*tree_diff_fn)(void *ctx, const struct tree_entry *was, const struct tree_entry *now,
                            struct err *err);
int tree_diff(struct tree_source *was, struct tree_source *now, tree_diff_fn fn, void *ctx,
              struct err *err);
