/* Changes kept in a directory of ours: those that were brought home, before they are merged, and
 * those that were saved before a place was given up (a salvage).
 *
 *   DIR/changes       the changes (zstd), written last: a directory without it is no bundle
 *   DIR/files/<hash>  content, by BLAKE2b-256; one file for equal content
 *
 * Blocking; operation threads. */
#pragma once

#include "rt/op.h"
#include "workspace/budget.h"
#include "workspace/change.h"

struct bundle_writer;

/* Begins in an existing or a new directory; content that an interrupted one left there is used. */
int bundle_create(const char *dir, struct bundle_writer **ret, struct err *err);
/* Whether the content is there already. */
bool bundle_has(const struct bundle_writer *w, const uint8_t hash[TREE_HASH]);
/* A descriptor to write content to; bundle_keep() checks that it has the hash (ERR_INVALID) and the
 * size, and gives it its name. */
int bundle_new_file(struct bundle_writer *w, int *ret_fd, struct err *err);
int bundle_keep(struct bundle_writer *w, int take_fd, const uint8_t hash[TREE_HASH], uint64_t size,
                struct err *err);
/* In order. */
int bundle_add(struct bundle_writer *w, const struct change *c, struct err *err);
/* Everything is on disk when it returns. */
int bundle_finish(struct bundle_writer *w, struct err *err);
void bundle_close(struct bundle_writer *w); /* frees; unfinished ones stay for the next try */

/* Copy a whole change set in: reflink where the file system can. It is taken from the budget (may
 * be NULL). */
int bundle_take(struct op *op, struct bundle_writer *w, struct change_set *changes,
                struct budget *budget, struct err *err);

struct bundle_size {
        uint64_t changes, deletes, bytes;
};
/* ERR_NOT_FOUND: there is none, or it is not finished. */
int bundle_open(const char *dir, struct change_set **ret, struct bundle_size *ret_size,
                struct err *err);
int bundle_remove(struct op *op, const char *dir, struct err *err);
