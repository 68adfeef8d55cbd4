/* With whose rights the files of a workspace are read.
 *
 * The owner of a directory can move files of other users into it that the owner cannot read. A
 * daemon that is root would read them, and show them in a place. So it opens what it stages with
 * the rights of the directory's owner; the kernel decides, and a file that the owner cannot read is
 * unreadable, as it is for a daemon that the owner runs. Rights for files belong to a thread, so
 * other threads keep theirs. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

#define OWNER_GROUPS 256

struct owner {
        uid_t uid;
        gid_t gid;
        gid_t groups[OWNER_GROUPS], our_groups[OWNER_GROUPS];
        int n_groups, n_our_groups;
};

/* The owner of the directory, in *store; *ret is NULL when it is read with our own rights: it is
 * ours, or we are not root. */
int owner_find(int dir_fd, struct owner *store, const struct owner **ret, struct err *err);

/* The calling thread opens files with the owner's rights until owner_leave(); NULL: with its own.
 * -1 with errno when it may not take those rights. */
int owner_enter(const struct owner *o);
void owner_leave(const struct owner *o);

/* openat() between the two. */
int owner_openat(const struct owner *o, int dir, const char *name, int flags);
