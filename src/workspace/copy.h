/* A copy of a tree, with shared blocks where the file system can. Blocking; operation threads. */
#pragma once

#include "rt/op.h"
#include "workspace/scan.h"

struct owner;

struct copy_options {
        const struct excludes *excludes;
        uid_t uid; /* the owner of the copy */
        gid_t gid;
        const struct owner *owner; /* owner.h: with whose rights; NULL: our own */
};

struct copy_result {
        uint64_t files, bytes;
};

/* Into an empty directory. No link is followed; entries other than files, links and directories,
 * and set-id bits, are left out. A file that the owner may not read is left out, as in a scan; any
 * other failure to read is an error. */
int tree_copy(struct op *op, int from_fd, int to_fd, const struct copy_options *options,
              struct copy_result *ret, struct err *err);
