/* Mounts by file descriptor, from a detached copy to its place. */
#define _GNU_SOURCE
#include "base/mount.h"

#include <errno.h>
#include <fcntl.h>

#include "base/fd.h"

int mount_clone(int dir_fd, const char *path, bool recursive, uint64_t attr)
{
        unsigned depth = recursive ? AT_RECURSIVE : 0;
        struct mount_attr set = { .attr_set = attr, .propagation = MS_PRIVATE };
        CLEAN(cleanup_fd)
        int fd = open_tree(dir_fd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | depth);

        if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH | depth, &set, sizeof(set)) < 0)
                return -1;
        return take_fd(&fd);
}

int mount_new(const char *type, uint64_t attr, const char *const options[])
{
        CLEAN(cleanup_fd) int fs = fsopen(type, FSOPEN_CLOEXEC);

        if (fs < 0)
                return -1;
        for (; options && *options; options += 2)
                if (fsconfig(fs, FSCONFIG_SET_STRING, options[0], options[1], 0) < 0)
                        return -1;
        if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -1;
        return fsmount(fs, FSMOUNT_CLOEXEC, (unsigned)attr);
}

int mount_attach(int mount_fd, int dir_fd, const char *path)
{
        return move_mount(mount_fd, "", dir_fd, path, MOVE_MOUNT_F_EMPTY_PATH);
}

int mount_attach_somewhere(int mount_fd)
{
        static const char *const places[] = { "/tmp", "/mnt", "/run", "/srv", "/media" };

        for (size_t i = 0; i < ARRAY_LEN(places); i++)
                if (mount_attach(mount_fd, AT_FDCWD, places[i]) == 0)
                        return 0;
                else if (errno != ENOENT && errno != ENOTDIR)
                        return -1;
        return -1;
}

int mount_idmap(int mount_fd, int userns_fd)
{
        struct mount_attr set = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (unsigned)userns_fd };

        return mount_setattr(mount_fd, "", AT_EMPTY_PATH, &set, sizeof(set));
}

int mount_bind(const char *from, const char *to, uint64_t attr)
{
        CLEAN(cleanup_fd) int fd = mount_clone(AT_FDCWD, from, true, attr);

        return fd < 0 ? -1 : mount_attach(fd, AT_FDCWD, to);
}
