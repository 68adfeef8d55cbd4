/* Switches the rights of a thread to those of a workspace's owner, and back. */
#define _GNU_SOURCE
#include "workspace/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Both return what was before, and say in no other way whether they did it; no id is -1. */
static int take_file_ids(uid_t uid, gid_t gid)
{
        (void)setfsgid(gid);
        (void)setfsuid(uid);
        return setfsgid((gid_t)-1) == (int)gid && setfsuid((uid_t)-1) == (int)uid ? 0 : -1;
}

/* The library's setgroups() would change all threads. */
int owner_enter(const struct owner *o)
{
        if (!o)
                return 0;
        if (syscall(SYS_setgroups, o->n_groups, o->groups) == 0 &&
            take_file_ids(o->uid, o->gid) == 0)
                return 0;
        owner_leave(o);
        errno = EPERM;
        return -1;
}

/* A thread that kept another user's rights would fail at everything that it does from here on. */
void owner_leave(const struct owner *o)
{
        int e = errno;

        if (o && (take_file_ids(geteuid(), getegid()) < 0 ||
                  (syscall(SYS_setgroups, o->n_our_groups, o->our_groups) < 0 && errno != EPERM)))
                abort();
        errno = e;
}

int owner_openat(const struct owner *o, int dir, const char *name, int flags)
{
        if (owner_enter(o) < 0)
                return -1;
        int fd = openat(dir, name, flags);
        owner_leave(o);
        return fd;
}
