/* The system calls that workers do not get, from the entries of base/seccomp.h:
 *
 *   - namespaces, mounts, other ABIs, the kernel's far-reaching parts, typing into terminals: as
 * for commands in a sandbox
 *   - sockets but those of the internet. The daemon's own socket knows its user by the id, which a
 *     worker may have too, and Landlock does not stand before sockets with a path. Pairs are there
 *     for a worker's children, but those of datagrams, which can be sent from to any path
 *   - tracing, and the limits, priorities and pages of any process but the caller. Libc asks for
 * its own as number 0
 *   - opening files by handle, quotas, keys
 *
 * A view leaves nothing else to reach: foreign processes have no number in it, and foreign files no
 * writable name. Without one the filter stands in for it where it can:
 *
 *   - no signals to the daemon, to its group or to all processes, by number or by descriptor: no
 *     pidfds, and no owner of a descriptor, which is signalled when something happens to it
 *   - from version 6 on Landlock keeps all signals inside. Before that and with the daemon's user,
 *     kill() reaches the worker itself and groups only: the number of any thread of the daemon
 * means the daemon, and those a filter does not know
 *   - where the worker has the daemon's user: no modes, owners, attributes and times of files at
 *     all, by path or by descriptor, since reading a file is enough to get a descriptor and
 * Landlock knows nothing of these calls. So `cp -p` or tar do not work there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/syscall.h>

#include "base/seccomp.h"
#include "plugin/confine_internal.h"

/* Newer than the headers that this may be built with. */
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat    463
#define SYS_removexattrat 466
#endif
#ifndef SYS_file_setattr
#define SYS_file_setattr 469
#endif

/* Calls about a process, and the argument that says which. */
static const struct {
        int call, arg;
} own_process_only[] = {
        { SYS_prlimit64, 0 },      { SYS_setpriority, 1 },   { SYS_ioprio_set, 1 },
        { SYS_sched_setparam, 0 }, { SYS_sched_setattr, 0 }, { SYS_sched_setscheduler, 0 },
        { SYS_migrate_pages, 0 },  { SYS_move_pages, 0 },    { SYS_sched_setaffinity, 0 },
};

static const int about_files[] = {
        SYS_fchmod,       SYS_fchmodat,  SYS_fchmodat2,  SYS_fchown,        SYS_fchownat,
        SYS_setxattr,     SYS_lsetxattr, SYS_fsetxattr,  SYS_removexattr,   SYS_lremovexattr,
        SYS_fremovexattr, SYS_utimensat, SYS_setxattrat, SYS_removexattrat, SYS_file_setattr,
#ifdef SYS_chmod
        SYS_chmod,        SYS_chown,     SYS_lchown,     SYS_utime,         SYS_utimes,
        SYS_futimesat,
#endif
};

/* The owner of a descriptor gets its signals. */
static const struct {
        int call;
        uint32_t what;
} gives_signals[] = {
        { SYS_fcntl, F_SETOWN },
        { SYS_fcntl, F_SETOWN_EX },
        { SYS_ioctl, FIOSETOWN },
        { SYS_ioctl, SIOCSPGRP },
};

/* Of processes only the caller: a number above zero has to be its own. Zero is its group, and a
 * number below zero is a group. */
static void filter_only_to_self(struct seccomp *p, int call)
{
        seccomp_when(p, (uint32_t)call, 6);
        seccomp_load_arg(p, 0);
        seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(),
                                                    3, 0));
        seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x80000000U, 2, 0));
        seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0));
        seccomp_answer(p, EPERM);
        seccomp_load_call(p);
}

static void filter_without_view(struct seccomp *p, const struct trampoline *t)
{
        static const int signals[] = { SYS_kill, SYS_tgkill, SYS_rt_sigqueueinfo,
                                       SYS_rt_tgsigqueueinfo };

        for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
                seccomp_not_with(p, signals[i], 0, (uint32_t)t->parent);
                seccomp_not_with(p, signals[i], 0, (uint32_t)-1);
        }
        seccomp_not_with(p, SYS_kill, 0, (uint32_t)-getpgid(t->parent));
        if (!t->uid && !t->open_files && t->landlock < LANDLOCK_SCOPES) {
                filter_only_to_self(p, SYS_kill);
                filter_only_to_self(p, SYS_rt_sigqueueinfo);
        }
        for (size_t i = 0; i < ARRAY_LEN(gives_signals); i++)
                seccomp_not_with(p, gives_signals[i].call, 1, gives_signals[i].what);
        seccomp_deny(p, SYS_tkill, EPERM); /* a thread's number says nothing about its process */
        seccomp_deny(p, SYS_pidfd_open, EPERM);
        seccomp_deny(p, SYS_pidfd_send_signal, EPERM); /* a directory in /proc will do for it */
        for (size_t i = 0; !t->uid && !t->open_files && i < ARRAY_LEN(about_files); i++)
                seccomp_deny(p, about_files[i], EPERM);
}

int filter_install(const struct trampoline *t)
{
        static struct seccomp p;

        seccomp_abi(&p);
        seccomp_no_clone3(&p);
        seccomp_no_namespaces(&p);
        seccomp_no_mounts(&p);
        if (!t->view)
                filter_without_view(&p, t);
        seccomp_no_typing(&p);
        if (t->offline)
                seccomp_deny(&p, SYS_socket, EACCES);
        seccomp_sockets(&p, EACCES);
        seccomp_socketpairs(&p, false);
        seccomp_no_kernel(&p);
        seccomp_deny(&p, SYS_chroot, EPERM);
        seccomp_deny(&p, SYS_ptrace, EPERM);
        for (size_t i = 0; i < ARRAY_LEN(own_process_only); i++)
                seccomp_only_with(&p, own_process_only[i].call, own_process_only[i].arg, 0);
        seccomp_allow(&p);
        if (seccomp_load(&p) < 0)
                return confine_complain("seccomp", NULL);
        return 0;
}
