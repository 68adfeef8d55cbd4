/* Devices, terminals, and files that carry privileges. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

#include "escape.h"

static bool usual(const char *name)
{
        static const char *const names[] = { "null",    "zero", "full",    "random",
                                             "urandom", "tty",  "ptmx",    "pts",
                                             "shm",     "fd",   "stdin",   "stdout",
                                             "stderr",  "core", "console", "mqueue" };

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (strcmp(names[i], name) == 0)
                        return true;
        return false;
}

static void list_devices(char **args)
{
        static const char *const others[] = { "/dev/mem",          "/dev/kmem",  "/dev/port",
                                              "/dev/kvm",          "/dev/fuse",  "/dev/vda",
                                              "/dev/sda",          "/dev/loop0", "/dev/net/tun",
                                              "/dev/loop-control", "/dev/ttyS0", "/dev/vsock",
                                              "/dev/vhost-vsock" };
        DIR *dir = opendir("/dev");
        struct dirent *entry;

        while (dir && (entry = readdir(dir)))
                if (entry->d_name[0] != '.' && !usual(entry->d_name))
                        escaped("/dev/%s", entry->d_name);
        if (dir)
                (void)closedir(dir);
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
                must_fail(open(others[i], O_RDWR | O_CLOEXEC | O_NONBLOCK), others[i]);
}

static void make_device(char **args)
{
        static const struct {
                mode_t type;
                unsigned major, minor;
                const char *name;
        } kinds[] = {
                { S_IFCHR, 1, 1, "mem" },     { S_IFCHR, 1, 11, "kmsg" },
                { S_IFCHR, 10, 229, "fuse" }, { S_IFBLK, 254, 0, "vda" },
                { S_IFBLK, 8, 0, "sda" },     { S_IFBLK, 7, 0, "loop0" },
        };
        char path[PATH_MAX];

        for (; *args; args++)
                for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
                        int r;

                        (void)snprintf(path, sizeof(path), "%s/escape-%s", *args, kinds[i].name);
                        r = mknod(path, kinds[i].type | 0600,
                                  makedev(kinds[i].major, kinds[i].minor));
                        if (r == 0)
                                (void)unlink(path);
                        must_fail(r, path);
                }
}

/* Pushing input into the terminal that started us, as if its user had typed it. */
static void type_for_others(char **args)
{
        static const char *const names[] = { "/dev/tty", "/dev/stdin", "/dev/console" };
        char c = '\n';
        char paste = 3; /* TIOCLINUX: paste the selection */

        for (int fd = 0; fd < 3; fd++) {
                must_fail(ioctl(fd, TIOCSTI, &c), "TIOCSTI");
                must_fail(ioctl(fd, TIOCLINUX, &paste), "TIOCLINUX");
        }
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                int fd = open(names[i], O_RDWR | O_CLOEXEC | O_NONBLOCK);

                must_fail(fd < 0 ? -1 : ioctl(fd, TIOCSTI, &c), names[i]);
                (void)close(fd);
        }
        /* The upper half of the request is not looked at by the kernel. */
        must_fail(ioctl(0, TIOCSTI | (unsigned long)1 << 32, &c), "TIOCSTI in disguise");
}

/* `privileged FILE...`: run each with the argument `ids`, which prints what it has become. */
static void say_ids(char **args)
{
        char text[4096], *caps;
        uid_t real, effective, saved;
        ssize_t n;
        int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);

        n = read(fd, text, sizeof(text) - 1);
        text[n > 0 ? n : 0] = '\0';
        caps = strstr(text, "CapEff:\t");
        (void)getresuid(&real, &effective, &saved);
        if (effective != real || saved != real)
                escaped("became user %u, saved %u, from %u", effective, saved, real);
        if (!caps || strncmp(caps + 8, "0000000000000000", 16) != 0)
                escaped("has capabilities: %.16s", caps ? caps + 8 : "unknown");
        refused("still user %u without capabilities", real);
}

/* Whoever is the supervisor outside: a user with a group. By groups only what the kernel says in
 * the end counts. */
static void become_supervisor(char **args)
{
        uid_t id = (uid_t)strtoul(args[0], NULL, 10);
        gid_t list[2] = { id, 0 }, now[64];
        int n;

        must_fail(setuid(id), "setuid");
        must_fail(setreuid(id, (uid_t)-1), "setreuid");
        must_fail(setresuid((uid_t)-1, (uid_t)-1, id), "setresuid");
        must_fail(setgid(id), "setgid");
        must_fail(setregid((gid_t)-1, id), "setregid");
        must_fail(setresgid(id, (gid_t)-1, (gid_t)-1), "setresgid");
        for (size_t len = 1; len <= 2; len++) {
                (void)syscall(SYS_setgroups, len, list);
                n = getgroups(sizeof(now) / sizeof(now[0]), now);
                for (int i = 0; i < n; i++)
                        if (now[i] == id)
                                escaped("joined group %u", id);
                refused("setgroups: %d groups", n);
        }
        (void)syscall(SYS_setfsuid, id);
        must_fail((uid_t)syscall(SYS_setfsuid, -1) == id ? 0 : -1, "setfsuid");
        (void)syscall(SYS_setfsgid, id);
        must_fail((gid_t)syscall(SYS_setfsgid, -1) == id ? 0 : -1, "setfsgid");
}

static int run_ids(void *ctx)
{
        execl(ctx, ctx, "ids", NULL);
        (void)printf("%s: %s\n", (char *)ctx, strerrorname_np(errno));
        return 0;
}

static void run_privileged(char **args)
{
        for (; *args; args++) {
                int sig;

                if (in_child(run_ids, *args, &sig) == 1)
                        _exit(1);
                refused("%s gained nothing", *args);
        }
}

static void copy_self(const char *path)
{
        int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
        char buffer[65536];
        ssize_t n;

        while ((n = read(from, buffer, sizeof(buffer))) > 0)
                if (write(to, buffer, (size_t)n) != n)
                        broken("%s: %s", path, strerrorname_np(errno));
        (void)close(from);
        (void)close(to);
}

/* A setuid file and one with capabilities, of one's own making, in each directory. */
static void make_privileged(char **args)
{
        /* revision 2, effective, CAP_SYS_ADMIN permitted */
        static const unsigned char caps[20] = { 1, 0, 0, 2, 0, 0, 0x20, 0 };
        char path[PATH_MAX];

        for (; *args; args++) {
                char *list[] = { path, NULL };

                (void)snprintf(path, sizeof(path), "%s/escape-setuid", *args);
                copy_self(path);
                if (chown(path, 0, 0) < 0)
                        refused("chown %s: %s", path, strerrorname_np(errno));
                (void)chmod(path, 06755);
                if (setxattr(path, "security.capability", caps, sizeof(caps), 0) < 0)
                        refused("file capabilities: %s", strerrorname_np(errno));
                run_privileged(list);
                (void)unlink(path);
        }
}

const struct escape_case device_cases[] = {
        { "devices", "", 0, list_devices },
        { "mknod", "DIR...", 1, make_device },
        { "terminal", "", 0, type_for_others },
        { "ids", "", 0, say_ids },
        { "supervisor", "ID", 1, become_supervisor },
        { "privileged", "FILE...", 1, run_privileged },
        { "setuid", "DIR...", 1, make_privileged },
        { 0 },
};
