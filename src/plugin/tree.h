/* Directory trees: a checksum over all of one, removing one, and making one fit for another user.
 * Symbolic links are never followed. Operations: all look after the deadline and the cancel. */
#pragma once

#include <sys/types.h>

#include "rt/op.h"

#define TREE_MAX_DEPTH 128
#define TREE_MAX_FILES 300000
#define TREE_MAX_BYTES ((int64_t)4 << 30)

#define TREE_CHECKSUM_MAX 80

#define TREE_COPY_MAX_FILES 20000
#define TREE_COPY_MAX_BYTES ((int64_t)256 << 20)

/* "blake2b-256:<hex>" over names, kinds, the right to execute, link targets and contents of all
 * that is below `path`, in the order of the names. `.git` is left out. ERR_TOO_LARGE past the
 * limits above; ERR_NOT_FOUND when there is no such directory. */
int tree_checksum(const struct op *op, const char *path, char ret[TREE_CHECKSUM_MAX],
                  struct err *err);

/* Remove `path` with all that is below it. That it is not there is fine. */
int tree_remove(const struct op *op, const char *path, struct err *err);

/* These three take a directory or a file. */

/* 1 when every user may read all of it and enter all its directories, 0 when not. Directories above
 * it do not count, nor does the content of the directories `without` (NULL-terminated; NULL:
 * none). */
int tree_is_open(const struct op *op, const char *path, const char *const *without,
                 struct err *err);
/* Let every user read it, and execute what the owner may execute. */
int tree_open_up(const struct op *op, const char *path, struct err *err);
/* A copy in the directory `into`, under its own name, that belongs to `owner` and that only `owner`
 * may read. Devices, pipes and sockets are left out, and the directories `without` are empty in it.
 * ERR_TOO_LARGE past the limits above. */
int tree_copy_for(const struct op *op, const char *path, const char *const *without,
                  const char *into, uid_t owner, struct err *err);
/* Make `owner` the owner of all of it. Files with several names are left alone: one of them may lie
 * elsewhere. */
int tree_give(const struct op *op, const char *path, uid_t owner, struct err *err);

/* Call fn for each name in the directory, in order. Less than 0 ends it. */
int tree_each(const char *path, int (*fn)(void *ctx, const char *name), void *ctx, struct err *err);
