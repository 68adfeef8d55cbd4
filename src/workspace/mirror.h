/* Making one directory equal to another (remote-execution 2.9), by a merge that finds nothing of
 * ours to keep: temporary files and renames, no link followed, what is written to meanwhile kept
 * aside. Blocking; operation threads. */
#ifndef BERTH_WORKSPACE_MIRROR_H
#define BERTH_WORKSPACE_MIRROR_H

#include "workspace/merge.h"

struct mirror_options {
        /* Paths of the target that stay when the source has none, with all beneath them.
         * NULL-terminated; may be NULL. What a scan leaves out stays in any case. */
        const char *const *preserve_absent;
        const char *lock_path, *stamp; /* as in merge.h */
        bool set_owner;
};

int mirror_directory(struct op *op, int source_fd, int target_fd,
                     const struct mirror_options *options, struct merge_report *ret,
                     struct err *err);

#endif
