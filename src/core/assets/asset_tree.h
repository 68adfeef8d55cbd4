/* The tree of one asset: files for an agent's program beside the work, put together from files of
 * this machine before they are brought into a place (run_assets.h).
 *
 * Files become 0600, executable files 0700, directories 0700. Where links are followed, the content
 * of their target is taken, and the target may not lie outside the directory that is added: an
 * agent may have written the files in there, and an agent reads the copies. Pipes, sockets and
 * devices, and names that begin with "._", are left out. Exceeding any limit is ERR_TOO_LARGE.
 *
 * The key is a hash of all that was added, names and contents. A tree without a directory (fd -1)
 * only counts and hashes.
 *
 * Operation threads. */
#pragma once

#include <sodium.h>

#include "rt/op.h"

#define ASSET_FILES_MAX   10000
#define ASSET_ENTRIES_MAX 20000 /* looked at, counted on every path to them */
#define ASSET_BYTES_MAX   ((uint64_t)256 << 20)
#define ASSET_DEPTH_MAX   32
#define ASSET_KEY_LEN     64

struct asset_tree {
        struct op *op;
        int fd;
        uint64_t files, bytes;
        uint64_t entries; /* of directories */
        crypto_hash_sha256_state hash;
};

/* An empty directory at `path`, whose parent exists; NULL: none. */
int asset_tree_init(struct asset_tree *t, struct op *op, const char *path, struct err *err);
void asset_tree_done(struct asset_tree *t);

/* All of a directory as `to` ("": the root). `from` may be a link. Names in `exclude`
 * (NULL-terminated; may be NULL) are left out at every depth. */
int asset_tree_add_dir(struct asset_tree *t, const char *from, const char *to, bool follow,
                       const char *const *exclude, struct err *err);
/* One file; `follow`: it may be a link to anywhere, otherwise a link is left out. 1, or 0 when the
 * file does not exist. */
int asset_tree_add_file(struct asset_tree *t, const char *from, const char *to, bool follow,
                        struct err *err);
/* A link, whatever its target. */
int asset_tree_add_link(struct asset_tree *t, const char *target, const char *to, struct err *err);
int asset_tree_add_text(struct asset_tree *t, const char *to, const char *text, struct err *err);
/* Add a text to the key only. */
void asset_tree_note(struct asset_tree *t, const char *text);

/* Remove a directory and all that is in it; a missing directory is not an error. */
int asset_tree_remove(const char *path, struct err *err);

/* Once. */
void asset_tree_key(struct asset_tree *t, char ret[ASSET_KEY_LEN + 1]);
