/* The data directory: one daemon at a time, and who this node is. */
#ifndef BERTH_DAEMON_DATADIR_H
#define BERTH_DAEMON_DATADIR_H

#include "core/runtime.h"

/* Take the directory for this process; *ret_fd holds the lock as long as it is open. ERR_LOCKED
 * names the process that has it. The file says who took it last: its process id, and a line
 * "private" for a private daemon. */
int datadir_lock(const char *path, bool is_private, int *ret_fd, struct err *err);

/* Read the node's id, or make it on first start, and the kernel's boot id. */
int datadir_node(const char *path, struct node *ret, struct err *err);

#endif
