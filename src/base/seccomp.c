/* The entries of system call filters. */
#define _GNU_SOURCE
#include "base/seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
_Static_assert(false, "no system call filter for this architecture");
#endif

#define X32_BIT   0x40000000U
#define TYPE_MASK 0xfU /* of socket(): the rest are flags */
#define NEW_FLAGS                                                                                  \
        (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
         CLONE_NEWPID | CLONE_NEWNET)

/* Newer than the headers that this may be built with. */
#ifndef SYS_open_tree_attr
#define SYS_open_tree_attr 467
#endif

static const int denied[] = {
        /* other processes' memory and descriptors */
        SYS_process_vm_readv,
        SYS_process_vm_writev,
        SYS_pidfd_getfd,
        SYS_kcmp,
        SYS_process_madvise,
        /* large parts of the kernel that a command has no need of */
        SYS_bpf,
        SYS_perf_event_open,
        SYS_userfaultfd,
        SYS_io_uring_setup,
        SYS_io_uring_enter,
        SYS_io_uring_register,
        SYS_fanotify_init,
        SYS_lookup_dcookie,
        /* keys are not in any namespace */
        SYS_keyctl,
        SYS_add_key,
        SYS_request_key,
        /* a handle finds files beyond the root */
        SYS_open_by_handle_at,
        /* the machine */
        SYS_kexec_load,
        SYS_init_module,
        SYS_finit_module,
        SYS_delete_module,
        SYS_reboot,
        SYS_swapon,
        SYS_swapoff,
        SYS_acct,
        SYS_syslog,
        SYS_quotactl,
        SYS_settimeofday,
        SYS_clock_settime,
        SYS_clock_adjtime,
        SYS_adjtimex,
        SYS_vhangup,
        SYS_nfsservctl,
#ifdef SYS_kexec_file_load
        SYS_kexec_file_load,
#endif
#ifdef SYS_quotactl_fd
        SYS_quotactl_fd,
#endif
#ifdef SYS_iopl
        SYS_iopl,
        SYS_ioperm,
#endif
#ifdef SYS_uselib
        SYS_uselib,
#endif
        SYS_sethostname,
        SYS_setdomainname,
};

/* What a file system's view is made of. */
static const int mounts[] = {
        SYS_mount,     SYS_umount2,    SYS_pivot_root,    SYS_setns,
        SYS_open_tree, SYS_fsopen,     SYS_fsmount,       SYS_fsconfig,
        SYS_fspick,    SYS_move_mount, SYS_mount_setattr, SYS_open_tree_attr,
};

void seccomp_put(struct seccomp *p, struct sock_filter what)
{
        if (p->len < SECCOMP_MAX)
                p->at[p->len++] = what;
}

static void seccomp_load_at(struct seccomp *p, size_t offset)
{
        seccomp_put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

void seccomp_load_call(struct seccomp *p)
{
        seccomp_load_at(p, offsetof(struct seccomp_data, nr));
}

void seccomp_load_arg(struct seccomp *p, int arg)
{
        /* little endian: the low half is the first */
        seccomp_load_at(p, offsetof(struct seccomp_data, args) + (size_t)arg * 8);
}

void seccomp_when(struct seccomp *p, uint32_t value, uint8_t n)
{
        seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, n));
}

void seccomp_answer(struct seccomp *p, int errno_value)
{
        seccomp_put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
                                                    SECCOMP_RET_ERRNO | (uint32_t)errno_value));
}

void seccomp_allow(struct seccomp *p)
{
        seccomp_put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

void seccomp_abi(struct seccomp *p)
{
        seccomp_load_at(p, offsetof(struct seccomp_data, arch));
        seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0));
        seccomp_answer(p, ENOSYS);
        seccomp_load_call(p);
        seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
        seccomp_answer(p, ENOSYS);
}

void seccomp_deny(struct seccomp *p, int call, int errno_value)
{
        seccomp_when(p, (uint32_t)call, 1);
        seccomp_answer(p, errno_value);
}

void seccomp_only_with(struct seccomp *p, int call, int arg, uint32_t value)
{
        seccomp_when(p, (uint32_t)call, 4);
        seccomp_load_arg(p, arg);
        seccomp_when(p, value, 1);
        seccomp_allow(p);
        seccomp_answer(p, EPERM);
}

void seccomp_not_with(struct seccomp *p, int call, int arg, uint32_t value)
{
        seccomp_when(p, (uint32_t)call, 4);
        seccomp_load_arg(p, arg);
        seccomp_when(p, value, 1);
        seccomp_answer(p, EPERM);
        seccomp_load_call(p);
}

void seccomp_no_clone3(struct seccomp *p)
{
        seccomp_deny(p, SYS_clone3, ENOSYS);
}

static void seccomp_without_flags(struct seccomp *p, int call, uint32_t flags)
{
        seccomp_when(p, (uint32_t)call, 4);
        seccomp_load_arg(p, 0);
        seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1));
        seccomp_answer(p, EPERM);
        seccomp_allow(p);
}

void seccomp_no_namespaces(struct seccomp *p)
{
        seccomp_without_flags(p, SYS_clone, (uint32_t)NEW_FLAGS);
        seccomp_without_flags(p, SYS_unshare, (uint32_t)NEW_FLAGS | CLONE_NEWTIME);
}

void seccomp_no_mounts(struct seccomp *p)
{
        for (size_t i = 0; i < ARRAY_LEN(mounts); i++)
                seccomp_deny(p, mounts[i], EPERM);
}

void seccomp_no_typing(struct seccomp *p)
{
        seccomp_when(p, SYS_ioctl, 6);
        seccomp_load_arg(p, 1);
        seccomp_when(p, TIOCSTI, 1);
        seccomp_answer(p, EPERM);
        seccomp_when(p, TIOCLINUX, 1);
        seccomp_answer(p, EPERM);
        seccomp_allow(p);
}

void seccomp_sockets(struct seccomp *p, int unix_answer)
{
        seccomp_when(p, SYS_socket, 11);
        seccomp_load_arg(p, 0);
        seccomp_when(p, AF_UNIX, 1);
        if (unix_answer)
                seccomp_answer(p, unix_answer);
        else
                seccomp_allow(p);
        seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 2, 0));
        seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 1, 0));
        seccomp_answer(p, EAFNOSUPPORT);
        seccomp_load_arg(p, 1);
        seccomp_put(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, TYPE_MASK));
        seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SOCK_RAW, 0, 1));
        seccomp_answer(p, EPERM);
        seccomp_allow(p);
}

/* Of Unix sockets SOCK_RAW is another name for datagrams. */
void seccomp_socketpairs(struct seccomp *p, bool with_datagrams)
{
        seccomp_when(p, SYS_socketpair, with_datagrams ? 4 : 9);
        seccomp_load_arg(p, 0);
        seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0));
        seccomp_answer(p, EAFNOSUPPORT);
        if (!with_datagrams) {
                seccomp_load_arg(p, 1);
                seccomp_put(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, TYPE_MASK));
                seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM,
                                                            2, 0));
                seccomp_put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                            SOCK_SEQPACKET, 1, 0));
                seccomp_answer(p, EPERM);
        }
        seccomp_allow(p);
}

void seccomp_no_kernel(struct seccomp *p)
{
        for (size_t i = 0; i < ARRAY_LEN(denied); i++)
                seccomp_deny(p, denied[i], EPERM);
}

int seccomp_load(const struct seccomp *p)
{
        struct sock_fprog filter = { .len = p->len, .filter = (struct sock_filter *)p->at };

        if (p->len == SECCOMP_MAX) {
                errno = E2BIG;
                return -1;
        }
        return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}
