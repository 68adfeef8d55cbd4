/* The content of one file: copying it, sharing the blocks where the file system can, and its hash.
 * Blocking; operation threads. */
#pragma once

#include "codec/tree.h"
#include "rt/op.h"

/* Open a file beneath dir_fd to read it: no link followed, no mount point crossed, and never
 * anything but a regular file (ERR_CONFLICT). */
int content_open(int dir_fd, const char *path, int *ret_fd, struct err *err);

/* Copy `size` bytes from the beginning of `from` into the empty file `to`. ERR_CONFLICT when the
 * file has less by now. *ret_shared: the two share their blocks; may be NULL. */
int content_copy(struct op *op, int from_fd, int to_fd, uint64_t size, bool *ret_shared,
                 struct err *err);

/* Hash of the whole file, and how long it was. */
int content_hash(struct op *op, int fd, uint8_t ret_hash[TREE_HASH], uint64_t *ret_size,
                 struct err *err);
