/* Tries what a worker can reach, from where it would run: the process has given up its rights, and
 * instead of running a program it tries each thing and says in one line what came of it:
 *
 *     NAME <tab> WHAT <tab> reached|refused <tab> WHY
 *
 * Nothing is harmed where something is reached: files are opened and not read, changes are made to
 * a decoy only, processes are asked and not told. Arguments say what there is to try, as
 * KIND=VALUE:
 *
 *     read=PATH      a file or directory that is none of its business
 *     decoy=PATH     a file of the daemon, to be changed
 *     process=PID    the daemon
 *     connect=PORT   of the daemon, on loopback */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "plugin/confine_internal.h"

/* Each probe returns 0 or more when it reached something, and -1 with errno. */

static int probe_read(const char *path)
{
        CLEAN(cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

        return fd < 0 ? -1 : 0;
}

/* The decoy */

static int probe_write(const char *path)
{
        CLEAN(cleanup_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);

        return fd < 0 ? -1 : 0;
}

static int probe_chmod(const char *path)
{
        return chmod(path, 0600);
}

static int probe_chown(const char *path)
{
        return chown(path, getuid(), getgid());
}

static int probe_times(const char *path)
{
        return utimensat(AT_FDCWD, path, NULL, 0);
}

static int probe_attribute(const char *path)
{
        return setxattr(path, "user.berth", "1", 1, 0);
}

static int probe_remove(const char *path)
{
        return unlink(path);
}

/* The daemon's process. In a process namespace its number belongs to no process or to one of ours,
 * which are the lowest. */

static int probe_signal(pid_t pid)
{
        return kill(pid, 0);
}

/* The number of a thread means its process. */
static int probe_signal_thread(pid_t pid)
{
        CLEAN(cleanup_free) char *path = xasprintf("/proc/%d/task", (int)pid);
        DIR *dir = opendir(path);
        struct dirent *entry;
        int r = -1;

        if (!dir)
                return -1;
        while (r < 0 && (entry = readdir(dir))) {
                pid_t number = (pid_t)strtol(entry->d_name, NULL, 10);

                if (number > 0)
                        r = kill(number, 0);
        }
        closedir(dir);
        return r;
}

static int probe_signal_value(pid_t pid)
{
        return (int)syscall(SYS_rt_sigqueueinfo, pid, 0, &(siginfo_t){ .si_code = SI_QUEUE });
}

static int probe_signal_descriptor(pid_t pid)
{
        CLEAN(cleanup_free) char *path = xasprintf("/proc/%d", (int)pid);
        CLEAN(cleanup_fd) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        return fd < 0 ? -1 : (int)syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0);
}

/* It would get a signal when something happens to our descriptor. */
static int probe_owner(pid_t pid)
{
        CLEAN(cleanup_fd) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct f_owner_ex owner = { F_OWNER_PID, pid };
        int number = pid;

        return fcntl(fd, F_SETOWN, pid) == 0 || fcntl(fd, F_SETOWN_EX, &owner) == 0 ||
                               ioctl(fd, FIOSETOWN, &number) == 0 ||
                               ioctl(fd, SIOCSPGRP, &number) == 0
                       ? 0
                       : -1;
}

static int probe_limits(pid_t pid)
{
        struct rlimit old;

        return prlimit(pid, RLIMIT_CORE, NULL, &old);
}

static int probe_priority(pid_t pid)
{
        int now;

        errno = 0;
        now = getpriority(PRIO_PROCESS, (id_t)pid);
        return errno ? -1 : setpriority(PRIO_PROCESS, (id_t)pid, now);
}

static int probe_trace(pid_t pid)
{
        if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0)
                return -1;
        (void)ptrace(PTRACE_DETACH, pid, NULL, NULL);
        return 0;
}

static int probe_memory(pid_t pid)
{
        char byte;
        struct iovec here = { &byte, 1 }, there = { NULL, 1 };

        /* It would be allowed, there is only nothing at that address. */
        return process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 && errno != EFAULT ? -1 : 0;
}

static int probe_descriptors(pid_t pid)
{
        CLEAN(cleanup_fd) int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        CLEAN(cleanup_fd)
        int fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, 0, 0);

        return fd < 0 ? -1 : 0;
}

static int probe_environment(pid_t pid)
{
        CLEAN(cleanup_free) char *path = xasprintf("/proc/%d/environ", (int)pid);

        return probe_read(path);
}

/* The kernel */

/* In a child: a process that is in a new namespace has other rights. */
static int probe_namespace(int flag)
{
        pid_t pid = (pid_t)syscall(SYS_clone, flag | SIGCHLD, 0, 0, 0, 0);

        if (pid == 0)
                _exit(0);
        return pid < 0 ? -1 : 0;
}

static int probe_socket(int family)
{
        CLEAN(cleanup_fd)
        int fd = socket(family,
                        SOCK_CLOEXEC | (family == AF_PACKET || family == AF_NETLINK ? SOCK_RAW
                                                                                    : SOCK_STREAM),
                        0);

        return fd < 0 ? -1 : 0;
}

static int probe_raw(int family)
{
        CLEAN(cleanup_fd) int fd = socket(family, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);

        return fd < 0 ? -1 : 0;
}

static int probe_pair(int type)
{
        int fds[2];

        if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) < 0)
                return -1;
        close(fds[0]);
        close(fds[1]);
        return 0;
}

static int probe_mount(int flags)
{
        return mount("none", ".", "tmpfs", (unsigned long)flags, NULL);
}

static int probe_call(int call)
{
        static char room[256]; /* zeros are a good argument for none of them */
        CLEAN(cleanup_fd) int fd = (int)syscall(call, room, room, 0, 0, 0, 0);

        return fd < 0 && errno != EINVAL && errno != EFAULT && errno != E2BIG ? -1 : 0;
}

/* A kernel may lack some of these calls: a call that does not exist reaches nothing. */
static int probe_keys(int keyring)
{
        return (int)syscall(SYS_keyctl, 0 /* get its id */, keyring, 1);
}

static int probe_port(const char *port)
{
        CLEAN(cleanup_fd) int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_in to = { .sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

        return fd < 0 ? -1 : connect(fd, (struct sockaddr *)&to, sizeof(to));
}

static const struct {
        const char *name;
        int (*try)(const char *path);
} decoy_probes[] = {
        { "write", probe_write },
        { "change the mode", probe_chmod },
        { "change the owner", probe_chown },
        { "change the times", probe_times },
        { "set an attribute", probe_attribute },
        { "remove", probe_remove },
};

static const struct {
        const char *name;
        int (*try)(pid_t pid);
} process_probes[] = {
        { "signal", probe_signal },
        { "signal by thread", probe_signal_thread },
        { "signal with a value", probe_signal_value },
        { "signal by descriptor", probe_signal_descriptor },
        { "signal as owner", probe_owner },
        { "resource limits", probe_limits },
        { "priority", probe_priority },
        { "trace", probe_trace },
        { "memory", probe_memory },
        { "descriptors", probe_descriptors },
        { "environment", probe_environment },
};

static const struct {
        const char *name, *what;
        int (*try)(int argument);
        int argument;
} kernel_probes[] = {
        { "namespace", "users", probe_namespace, CLONE_NEWUSER },
        { "namespace", "mounts", probe_namespace, CLONE_NEWNS },
        { "namespace", "network", probe_namespace, CLONE_NEWNET },
        { "namespace", "processes", probe_namespace, CLONE_NEWPID },
        { "mount", "tmpfs", probe_mount, 0 },
        { "socket", "unix", probe_socket, AF_UNIX },
        { "socket", "pair of datagrams", probe_pair, SOCK_DGRAM },
        { "socket", "pair of raw ones", probe_pair, SOCK_RAW },
        { "socket", "netlink", probe_socket, AF_NETLINK },
        { "socket", "packet", probe_socket, AF_PACKET },
        { "socket", "vsock", probe_socket, AF_VSOCK },
        { "socket", "raw", probe_raw, AF_INET },
        { "keys", "session keyring", probe_keys, -3 },
        { "kernel", "bpf", probe_call, SYS_bpf },
        { "kernel", "perf_event_open", probe_call, SYS_perf_event_open },
        { "kernel", "io_uring", probe_call, SYS_io_uring_setup },
        { "kernel", "userfaultfd", probe_call, SYS_userfaultfd },
};

static void tell(const char *name, const char *what, int reached)
{
        printf("%s\t%s\t%s\t%s\n", name, what, reached >= 0 ? "reached" : "refused",
               reached >= 0 ? "" : strerror(errno));
}

static void try_process(const struct trampoline *t, const char *number)
{
        pid_t pid = (pid_t)strtol(number, NULL, 10);

        for (size_t i = 0; i < ARRAY_LEN(process_probes); i++) {
                errno = ESRCH;
                tell(process_probes[i].name, "the daemon",
                     t->view && pid <= getpid() ? -1 : process_probes[i].try(pid));
        }
}

int probe_main(const struct trampoline *t)
{
        const char *value;

        for (char **arg = t->program; *arg; arg++) {
                if (str_starts(*arg, "read=")) {
                        value = *arg + strlen("read=");
                        tell("read", value, probe_read(value));
                } else if (str_starts(*arg, "decoy=")) {
                        value = *arg + strlen("decoy=");
                        for (size_t i = 0; i < ARRAY_LEN(decoy_probes); i++)
                                tell(decoy_probes[i].name, "a file of the daemon",
                                     decoy_probes[i].try(value));
                } else if (str_starts(*arg, "process=")) {
                        try_process(t, *arg + strlen("process="));
                } else if (str_starts(*arg, "connect=")) {
                        value = *arg + strlen("connect=");
                        tell("network", "the daemon's port", probe_port(value));
                }
        }
        for (size_t i = 0; i < ARRAY_LEN(kernel_probes); i++)
                tell(kernel_probes[i].name, kernel_probes[i].what,
                     kernel_probes[i].try(kernel_probes[i].argument));
        return fflush(stdout) == 0 ? 0 : 1;
}
