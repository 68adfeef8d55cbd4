/* Rights in a sandbox.
 *
 * PID 1 is a user of its own, neither root nor the agent of the sandbox, and all its capabilities
 * hold in the sandbox's user namespace only. It keeps those it works with: becoming the command's
 * user (SETUID, SETGID), giving it its terminal (CHOWN), killing (KILL), finding its processes
 * (SYS_PTRACE), and taking rights away (SETPCAP). Its bounding set, which no process below can ever
 * get beyond, is what a command may have: nothing, or for root inside the few that installing
 * packages takes.
 *
 * no_new_privs is set for PID 1 and therefore for all: no setuid program, no file capability works.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "berth-box/sandbox.h"

#define BIT(cap) (UINT64_C(1) << (cap))

#define SUPERVISOR_CAPS                                                                            \
        (BIT(CAP_SETUID) | BIT(CAP_SETGID) | BIT(CAP_CHOWN) | BIT(CAP_KILL) |                      \
         BIT(CAP_SYS_PTRACE) | BIT(CAP_SETPCAP))

#define ROOT_CAPS                                                                                  \
        (BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) | BIT(CAP_FSETID) |              \
         BIT(CAP_KILL) | BIT(CAP_SETGID) | BIT(CAP_SETUID) | BIT(CAP_SETFCAP) |                    \
         BIT(CAP_NET_BIND_SERVICE) | BIT(CAP_SYS_CHROOT))

#define AGENT_BITS                                                                                 \
        (SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |                           \
         SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |   \
         SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

static uint64_t command_caps(const struct sandbox_spec *spec)
{
        return spec->root_inside ? ROOT_CAPS : 0;
}

static int set_caps(uint64_t caps)
{
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = {
                { .effective = (uint32_t)caps, .permitted = (uint32_t)caps },
                { .effective = (uint32_t)(caps >> 32), .permitted = (uint32_t)(caps >> 32) },
        };

        return (int)syscall(SYS_capset, &header, data);
}

#define SAME_ID UINT32_MAX /* setresgid() leaves it as it is */

/* By the system calls themselves: the library would look for threads. */
static int become_user(uint32_t user, uint32_t group)
{
        return syscall(SYS_setgroups, 0, NULL) < 0 ||
                               syscall(SYS_setresgid, group, group, group) < 0 ||
                               syscall(SYS_setresuid, user, user, user) < 0
                       ? -1
                       : 0;
}

int privs_become_supervisor(const struct sandbox *s, struct err *err)
{
        /* A launcher that is root has given us the group before the clone (sandbox.c). */
        uint32_t group = s->rootless ? SANDBOX_SUPERVISOR : SAME_ID;

        if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0 ||
            become_user(SANDBOX_SUPERVISOR, group) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "become the sandbox's supervisor");
        return 0;
}

int privs_drop(const struct sandbox_spec *spec, struct err *err)
{
        uint64_t keep = command_caps(spec);

        for (int cap = 0; cap < 64; cap++)
                if (!(keep & BIT(cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
                        if (errno == EINVAL) /* past the last one that the kernel knows */
                                break;
                        return err_sys(err, ERR_PROVIDER, errno, "drop capabilities");
                }
        /* Each change of user has set "dumpable" to fs.suid_dumpable, which may be 1. */
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
            set_caps(SUPERVISOR_CAPS | keep) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "drop capabilities");
        return 0;
}

int privs_for_command(const struct sandbox *s)
{
        unsigned long bits = s->spec.root_inside ? 0 : AGENT_BITS;
        uint32_t user = s->spec.root_inside ? 0 : sandbox_user_id(&s->spec);
        uint32_t group = s->spec.root_inside ? 0 : sandbox_group_id(&s->spec);

        /* Until exec this process has the supervisor's memory and descriptors. */
        if (become_user(user, group) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
            prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0 || set_caps(command_caps(&s->spec)) < 0)
                return -1;
        return seccomp_install(s);
}
