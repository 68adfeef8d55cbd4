/* The mount calls that sandboxes and the views of plugin workers are built with: file-descriptor
 * based, so that a mount is finished (read-only, without setuid and devices, with its owners)
 * before any process can see it.
 *
 * All return a descriptor or 0, and -1 with errno. */
#pragma once

#include <sys/mount.h>
#include <sys/types.h>

#include "base/util.h"

/* A detached copy of the tree at `path`, private and with these MOUNT_ATTR_* set. `recursive`: with
 * what is mounted beneath; inside a user namespace nothing else is allowed. */
int mount_clone(int dir_fd, const char *path, bool recursive, uint64_t attr);
/* A new file system; options are NULL-terminated pairs of key and value. */
int mount_new(const char *type, uint64_t attr, const char *const options[]);
/* Attach a detached mount. */
int mount_attach(int mount_fd, int dir_fd, const char *path);
/* The same on a directory of the host that is not needed meanwhile. */
int mount_attach_somewhere(int mount_fd);
/* Show the owners of a detached mount as the user namespace says. */
int mount_idmap(int mount_fd, int userns_fd);
/* mount_clone() and mount_attach(). */
int mount_bind(const char *from, const char *to, uint64_t attr);
