/* Paths that stay where they should: opening what a foreign party named, beneath a directory we
 * chose. Any thread. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

/* Open `path` beneath dirfd. The kernel refuses "..", absolute paths and symlinks that lead out
 * (ERR_FORBIDDEN) and magic links, at every component and without a race. O_CLOEXEC is implied. */
int path_open_beneath(int dirfd, const char *path, int flags, mode_t mode, int *ret_fd,
                      struct err *err);

/* As above, and no symlink is followed anywhere, nor a mount point crossed. ERR_NOT_FOUND: it is
 * not there, or a file is in the way. ERR_FORBIDDEN: a symlink is in the way, or it lies outside.
 * ERR_UNPROCESSABLE: it lies behind a mount point. */
int path_open_plain(int dirfd, const char *path, int flags, mode_t mode, int *ret_fd,
                    struct err *err);

/* Open a directory by an absolute path that the operator wrote down (O_PATH). Symlinks that belong
 * to root or to our own user are followed. A symlink of any other user has to lead to a directory
 * of the same user: that user can change it at any time, and was not asked. ERR_FORBIDDEN when it
 * does not. */
int path_open_named(const char *path, int *ret_fd, struct err *err);

/* Create the directory and its parents with the given mode; existing ones are left alone. */
int path_make_dirs(const char *path, mode_t mode, struct err *err);

/* As above, and the name of each directory that was created survives a power cut. */
int path_make_durable_dirs(const char *path, mode_t mode, struct err *err);
