/* The system calls that commands in a sandbox do not get.
 *
 * A deny list: what reaches the kernel's rarely tested or far-reaching parts, or other processes'
 * memory, or would undo the sandbox. Socket families are an allow list. The filter is one for all
 * commands and is made once; jumps go forward only, each entry is on its own, so it can be read
 * from top to bottom:
 *
 *   - another ABI than the native one (32-bit, x32): ENOSYS
 *   - clone3: ENOSYS, since its flags lie in memory where a filter cannot look; libc then uses
 * clone
 *   - clone, unshare, setns, mount calls and pivot_root: only in a nested sandbox
 *   - inner root does not become the supervisor; where its group is mapped (rootless) it gets no
 *     supplementary groups at all
 *   - ioctl TIOCSTI and TIOCLINUX: typing into somebody's terminal
 *   - everything on the list: EPERM
 *
 * The kernel keeps a bitmap of the calls that the filter allows whatever their arguments are, so
 * the length of the list costs nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "box/box_sandbox.h"

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

/* What a sandbox inside the sandbox is made of. */
static const int nesting[] = {
        SYS_mount,     SYS_umount2,    SYS_pivot_root,    SYS_setns,
        SYS_open_tree, SYS_fsopen,     SYS_fsmount,       SYS_fsconfig,
        SYS_fspick,    SYS_move_mount, SYS_mount_setattr, SYS_open_tree_attr,
};

#define MAX_FILTER 400

struct program {
        struct sock_filter at[MAX_FILTER];
        unsigned short len;
};

static void put(struct program *p, struct sock_filter what)
{
        if (p->len < MAX_FILTER)
                p->at[p->len++] = what;
}

static void load(struct program *p, size_t offset)
{
        put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void load_arg(struct program *p, int arg)
{
        load(p,
             offsetof(struct seccomp_data, args) + (size_t)arg * 8); /* little endian: low half */
}

static void answer_errno(struct program *p, int errno_value)
{
        put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
                                            SECCOMP_RET_ERRNO | (uint32_t)errno_value));
}

static void allow(struct program *p)
{
        put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

/* The next `n` instructions are for this value only. */
static void when(struct program *p, uint32_t value, uint8_t n)
{
        put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, n));
}

static void deny(struct program *p, int call, int errno_value)
{
        when(p, (uint32_t)call, 1);
        answer_errno(p, errno_value);
}

static void put_abi(struct program *p)
{
        load(p, offsetof(struct seccomp_data, arch));
        put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0));
        answer_errno(p, ENOSYS);
        load(p, offsetof(struct seccomp_data, nr));
        put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
        answer_errno(p, ENOSYS);
}

/* clone and unshare are for everybody, new namespaces are not. */
static void put_namespaces(struct program *p, int call, uint32_t flags)
{
        when(p, (uint32_t)call, 4);
        load_arg(p, 0);
        put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1));
        answer_errno(p, EPERM);
        allow(p);
}

static void put_ioctl(struct program *p)
{
        when(p, SYS_ioctl, 6);
        load_arg(p, 1);
        when(p, TIOCSTI, 1);
        answer_errno(p, EPERM);
        when(p, TIOCLINUX, 1);
        answer_errno(p, EPERM);
        allow(p);
}

/* bubblewrap brings the loopback interface of its network up by netlink. */
static void put_route_socket(struct program *p)
{
        when(p, SYS_socket, 6);
        load_arg(p, 0);
        when(p, AF_NETLINK, 3);
        load_arg(p, 2);
        when(p, NETLINK_ROUTE, 1);
        allow(p);
        load(p, offsetof(struct seccomp_data, nr));
}

/* Unix sockets of any type; of the internet ones streams and datagrams. Netlink is not among them:
 * libc looks names up without it. */
static void put_socket(struct program *p)
{
        when(p, SYS_socket, 10);
        load_arg(p, 0);
        put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 7, 0));
        put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 2, 0));
        put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 1, 0));
        answer_errno(p, EAFNOSUPPORT);
        load_arg(p, 1);
        put(p, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, TYPE_MASK));
        put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, SOCK_RAW, 0, 1));
        answer_errno(p, EPERM);
        allow(p);
}

static void put_socketpair(struct program *p)
{
        when(p, SYS_socketpair, 4);
        load_arg(p, 0);
        put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0));
        answer_errno(p, EAFNOSUPPORT);
        allow(p);
}

/* Inner root may become anybody but the supervisor, who outside may be the daemon's own user. */
static void put_not_supervisor(struct program *p, int call, int n_args)
{
        when(p, (uint32_t)call, (uint8_t)(3 * n_args + 1));
        for (int i = 0; i < n_args; i++) {
                load_arg(p, i);
                when(p, SANDBOX_SUPERVISOR, 1);
                answer_errno(p, EPERM);
        }
        allow(p);
}

/* Commands have no supplementary groups, and none is added: the list lies in memory, where a filter
 * cannot look. The answer is "done", since whoever asks (apt, su) wants to get rid of what it has
 * and would not go on after a refusal. */
static void put_no_groups(struct program *p)
{
        deny(p, SYS_setgroups, 0);
}

static void put_users(struct program *p)
{
        put_not_supervisor(p, SYS_setuid, 1);
        put_not_supervisor(p, SYS_setgid, 1);
        put_not_supervisor(p, SYS_setfsuid, 1);
        put_not_supervisor(p, SYS_setfsgid, 1);
        put_not_supervisor(p, SYS_setreuid, 2);
        put_not_supervisor(p, SYS_setregid, 2);
        put_not_supervisor(p, SYS_setresuid, 3);
        put_not_supervisor(p, SYS_setresgid, 3);
}

static void build(struct program *p, const struct sandbox *s)
{
        const struct sandbox_spec *spec = &s->spec;

        put_abi(p);
        deny(p, SYS_clone3, ENOSYS);
        if (!spec->nested_sandbox) {
                put_namespaces(p, SYS_clone, (uint32_t)NEW_FLAGS);
                put_namespaces(p, SYS_unshare, (uint32_t)NEW_FLAGS | CLONE_NEWTIME);
                for (size_t i = 0; i < ARRAY_LEN(nesting); i++)
                        deny(p, nesting[i], EPERM);
                if (!spec->root_inside)
                        deny(p, SYS_chroot, EPERM);
        }
        if (spec->root_inside)
                put_users(p);
        if (spec->root_inside && s->rootless)
                put_no_groups(p);
        put_ioctl(p);
        if (spec->nested_sandbox)
                put_route_socket(p);
        put_socket(p);
        put_socketpair(p);
        for (size_t i = 0; i < ARRAY_LEN(denied); i++)
                deny(p, denied[i], EPERM);
        allow(p);
}

int seccomp_install(const struct sandbox *s)
{
        static struct program program;
        struct sock_fprog filter = { .filter = program.at };

        if (program.len == 0)
                build(&program, s);
        if (program.len == MAX_FILTER) {
                errno = E2BIG;
                return -1;
        }
        filter.len = program.len;
        return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}
