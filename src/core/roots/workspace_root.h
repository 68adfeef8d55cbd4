/* Which directories of this machine a caller may name, and for which company.
 *
 * The setting workspace_roots lists them. An entry is for every company, unless it begins with a
 * company's id and "=", which makes it that company's alone; "{company}" in it stands for the id of
 * the asking company. The daemon's own files (own_files.h) are never among them.
 *
 * The user that the daemon runs as (actor.is_daemon_user) may name any directory of their own as
 * well, by its real path. */
#pragma once

#include "core/runtime.h"

/* For whom a directory is opened. */
struct workspace_asker {
        const char *company_id;
        bool is_daemon_user; /* see actor.is_daemon_user */
};

/* Whether the setting is consistent: no root of one company lies in a root of another, by its name
 * or by its present link target. ERR_INVALID names the two. Of one company's nested roots the outer
 * counts. */
int workspace_roots_check(const char *roots, struct err *err);

/* 0 when `path` is an existing directory beneath one of the company's roots, with no symlink
 * leading out of it, and not the daemon's own; else ERR_UNPROCESSABLE with a text that names the
 * roots. */
int workspace_root_check(const struct runtime *rt, const struct workspace_asker *asker,
                         const char *path, struct err *err);

/* Open such a directory; also returns its real path (in the arena). */
int workspace_root_open(const struct runtime *rt, const struct workspace_asker *asker,
                        const char *path, struct arena *arena, int *ret_fd, const char **ret_path,
                        struct err *err);

/* Open a path that workspace_root_open() returned. ERR_NOT_FOUND when it is gone; ERR_CONFLICT when
 * the path leads elsewhere, because a part of it was replaced meanwhile. */
int workspace_root_reopen(const struct runtime *rt, const char *path, int *ret_fd, struct err *err);

/* The same as workspace_root_check() for the root of a sandbox, beneath sandbox_rootfs_dirs. */
int rootfs_check(const struct runtime *rt, const char *path, struct err *err);
