/* `berth doctor`: whether the kernel has what sandboxes and plugin workers need.
 *
 * Namespaces and overlayfs are tried the way the sandbox uses them: a child enters a user
 * namespace, becomes root in it, and tries the others and a mount from there. Its errno values come
 * back through a pipe; everything it made goes with it. Berth kills whole process trees with
 * cgroup.kill where it may make a cgroup below the one it runs in; that is tried too, because an
 * owner that only looks right (a read-only mount, a cgroup delegated to another user) is common. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "cli/doctor.h"

/* -- namespaces ------------------------------------------------------------------------------- */

enum trial { TRY_USER, TRY_MOUNT, TRY_PID, TRY_NET, TRY_OVERLAY, N_TRIALS };

/* errno of each trial, 0 when it worked, ECANCELED when one before it had to. */
struct trials {
        int error[N_TRIALS];
};

static int write_file(const char *path, const char *text)
{
        CLEAN(cleanup_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);

        if (fd < 0)
                return errno;
        return write(fd, text, strlen(text)) < 0 ? errno : 0;
}

static int become_root(unsigned uid, unsigned gid)
{
        char map[32];

        (void)write_file("/proc/self/setgroups", "deny"); /* absent on old kernels */
        (void)snprintf(map, sizeof(map), "0 %u 1", uid);
        int e = write_file("/proc/self/uid_map", map);
        if (e != 0)
                return e;
        (void)snprintf(map, sizeof(map), "0 %u 1", gid);
        return write_file("/proc/self/gid_map", map);
}

/* In a mount namespace of its own the child may cover /tmp; no other process sees it. */
static int try_overlay(void)
{
        if (mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") < 0 ||
            mkdir("/tmp/lower", 0755) < 0 || mkdir("/tmp/upper", 0755) < 0 ||
            mkdir("/tmp/work", 0755) < 0 || mkdir("/tmp/merged", 0755) < 0)
                return errno;
        if (mount("overlay", "/tmp/merged", "overlay", 0,
                  "lowerdir=/tmp/lower,upperdir=/tmp/upper,workdir=/tmp/work,userxattr") < 0)
                return errno;
        return mkdir("/tmp/merged/written", 0755) < 0 ? errno : 0;
}

static int try_unshare(int flags)
{
        return unshare(flags) < 0 ? errno : 0;
}

static void run_trials(struct trials *t)
{
        unsigned uid = geteuid(), gid = getegid();

        t->error[TRY_USER] = try_unshare(CLONE_NEWUSER);
        if (t->error[TRY_USER] == 0)
                t->error[TRY_USER] = become_root(uid, gid);
        if (t->error[TRY_USER] != 0 && uid != 0)
                return;
        t->error[TRY_MOUNT] = try_unshare(CLONE_NEWNS);
        t->error[TRY_PID] = try_unshare(CLONE_NEWPID);
        t->error[TRY_NET] = try_unshare(CLONE_NEWNET);
        if (t->error[TRY_MOUNT] == 0)
                t->error[TRY_OVERLAY] = try_overlay();
}

static int run_child(struct trials *ret)
{
        int pipe_fds[2], status;

        if (pipe2(pipe_fds, O_CLOEXEC) < 0)
                return errno;
        pid_t pid = fork();
        if (pid == 0) {
                struct trials t;

                for (size_t i = 0; i < N_TRIALS; i++)
                        t.error[i] = ECANCELED;
                run_trials(&t);
                _exit(write(pipe_fds[1], &t, sizeof(t)) == (ssize_t)sizeof(t) ? 0 : 1);
        }
        close(pipe_fds[1]);
        ssize_t n = pid > 0 ? read(pipe_fds[0], ret, sizeof(*ret)) : -1;
        close(pipe_fds[0]);
        if (pid > 0)
                (void)waitpid(pid, &status, 0);
        return n == (ssize_t)sizeof(*ret) ? 0 : EIO;
}

static bool setting_is(const char *path, const char *value)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        if (file_read_at(AT_FDCWD, path, 4096, &b, NULL) < 0)
                return false;
        return strncmp(buf_str(&b), value, strlen(value)) == 0 &&
               strspn(buf_str(&b) + strlen(value), " \n") == strlen(buf_str(&b) + strlen(value));
}

static const struct {
        const char *path, *bad, *fix;
} settings[] = {
        { "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
          "AppArmor restricts it: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or load a "
          "profile that allows userns" },
        { "/proc/sys/kernel/unprivileged_userns_clone", "0",
          "sysctl kernel.unprivileged_userns_clone=1" },
        { "/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=15000" },
};

/* The first setting that stands in the way, or NULL. */
static const char *blocking_setting(void)
{
        for (size_t i = 0; i < ARRAY_LEN(settings); i++)
                if (setting_is(settings[i].path, settings[i].bad))
                        return settings[i].fix;
        return NULL;
}

static void add_trial(struct doctor_report *d, const char *name, int error, const char *fix)
{
        if (error == 0)
                doctor_add(d, name, DOCTOR_OK, "works", NULL);
        else if (error == ECANCELED)
                doctor_add(d, name, DOCTOR_MISSING, "could not be tried", fix);
        else
                doctor_add(d, name, DOCTOR_MISSING, strerror(error), fix);
}

static void check_namespaces(struct doctor_report *d)
{
        const char *setting = blocking_setting();
        const char *fix = setting ? setting
                                  : "allow it in the container (it needs user namespaces and no "
                                    "filter on unshare and mount)";
        struct trials t = { 0 };
        int e = run_child(&t);

        for (size_t i = 0; e != 0 && i < N_TRIALS; i++)
                t.error[i] = e;
        add_trial(d, "user namespace", t.error[TRY_USER], fix);
        /* Root is not held back by these settings; the daemon under its own user would be. */
        if (setting && t.error[TRY_USER] == 0)
                doctor_add(d, "userns settings", DOCTOR_LIMITED, "ordinary users may not", setting);
        else if (!setting)
                doctor_add(d, "userns settings", DOCTOR_OK, "nothing restricts them", NULL);
        add_trial(d, "mount namespace", t.error[TRY_MOUNT], fix);
        add_trial(d, "pid namespace", t.error[TRY_PID], fix);
        add_trial(d, "net namespace", t.error[TRY_NET], fix);
        add_trial(d, "overlayfs", t.error[TRY_OVERLAY],
                  t.error[TRY_OVERLAY] == ENODEV ? "modprobe overlay"
                  : t.error[TRY_MOUNT] == 0
                          ? "use Linux 5.11 or newer, where overlayfs works in a user namespace"
                          : fix);
}

/* -- cgroups ---------------------------------------------------------------------------------- */

static bool is_cgroup2(const char *path)
{
        struct statfs s;

        return statfs(path, &s) == 0 && s.f_type == CGROUP2_SUPER_MAGIC;
}

static const char *cgroup2_mount(void)
{
        if (is_cgroup2("/sys/fs/cgroup"))
                return "/sys/fs/cgroup";
        return is_cgroup2("/sys/fs/cgroup/unified") ? "/sys/fs/cgroup/unified" : NULL;
}

/* The path behind "0::" of /proc/self/cgroup, or NULL. */
static const char *own_group(struct cli *c)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        if (file_read_at(AT_FDCWD, "/proc/self/cgroup", 65536, &b, NULL) < 0)
                return NULL;
        const char *line =
                str_starts(buf_str(&b), "0::") ? buf_str(&b) : strstr(buf_str(&b), "\n0::");
        if (!line)
                return NULL;
        line = strstr(line, "0::") + 3;
        return cli_printf(c, "%.*s", (int)strcspn(line, "\n"), line);
}

/* 0 or an errno value; *ret_kill says whether cgroup.kill is there. */
static int try_group(struct cli *c, const char *parent, bool *ret_kill)
{
        const char *path = cli_printf(c, "%s/berth-doctor-%d", parent, (int)getpid());

        if (mkdir(path, 0755) < 0)
                return errno;
        *ret_kill = access(cli_printf(c, "%s/cgroup.kill", path), W_OK) == 0;
        (void)rmdir(path);
        return 0;
}

static void check_cgroup(struct doctor_report *d)
{
        const char *mount = cgroup2_mount(), *group = own_group(d->cli);
        bool kill = false;

        if (!mount || !group) {
                bool v1 = access("/sys/fs/cgroup/memory", F_OK) == 0 ||
                          access("/sys/fs/cgroup/pids", F_OK) == 0;

                doctor_add(d, "cgroup", v1 ? DOCTOR_LIMITED : DOCTOR_MISSING,
                           v1 ? "version 1 only; process trees are found by other means"
                              : "no cgroup file system is mounted",
                           v1 ? "boot with systemd.unified_cgroup_hierarchy=1"
                              : "mount -t cgroup2 none /sys/fs/cgroup");
                return;
        }
        int e = try_group(d->cli, cli_printf(d->cli, "%s%s", mount, group), &kill);
        if (e != 0)
                doctor_add(d, "cgroup", DOCTOR_LIMITED,
                           cli_printf(d->cli, "version 2, but no group can be made in %s: %s",
                                      group, strerror(e)),
                           "run the daemon as a systemd unit with Delegate=yes");
        else
                doctor_add(d, "cgroup", kill ? DOCTOR_OK : DOCTOR_LIMITED,
                           kill ? "version 2, writable, with cgroup.kill"
                                : "version 2, writable, without cgroup.kill",
                           "use Linux 5.14 or newer");
}

/* -- system calls ----------------------------------------------------------------------------- */

#ifndef LANDLOCK_CREATE_RULESET_VERSION
#define LANDLOCK_CREATE_RULESET_VERSION (1U << 0)
#endif

static void check_version(struct doctor_report *d)
{
        struct utsname u;
        unsigned major = 0, minor = 0;
        bool known = uname(&u) == 0 && sscanf(u.release, "%u.%u", &major, &minor) == 2;
        bool new_enough = major > 5 || (major == 5 && minor >= 10);

        doctor_add(d, "kernel", known && new_enough ? DOCTOR_OK : DOCTOR_LIMITED,
                   known ? cli_printf(d->cli, "Linux %s %s", u.release, u.machine) : "unknown",
                   "use Linux 5.10 or newer");
}

/* A container's filter answers EPERM where the kernel itself would work. */
static void add_call(struct doctor_report *d, const char *name, int fd, int error,
                     const char *since)
{
        if (fd >= 0)
                doctor_add_needed(d, name, DOCTOR_OK, "works", NULL);
        else
                doctor_add_needed(d, name, DOCTOR_MISSING, strerror(error),
                                  error == EPERM ? "the container's seccomp filter forbids it; "
                                                   "update the container runtime"
                                                 : since);
}

static void check_calls(struct doctor_report *d)
{
        struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                                .resolve = RESOLVE_BENEATH };
        CLEAN(cleanup_fd) int beneath = -1;
        CLEAN(cleanup_fd) int pidfd = -1;

        errno = 0;
        beneath = (int)syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how));
        add_call(d, "openat2", beneath, errno, "needs Linux 5.6");
        errno = 0;
        pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
        add_call(d, "pidfd_open", pidfd, errno, "needs Linux 5.3");
}

static void check_seccomp(struct doctor_report *d)
{
        uint32_t action = SECCOMP_RET_KILL_PROCESS;
        bool filters = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
        bool basic = filters || prctl(PR_GET_SECCOMP) >= 0;

        doctor_add(d, "seccomp",
                   filters ? DOCTOR_OK
                   : basic ? DOCTOR_LIMITED
                           : DOCTOR_MISSING,
                   filters ? "filters work"
                   : basic ? "only the strict mode"
                           : strerror(errno),
                   "use a kernel with CONFIG_SECCOMP_FILTER");
}

static void check_landlock(struct doctor_report *d)
{
        long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

        if (abi > 0)
                doctor_add(d, "landlock", DOCTOR_OK, cli_printf(d->cli, "ABI %ld", abi), NULL);
        else
                doctor_add(d, "landlock", DOCTOR_MISSING,
                           errno == EOPNOTSUPP ? "built in, but not enabled" : strerror(errno),
                           errno == EOPNOTSUPP ? "boot with lsm=landlock,... on the kernel command "
                                                 "line"
                                               : "use Linux 5.13 or newer with "
                                                 "CONFIG_SECURITY_LANDLOCK");
}

void doctor_kernel(struct doctor_report *d)
{
        check_version(d);
        check_calls(d);
        check_seccomp(d);
        check_landlock(d);
        check_namespaces(d);
        check_cgroup(d);
}
