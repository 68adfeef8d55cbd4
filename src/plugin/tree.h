/* Directory trees: a checksum over all of one, and removing one. Symbolic links are never followed.
 * Operations: both look after the deadline and the cancel. */
#ifndef BERTH_PLUGIN_TREE_H
#define BERTH_PLUGIN_TREE_H

#include "rt/op.h"

#define TREE_MAX_DEPTH 128
#define TREE_MAX_FILES 300000
#define TREE_MAX_BYTES ((int64_t)4 << 30)

#define TREE_CHECKSUM_MAX 80

/* "blake2b-256:<hex>" over names, kinds, the right to execute, link targets and contents of all
 * that is below `path`, in the order of the names. `.git` is left out. ERR_TOO_LARGE past the
 * limits above; ERR_NOT_FOUND when there is no such directory. */
int tree_checksum(const struct op *op, const char *path, char ret[TREE_CHECKSUM_MAX],
                  struct err *err);

/* Remove `path` with all that is below it. That it is not there is fine. */
int tree_remove(const struct op *op, const char *path, struct err *err);

/* Call fn for each name in the directory, in order. Less than 0 ends it. */
int tree_each(const char *path, int (*fn)(void *ctx, const char *name), void *ctx, struct err *err);

#endif
