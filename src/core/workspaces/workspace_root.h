/* Which directories of this machine a caller may name. */
#ifndef BERTH_CORE_WORKSPACE_ROOT_H
#define BERTH_CORE_WORKSPACE_ROOT_H

#include "core/runtime.h"

/* 0 when `path` is an existing directory beneath one of the configured roots, no symlink leading
 * out of it; else ERR_UNPROCESSABLE with a text that names the roots. */
int workspace_root_check(const struct runtime *rt, const char *path, struct err *err);

/* Open it, and say where it really is (in the arena). */
int workspace_root_open(const struct runtime *rt, const char *path, struct arena *arena,
                        int *ret_fd, const char **ret_path, struct err *err);

/* The same for the root of a sandbox, beneath sandbox_rootfs_dirs. */
int rootfs_check(const struct runtime *rt, const char *path, struct err *err);

#endif
