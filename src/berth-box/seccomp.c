/* The system calls that commands in a sandbox do not get.
 *
 * A deny list: calls that reach the kernel's rarely tested or far-reaching parts, or other
 * processes' memory, or would undo the sandbox. Socket families are an allow list. The filter is
 * one for all commands and is made once, from the entries of base/seccomp.h:
 *
 *   - another ABI than the native one (32-bit, x32), and clone3: ENOSYS
 *   - clone, unshare, setns, mount calls and pivot_root: only in a nested sandbox
 *   - inner root does not become the supervisor; where its group is mapped (rootless) it gets no
 *     supplementary groups at all
 *   - ioctl TIOCSTI and TIOCLINUX: typing into another process's terminal
 *   - everything on the list of base/seccomp.c: EPERM */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/seccomp.h"
#include "berth-box/sandbox.h"

/* bubblewrap brings the loopback interface of its network up by netlink. */
static void put_route_socket(struct seccomp *p)
{
        seccomp_when(p, SYS_socket, 6);
        seccomp_load_arg(p, 0);
        seccomp_when(p, AF_NETLINK, 3);
        seccomp_load_arg(p, 2);
        seccomp_when(p, NETLINK_ROUTE, 1);
        seccomp_allow(p);
        seccomp_load_call(p);
}

/* Inner root may become any user but the supervisor, which outside may be the daemon's own user. */
static void put_not_supervisor(struct seccomp *p, int call, int n_args)
{
        seccomp_when(p, (uint32_t)call, (uint8_t)(3 * n_args + 1));
        for (int i = 0; i < n_args; i++) {
                seccomp_load_arg(p, i);
                seccomp_when(p, SANDBOX_SUPERVISOR, 1);
                seccomp_answer(p, EPERM);
        }
        seccomp_allow(p);
}

/* Commands have no supplementary groups, and none is added: the list lies in memory, where a filter
 * cannot look. The answer is "done", since programs that ask (apt, su) want to get rid of the
 * groups they have and would not go on after a refusal. */
static void put_no_groups(struct seccomp *p)
{
        seccomp_deny(p, SYS_setgroups, 0);
}

static void put_users(struct seccomp *p)
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

static void build_filter(struct seccomp *p, const struct sandbox *s)
{
        const struct sandbox_spec *spec = &s->spec;

        seccomp_abi(p);
        seccomp_no_clone3(p);
        if (!spec->nested_sandbox) {
                seccomp_no_namespaces(p);
                seccomp_no_mounts(p);
                if (!spec->root_inside)
                        seccomp_deny(p, SYS_chroot, EPERM);
        }
        if (spec->root_inside)
                put_users(p);
        if (spec->root_inside && s->rootless)
                put_no_groups(p);
        seccomp_no_typing(p);
        if (spec->nested_sandbox)
                put_route_socket(p);
        seccomp_sockets(p, 0);
        seccomp_socketpairs(p, true);
        seccomp_no_kernel(p);
        seccomp_allow(p);
}

int seccomp_install(const struct sandbox *s)
{
        static struct seccomp filter;

        if (filter.len == 0)
                build_filter(&filter, s);
        return seccomp_load(&filter);
}
