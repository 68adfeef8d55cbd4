/* One change as a reader wants to see it: the difference between what the host has now and what it
 * would have, in the format of `git diff`, so that `git apply` and `patch` take it. Binary and very
 * long files are named only. What a merge would leave as it is, or keep aside, its dry run tells
 * (merge.h). Nothing is followed. Blocking; operation threads. */
#ifndef BERTH_WORKSPACE_CHANGE_DIFF_H
#define BERTH_WORKSPACE_CHANGE_DIFF_H

#include "rt/op.h"
#include "workspace/change.h"

/* `c` is the last change of `set`. Appends nothing where the host has it already; directories are
 * not shown. 1: there is a difference. */
int change_diff(struct op *op, struct change_set *set, const struct change *c, int workspace_fd,
                struct buf *out, struct err *err);

#endif
