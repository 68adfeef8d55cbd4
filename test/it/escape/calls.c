/* System calls that no box needs. They get arguments that do no harm where they are allowed; what
 * counts is whether the kernel's code behind them is reached at all. */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "escape.h"

static void keys(char **args)
{
        must_not_be_reached(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 1),
                            "keyctl");
        must_not_be_reached(
                syscall(SYS_add_key, "user", "escape", "x", 1, KEY_SPEC_PROCESS_KEYRING),
                "add_key");
        must_not_be_reached(syscall(SYS_request_key, "user", "escape", NULL, 0), "request_key");
}

static void bpf(char **args)
{
        union bpf_attr attr = {
                .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1
        };

        must_not_be_reached(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)), "bpf");
}

static void perf(char **args)
{
        struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE,
                                        .size = sizeof(attr),
                                        .config = PERF_COUNT_SW_TASK_CLOCK,
                                        .exclude_kernel = 1,
                                        .exclude_hv = 1 };

        must_not_be_reached(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0), "perf_event_open");
}

static void io_uring(char **args)
{
        char parameters[512] = { 0 };

        must_not_be_reached(syscall(SYS_io_uring_setup, 4, parameters), "io_uring_setup");
        must_not_be_reached(syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0), "io_uring_enter");
        must_not_be_reached(syscall(SYS_io_uring_register, -1, 0, NULL, 0), "io_uring_register");
}

static void userfaultfd(char **args)
{
        must_not_be_reached(syscall(SYS_userfaultfd, O_CLOEXEC | 1), "userfaultfd");
        must_fail(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC), "/dev/userfaultfd");
}

static void kernel_image(char **args)
{
        must_not_be_reached(syscall(SYS_kexec_load, 0, 0, NULL, ~0UL), "kexec_load");
        must_not_be_reached(syscall(SYS_kexec_file_load, -1, -1, 0, "", ~0UL), "kexec_file_load");
        must_not_be_reached(syscall(SYS_reboot, 0, 0, 0, NULL), "reboot");
}

static void modules(char **args)
{
        must_not_be_reached(syscall(SYS_init_module, "x", 1, ""), "init_module");
        must_not_be_reached(syscall(SYS_finit_module, -1, "", 0), "finit_module");
        must_not_be_reached(syscall(SYS_delete_module, "escape-none", O_NONBLOCK), "delete_module");
}

static void set_clock(char **args)
{
        struct timespec now;
        struct timex none = { .modes = 0 };

        (void)clock_gettime(CLOCK_REALTIME, &now);
        must_not_be_reached(syscall(SYS_clock_settime, CLOCK_REALTIME, NULL), "clock_settime");
        must_not_be_reached(syscall(SYS_settimeofday, &(struct timeval){ -1, -1 }, NULL),
                            "settimeofday");
        none.modes = ADJ_TICK;
        must_not_be_reached(syscall(SYS_adjtimex, &none), "adjtimex");
}

static void messages(char **args)
{
        char text[64];

        must_not_be_reached(syscall(SYS_syslog, 3, text, sizeof(text)), "syslog");
        must_fail(open("/dev/kmsg", O_RDONLY | O_CLOEXEC | O_NONBLOCK), "/dev/kmsg");
        must_fail(open("/proc/kmsg", O_RDONLY | O_CLOEXEC | O_NONBLOCK), "/proc/kmsg");
}

/* Calls for administrators of a whole machine. */
static void administration(char **args)
{
        must_not_be_reached(syscall(SYS_swapon, NULL, 0), "swapon");
        must_not_be_reached(syscall(SYS_swapoff, NULL), "swapoff");
        must_not_be_reached(syscall(SYS_acct, "/escape-none"), "acct");
        must_not_be_reached(syscall(SYS_quotactl, ~0, NULL, 0, NULL), "quotactl");
        must_not_be_reached(syscall(SYS_fanotify_init, 0, O_RDONLY), "fanotify_init");
        must_not_be_reached(syscall(SYS_sethostname, NULL, 1), "sethostname");
        must_not_be_reached(syscall(SYS_setdomainname, NULL, 1), "setdomainname");
        must_not_be_reached(syscall(SYS_vhangup), "vhangup");
#ifdef __x86_64__
        must_not_be_reached(syscall(SYS_iopl, 3), "iopl");
        must_not_be_reached(syscall(SYS_ioperm, 0x80, 1, 1), "ioperm");
#endif
}

static void new_namespaces(char **args)
{
        static const struct {
                int flag;
                const char *name;
        } kinds[] = {
                { CLONE_NEWUSER, "user" }, { CLONE_NEWNS, "mount" },
                { CLONE_NEWPID, "pid" },   { CLONE_NEWNET, "net" },
                { CLONE_NEWIPC, "ipc" },   { CLONE_NEWUTS, "uts" },
                { 0x02000000, "cgroup" },  { CLONE_NEWUSER | CLONE_NEWNS, "user and mount" },
        };
        char what[64];

        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
                pid_t pid;

                (void)snprintf(what, sizeof(what), "unshare %s", kinds[i].name);
                must_not_be_reached(unshare(kinds[i].flag), what);
                (void)snprintf(what, sizeof(what), "clone %s", kinds[i].name);
                pid = (pid_t)syscall(SYS_clone, kinds[i].flag | SIGCHLD, NULL, NULL, NULL, 0);
                if (pid == 0)
                        _exit(0);
                must_not_be_reached(pid, what);
        }
}

/* Its flags are in memory, where a filter cannot look. */
static void new_clone(char **args)
{
        struct clone_args a = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
        long pid = syscall(SYS_clone3, &a, sizeof(a));

        if (pid == 0)
                _exit(0);
        must_not_be_reached(pid, "clone3 with a user namespace");
        must_not_be_reached(syscall(SYS_clone3, NULL, 0), "clone3");
}

static void join_namespaces(char **args)
{
        static const char *const names[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
        char path[64];

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                int fd;

                for (int own = 0; own < 2; own++) {
                        (void)snprintf(path, sizeof(path), "/proc/%s/ns/%s", own ? "self" : "1",
                                       names[i]);
                        fd = open(path, O_RDONLY | O_CLOEXEC);
                        if (fd < 0)
                                refused("%s: %s", path, strerrorname_np(errno));
                        else
                                must_not_be_reached(syscall(SYS_setns, fd, 0), path);
                        (void)close(fd);
                }
        }
}

/* The same calls by the other doors into the kernel: a filter that knows only one of them is none.
 */
#ifdef __x86_64__
static long call_32(long nr, uint32_t a, uint32_t b, uint32_t c)
{
        long r;

        __asm__ volatile("int $0x80"
                         : "=a"(r)
                         : "a"(nr), "b"(a), "c"(b), "d"(c)
                         : "memory", "r8", "r9", "r10", "r11");
        r = (int32_t)r;
        if (r < 0 && r > -4096) {
                errno = (int)-r;
                return -1;
        }
        return r;
}

enum { I386_KEYCTL = 288, I386_UNSHARE = 310, I386_BPF = 357, I386_IO_URING_SETUP = 425 };

static int call_one_32(void *ctx)
{
        long nr = *(long *)ctx;
        uint32_t a = 0, b = 0;

        if (nr == I386_UNSHARE)
                a = CLONE_NEWUSER;
        if (nr == I386_KEYCTL)
                b = (uint32_t)KEY_SPEC_SESSION_KEYRING;
        must_not_be_reached(call_32(nr, a, b, 1), "int 0x80");
        return 0;
}

static void other_doors(char **args)
{
        static const long numbers[] = { I386_KEYCTL, I386_UNSHARE, I386_BPF, I386_IO_URING_SETUP };
        static const long x32[] = { SYS_keyctl, SYS_unshare, SYS_bpf, SYS_io_uring_setup };

        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
                long nr = numbers[i];
                int sig, status = in_child(call_one_32, &nr, &sig);

                if (status == 1)
                        _exit(1); /* it has said so */
                refused("int 0x80, call %ld: %s", nr, sig ? "killed" : "refused");
        }
        for (size_t i = 0; i < sizeof(x32) / sizeof(x32[0]); i++)
                must_not_be_reached(syscall(x32[i] | 0x40000000, CLONE_NEWUSER, 0, 0), "x32");
}
#endif

const struct escape_case call_cases[] = {
        { "keys", "", 0, keys },
        { "bpf", "", 0, bpf },
        { "perf", "", 0, perf },
        { "io-uring", "", 0, io_uring },
        { "userfaultfd", "", 0, userfaultfd },
        { "kernel-image", "", 0, kernel_image },
        { "modules", "", 0, modules },
        { "clock", "", 0, set_clock },
        { "messages", "", 0, messages },
        { "administration", "", 0, administration },
        { "unshare", "", 0, new_namespaces },
        { "clone3", "", 0, new_clone },
        { "setns", "", 0, join_namespaces },
#ifdef __x86_64__
        { "other-doors", "", 0, other_doors },
#endif
        { 0 },
};
