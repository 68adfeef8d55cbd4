/* The content of one file: copying it, sharing the blocks where the file system can, and its hash.
 * Blocking; operation threads. */
#ifndef BERTH_WORKSPACE_CONTENT_H
#define BERTH_WORKSPACE_CONTENT_H

#include "codec/tree.h"
#include "rt/op.h"

/* Copy `size` bytes from the beginning of `from` into the empty file `to`. ERR_CONFLICT when the
 * file has less by now. */
int content_copy(struct op *op, int from_fd, int to_fd, uint64_t size, struct err *err);

/* Hash of the whole file, and how long it was. */
int content_hash(struct op *op, int fd, uint8_t ret_hash[TREE_HASH], uint64_t *ret_size,
                 struct err *err);

#endif
