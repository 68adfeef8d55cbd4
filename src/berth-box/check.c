/* Finds out what this machine has and lacks for sandboxes. Whatever can be tried is tried: the
 * reasons for which namespaces are refused (sysctls, AppArmor, seccomp of a container, limits) are
 * more than can be listed.
 *
 * One line per point: name, ok, missing or weaker, what was found, what to do; separated by tabs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/mount.h"
#include "berth-box/mains.h"
#include "berth-box/sandbox.h"

enum weight { REQUIRED, USEFUL };

static void print_point(const char *name, enum weight weight, bool ok, const char *found,
                        const char *fix)
{
        printf("%s\t%s\t%s\t%s\n", name,
               ok                   ? "ok"
               : weight == REQUIRED ? "missing"
                                    : "weaker",
               found, ok ? "" : fix);
}

static long read_number(const char *path)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;

        return file_read_at(AT_FDCWD, path, 64, &text, NULL) < 0 ? -1
                                                                 : strtol(buf_str(&text), NULL, 10);
}

static void check_kernel(void)
{
        struct utsname name;
        int major = 0, minor = 0;

        (void)uname(&name);
        (void)sscanf(name.release, "%d.%d", &major, &minor);
        print_point("kernel", REQUIRED, major > 5 || (major == 5 && minor >= 12), name.release,
                    "a kernel of version 5.12 or newer is needed");
}

/* The setting that forbids it, as far as can be known. */
static const char *why_no_namespaces(int errno_value)
{
        if (read_number("/proc/sys/user/max_user_namespaces") == 0)
                return "sysctl user.max_user_namespaces=65536";
        if (read_number("/proc/sys/kernel/unprivileged_userns_clone") == 0)
                return "sysctl kernel.unprivileged_userns_clone=1";
        if (read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1)
                return "AppArmor restricts user namespaces: install a profile with `userns,` for "
                       "berth-box, or sysctl kernel.apparmor_restrict_unprivileged_userns=0";
        if (errno_value == ENOSPC || errno_value == EUSERS)
                return "raise the limits in /proc/sys/user";
        return "in a container, its system call filter must allow clone with new namespaces";
}

/* Run something in new namespaces, as their root: its errno, 0 when all is well. */
static int try_inside(const struct sandbox *s, uint64_t flags, int (*what)(void), struct err *err)
{
        struct clone_args args = { .flags = CLONE_NEWUSER | flags, .exit_signal = SIGCHLD };
        int go[2], status = 0;
        char byte = 0;

        if (pipe2(go, O_CLOEXEC) < 0)
                return errno;
        pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
        if (pid < 0) {
                int reason = errno;

                close(go[0]);
                close(go[1]);
                return reason;
        }
        if (pid == 0) {
                close(go[1]);
                if (read(go[0], &byte, 1) != 1)
                        _exit(EPERM);
                _exit(what ? what() : 0);
        }
        close(go[0]);
        if (!s || userns_map(s, pid, err) >= 0)
                (void)!write(go[1], &byte, 1);
        close(go[1]);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

static bool check_namespaces(void)
{
        int r = try_inside(NULL,
                           CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                                   CLONE_NEWCGROUP,
                           NULL, NULL);

        print_point("namespaces", REQUIRED, r == 0, r == 0 ? "all seven kinds" : strerror(r),
                    why_no_namespaces(r));
        return r == 0;
}

static int become_root(void)
{
        return syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0 ? errno
                                                                                          : 0;
}

static bool check_ids(const struct sandbox *s)
{
        CLEAN(err_done) struct err err = { 0 };
        char found[300];
        int r = try_inside(s, 0, become_root, &err);

        if (r == 0)
                snprintf(found, sizeof(found), "%u to %u", s->spec.first_id,
                         s->spec.first_id + s->spec.n_ids - 1);
        else
                snprintf(found, sizeof(found), "%.250s", err.msg[0] ? err.msg : strerror(r));
        print_point("id-ranges", REQUIRED, r == 0, found,
                    s->rootless
                            ? "apt-get install uidmap, and give the daemon's user a range in "
                              "/etc/subuid and /etc/subgid (usermod --add-subuids, --add-subgids)"
                            : "choose another range of ids");
        return r == 0;
}

static int make_tmpfs(void)
{
        CLEAN(cleanup_fd) int fd = become_root() == 0 ? mount_new("tmpfs", 0, NULL) : -1;

        return fd < 0 ? errno : 0;
}

static int make_proc(void)
{
        CLEAN(cleanup_fd) int fd = become_root() == 0 ? mount_new("proc", 0, NULL) : -1;

        return fd < 0 ? errno : 0;
}

/* Upper and lower on a tmpfs, as a box without storage of its own would have them. */
static int make_overlay(void)
{
        struct overlay o = { .n_lower = 1, .upper = "upper", .work = "work" };
        CLEAN(err_done) struct err err = { 0 };
        CLEAN(cleanup_fd) int fd = -1;
        CLEAN(cleanup_fd) int tmp = -1;

        if (become_root() != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return errno;
        tmp = mount_new("tmpfs", 0, NULL);
        if (tmp < 0 || mount_attach(tmp, AT_FDCWD, "/tmp") < 0 || mkdirat(tmp, "upper", 0755) < 0 ||
            mkdirat(tmp, "work", 0755) < 0 || mkdirat(tmp, "lower", 0755) < 0)
                return errno;
        o.upper_dir = tmp;
        o.lower[0] = openat(tmp, "lower", O_PATH | O_DIRECTORY | O_CLOEXEC);
        fd = overlay_make(&o, &err);
        return fd < 0 ? (errno ? errno : EINVAL) : 0;
}

static void check_mounts(const struct sandbox *s)
{
        int r = try_inside(s, CLONE_NEWNS, make_tmpfs, NULL);

        print_point(
                "mounts", REQUIRED, r == 0, r == 0 ? "tmpfs in a user namespace" : strerror(r),
                "mounting in a user namespace is forbidden (AppArmor, or a container's filter)");
        r = try_inside(s, CLONE_NEWNS | CLONE_NEWPID, make_proc, NULL);
        print_point("proc", REQUIRED, r == 0, r == 0 ? "a /proc of its own" : strerror(r),
                    "/proc of this container is masked: run it with an unmasked one "
                    "(podman: --security-opt unmask=ALL)");
        r = try_inside(s, CLONE_NEWNS, make_overlay, NULL);
        print_point("overlay", USEFUL, r == 0,
                    r == 0 ? "overlayfs in a user namespace" : strerror(r),
                    "without overlayfs there is no rootfs and no snapshot: modprobe overlay");
}

static void check_seccomp(void)
{
        bool ok = prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0 || errno != EINVAL;

        print_point("seccomp", REQUIRED, ok, ok ? "system call filters" : "none",
                    "a kernel with CONFIG_SECCOMP_FILTER is needed");
}

static bool has_v2(const char *controller)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        char path[4096];

        if (!cgroup_own_directory(NULL, path) || access(path, W_OK) < 0)
                return false;
        strncat(path, "/cgroup.controllers", sizeof(path) - strlen(path) - 1);
        return file_read_at(AT_FDCWD, path, 4096, &text, NULL) >= 0 &&
               strstr(buf_str(&text), controller);
}

static void check_controller(const char *controller, const char *name, const char *without)
{
        char v1[4096];
        bool two = has_v2(controller);
        bool one = !two && cgroup_own_directory(controller, v1) && access(v1, W_OK) == 0;

        print_point(name, USEFUL, two || one,
                    two   ? "cgroup2"
                    : one ? "cgroup1"
                          : without,
                    "delegate cgroups with this controller to the daemon (systemd: Delegate=yes)");
}

static void check_cgroups(void)
{
        char path[4096];
        bool ok = cgroup_own_directory(NULL, path) && access(path, W_OK) == 0;

        print_point(
                "cgroup", USEFUL, ok, ok ? "cgroup2" : "none that we may write to",
                "delegate a cgroup2 to the daemon (systemd: Delegate=yes); until then processes are "
                "found by their marker and frozen by signals");
        check_controller("memory", "cgroup-memory", "memory is limited per process (rlimit)");
        check_controller("pids", "cgroup-pids", "processes are limited by rlimit");
        check_controller("cpu", "cgroup-cpu", "CPU time is not limited");
}

int check_main(const struct main_args *a)
{
        struct sandbox *s = a->sandbox;

        s->rootless = geteuid() != 0;
        check_kernel();
        if (check_namespaces() && check_ids(s))
                check_mounts(s);
        check_seccomp();
        check_cgroups();
        return 0;
}
