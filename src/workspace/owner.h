/* With whose rights the files of a workspace are read.
 *
 * Whoever owns a directory can move files of others into it that he cannot read. A daemon of root's
 * would read them, and show them in a place. So it opens what it stages with the rights of the
 * directory's owner; the kernel decides, and what he cannot read is unreadable, as it is for a
 * daemon of his own. Rights for files are a thread's, so other threads keep theirs. */
#ifndef BERTH_WORKSPACE_OWNER_H
#define BERTH_WORKSPACE_OWNER_H

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

/* The calling thread opens files with his rights until owner_leave(); NULL: with its own. -1 with
 * errno when it may not become him. */
int owner_enter(const struct owner *o);
void owner_leave(const struct owner *o);

/* openat() between the two. */
int owner_openat(const struct owner *o, int dir, const char *name, int flags);

#endif
