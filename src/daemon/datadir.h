/* The data directory: one daemon at a time. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Take the directory for this process; *ret_fd holds the lock as long as it is open. Other users
 * lose their rights to it when it belongs to the daemon's user and holds no files of others.
 * A private daemon that has it is told to end, unless this one is private too, and waited for.
 * ERR_LOCKED names the process that has it. The file says which process took it last: its process
 * id, and a line "private" for a private daemon. */
int datadir_lock(const char *path, bool is_private, int *ret_fd, struct err *err);
