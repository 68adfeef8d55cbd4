/* `berth doctor`: whether the kernel has what sandboxes and plugin workers need. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include "base/fd.h"
#include "cli/doctor.h"

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
}
