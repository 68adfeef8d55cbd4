/* A copy of a tree that a sandbox may be changing meanwhile: `berth-box --copy FROM --dir TO`, by
 * root. With `--inside DIR` FROM is a path in the sandbox of DIR, as its processes see it.
 *
 * cp(1) keeps owners, times, links, holes and the attributes by which overlays say what was
 * deleted. But it goes by names, and a directory that becomes a link while it is at work would lead
 * it anywhere on the host. So it sees the tree through a mount of its own on which the kernel
 * follows no link. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>

#include "base/fd.h"
#include "base/mount.h"
#include "berth-box/mains.h"

#ifndef MOUNT_ATTR_NOSYMFOLLOW
#define MOUNT_ATTR_NOSYMFOLLOW 0x00200000
#endif

#define STILL                                                                                      \
        (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC |            \
         MOUNT_ATTR_NOSYMFOLLOW)

/* The path leads to the mount from here on. */
static int cover_path(const char *path)
{
        CLEAN(cleanup_fd) int fd = -1;

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return -1;
        fd = mount_clone(AT_FDCWD, path, false, STILL);
        return fd < 0 ? -1 : mount_attach(fd, AT_FDCWD, path);
}

/* The same for what is mounted at the path inside: the working directory is the mount then. */
static int enter_path(const struct main_args *a, struct err *err)
{
        CLEAN(cleanup_fd) int here = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
        CLEAN(cleanup_fd) int user_ns = -1;
        CLEAN(cleanup_fd) int mount_ns = -1;
        CLEAN(cleanup_fd) int at = -1;
        CLEAN(cleanup_fd) int fd = -1;
        int r = sandbox_find(a->inside, &user_ns, &mount_ns, err);

        if (r < 0)
                return r;
        if (here < 0 || setns(mount_ns, CLONE_NEWNS) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "enter the sandbox");
        at = sandbox_open_dir(a->given);
        fd = at < 0 ? -1 : mount_clone(at, ".", false, STILL);
        if (fd < 0 || setns(here, CLONE_NEWNS) < 0 || fchdir(fd) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "reach %s in the sandbox", a->given);
        return 0;
}

int copy_main(const struct main_args *a)
{
        CLEAN(err_done) struct err err = { 0 };
        char *argv[] = { (char *)"cp",
                         (char *)"-a",
                         (char *)"--reflink=auto",
                         (char *)"--one-file-system",
                         (char *)"--",
                         (char *)(a->inside ? "." : a->given),
                         (char *)a->dir,
                         NULL };

        if (a->inside && enter_path(a, &err) < 0)
                fprintf(stderr, "%s\n", err.msg);
        else if (!a->inside && cover_path(a->given) < 0)
                fprintf(stderr, "cannot mount %s without links: %s\n", a->given, strerror(errno));
        else if (execv("/bin/cp", argv) < 0)
                fprintf(stderr, "cannot run /bin/cp: %s\n", strerror(errno));
        return 1;
}
