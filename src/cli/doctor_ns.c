/* Namespaces and overlayfs, tried the way the sandbox uses them: a child enters a user namespace,
 * becomes root in it, and tries the others and a mount from there. Its errno values come back
 * through a pipe; everything it made goes with it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "cli/doctor.h"

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
        int e;

        (void)write_file("/proc/self/setgroups", "deny"); /* absent on old kernels */
        (void)snprintf(map, sizeof(map), "0 %u 1", uid);
        e = write_file("/proc/self/uid_map", map);
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
        ssize_t n;
        pid_t pid;

        if (pipe2(pipe_fds, O_CLOEXEC) < 0)
                return errno;
        pid = fork();
        if (pid == 0) {
                struct trials t;

                for (size_t i = 0; i < N_TRIALS; i++)
                        t.error[i] = ECANCELED;
                run_trials(&t);
                _exit(write(pipe_fds[1], &t, sizeof(t)) == (ssize_t)sizeof(t) ? 0 : 1);
        }
        close(pipe_fds[1]);
        n = pid > 0 ? read(pipe_fds[0], ret, sizeof(*ret)) : -1;
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
        const char *path;
        const char *bad;
        const char *fix;
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

void doctor_namespaces(struct doctor_report *d)
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
