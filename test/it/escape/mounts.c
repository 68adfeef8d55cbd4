/* Mounts: making, moving and changing them, alone and from a user namespace of one's own. */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "escape.h"

enum { OLD_BIND = 4096, OLD_REMOUNT = 32, OLD_RDONLY = 1, OLD_REC = 16384, DETACH = 2 };

static long mount_at(const char *source, const char *target, const char *type, unsigned long flags)
{
        return syscall(SYS_mount, source, target, type, flags, NULL);
}

static void new_mount(char **args)
{
        must_not_be_reached(mount_at("none", "/tmp", "tmpfs", 0), "mount tmpfs");
        must_not_be_reached(mount_at("proc", "/tmp", "proc", 0), "mount proc");
        must_not_be_reached(mount_at("sys", "/tmp", "sysfs", 0), "mount sysfs");
        must_not_be_reached(mount_at("none", "/tmp", "cgroup2", 0), "mount cgroup2");
        must_not_be_reached(mount_at("/", "/tmp", NULL, OLD_BIND), "bind mount");
        must_not_be_reached(mount_at("none", "/tmp", "overlay", 0), "mount overlay");
        must_not_be_reached(mount_at("none", "/tmp", "devtmpfs", 0), "mount devtmpfs");
        must_not_be_reached(syscall(SYS_umount2, "/proc", DETACH), "umount /proc");
        must_not_be_reached(syscall(SYS_umount2, "/tmp", DETACH), "umount /tmp");
        must_not_be_reached(syscall(SYS_pivot_root, "/", "/tmp"), "pivot_root");
}

static void new_mount_api(char **args)
{
        struct mount_attr none = { 0 };

        must_not_be_reached(syscall(SYS_fsopen, "tmpfs", 0), "fsopen");
        must_not_be_reached(syscall(SYS_fsmount, -1, 0, 0), "fsmount");
        must_not_be_reached(syscall(SYS_fspick, AT_FDCWD, "/", 0), "fspick");
        must_not_be_reached(syscall(SYS_fsconfig, -1, 0, NULL, NULL, 0), "fsconfig");
        must_not_be_reached(syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE), "open_tree");
        must_not_be_reached(syscall(SYS_move_mount, -1, "", -1, "", 0), "move_mount");
        must_not_be_reached(syscall(SYS_mount_setattr, -1, "", 0, &none, sizeof(none)),
                            "mount_setattr");
}

/* What is read-only must stay it, whatever way it is asked for. */
static void remount(char **args)
{
        struct mount_attr writable = { .attr_clr = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID };

        for (; *args; args++) {
                must_not_be_reached(mount_at("none", *args, NULL, OLD_REMOUNT), *args);
                must_not_be_reached(mount_at("none", *args, NULL, OLD_REMOUNT | OLD_BIND), *args);
                must_not_be_reached(
                        syscall(SYS_mount_setattr, AT_FDCWD, *args, 0, &writable, sizeof(writable)),
                        *args);
        }
}

/* From here on with a user namespace of one's own, where it is allowed: inside it one has every
 * capability, and still nothing of the host may come of it. */

static void write_text(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CLOEXEC);

        if (fd < 0 || write(fd, text, strlen(text)) < 0)
                refused("%s: %s", path, strerrorname_np(errno));
        (void)close(fd);
}

static bool become_root_of_a_namespace(void)
{
        char map[64];
        unsigned uid = getuid(), gid = getgid();

        if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWUTS) < 0) {
                refused("no user namespace: %s", strerrorname_np(errno));
                return false;
        }
        write_text("/proc/self/setgroups", "deny");
        (void)snprintf(map, sizeof(map), "0 %u 1", uid);
        write_text("/proc/self/uid_map", map);
        (void)snprintf(map, sizeof(map), "0 %u 1", gid);
        write_text("/proc/self/gid_map", map);
        return true;
}

static bool writable(const char *dir)
{
        struct statvfs st;

        return statvfs(dir, &st) == 0 && !(st.f_flag & ST_RDONLY);
}

static void nested_remount(char **args)
{
        struct mount_attr clear = { .attr_clr = MOUNT_ATTR_RDONLY };

        if (!become_root_of_a_namespace())
                return;
        for (; *args; args++) {
                if (writable(*args))
                        broken("%s is writable from the start", *args);
                (void)mount_at("none", *args, NULL, OLD_REMOUNT | OLD_BIND);
                (void)mount_at("none", *args, NULL, OLD_REMOUNT);
                (void)syscall(SYS_mount_setattr, AT_FDCWD, *args, 0, &clear, sizeof(clear));
                if (writable(*args))
                        escaped("%s was made writable", *args);
                refused("%s stays read-only", *args);
                /* What lies beneath a mount must not be laid bare. */
                must_fail(syscall(SYS_umount2, *args, DETACH), *args);
        }
}

/* File systems that show the host: each is refused, or shows only the box. */
static void nested_mount(char **args)
{
        static const char *const types[] = { "sysfs",    "cgroup",     "cgroup2", "devtmpfs",
                                             "debugfs",  "ext4",       "tracefs", "bpf",
                                             "configfs", "securityfs", "xfs",     "btrfs",
                                             "vfat" };
        char at[] = "/tmp/escape-XXXXXX", path[128];

        if (!become_root_of_a_namespace())
                return;
        if (!mkdtemp(at))
                broken("mkdtemp: %s", strerrorname_np(errno));
        for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
                if (mount_at(i >= 5 ? "/dev/vda" : "none", at, types[i], 0) < 0) {
                        refused("%s: %s", types[i], strerrorname_np(errno));
                        continue;
                }
                /* A cgroup namespace may be mounted; what is in it must not reach the host. */
                (void)snprintf(path, sizeof(path), "%s/release_agent", at);
                if (open(path, O_WRONLY | O_CLOEXEC) >= 0)
                        escaped("%s: release_agent", types[i]);
                (void)snprintf(path, sizeof(path), "%s/memory.max", at);
                if (open(path, O_WRONLY | O_CLOEXEC) >= 0)
                        escaped("%s: memory.max", types[i]);
                if (strncmp(types[i], "cgroup", 6) != 0 && strcmp(types[i], "sysfs") != 0)
                        escaped("mounted %s", types[i]);
                refused("%s shows only the box", types[i]);
                (void)syscall(SYS_umount2, at, DETACH);
        }
        (void)rmdir(at);
}

static void nested_device(char **args)
{
        char path[] = "/tmp/escape-node";
        int r;

        if (!become_root_of_a_namespace())
                return;
        r = mknod(path, S_IFCHR | 0600, makedev(1, 1));
        must_fail(r, "mknod");
        (void)mount_at("none", "/tmp", "tmpfs", 0);
        must_fail(mknod(path, S_IFBLK | 0600, makedev(254, 0)), "mknod on a tmpfs of its own");
}

const struct escape_case mount_cases[] = {
        { "mount", "", 0, new_mount },
        { "mount-api", "", 0, new_mount_api },
        { "remount", "DIR...", 1, remount },
        { "nested-remount", "DIR...", 1, nested_remount },
        { "nested-mount", "", 0, nested_mount },
        { "nested-device", "", 0, nested_device },
        { 0 },
};
