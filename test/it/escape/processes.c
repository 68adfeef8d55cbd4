/* Other processes: the host's, PID 1, and one's own by the calls that a box has no need for. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"

/* A process of the host by a word in its command line. Our own arguments are in /proc as well. */
static void find_process(char **args)
{
        DIR *proc = opendir("/proc");
        struct dirent *entry;
        unsigned seen = 0;

        while (proc && (entry = readdir(proc))) {
                char path[PATH_MAX], line[4096];
                pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
                ssize_t n = 0;
                int fd;

                if (pid <= 0)
                        continue;
                (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
                fd = open(path, O_RDONLY | O_CLOEXEC);
                if (fd >= 0)
                        n = read(fd, line, sizeof(line));
                (void)close(fd);
                seen++;
                if (n > 0 && memmem(line, (size_t)n, args[0], strlen(args[0])) &&
                    !memmem(line, (size_t)n, "find-process", strlen("find-process")))
                        escaped("process %d is visible", pid);
        }
        refused("%u processes, none with %s", seen, args[0]);
}

/* Process ids as the host counts them. */
static void signal_process(char **args)
{
        for (; *args; args++) {
                pid_t pid = (pid_t)strtol(*args, NULL, 10);

                must_fail(kill(pid, 0), "kill");
                must_fail(syscall(SYS_pidfd_open, pid, 0), "pidfd_open");
                must_fail(getpriority(PRIO_PROCESS, (id_t)pid) == -1 && errno ? -1 : 0,
                          "getpriority");
        }
}

static void open_in_proc(pid_t pid, const char *name, int flags)
{
        char path[PATH_MAX];

        (void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
        must_fail(open(path, flags | O_CLOEXEC), path);
}

/* PID 1 is the supervisor: whoever gets into it has its descriptors. */
static void enter_init(char **args)
{
        pid_t pid = *args ? (pid_t)strtol(*args, NULL, 10) : 1;
        char path[PATH_MAX], byte;
        struct iovec mine = { &byte, 1 }, theirs = { (void *)0x400000, 1 };
        int pidfd;

        must_fail(ptrace(PTRACE_SEIZE, pid, NULL, NULL), "ptrace");
        open_in_proc(pid, "mem", O_RDWR);
        open_in_proc(pid, "environ", O_RDONLY);
        open_in_proc(pid, "maps", O_RDONLY);
        open_in_proc(pid, "root", O_PATH);
        open_in_proc(pid, "cwd", O_PATH);
        open_in_proc(pid, "exe", O_PATH);
        open_in_proc(pid, "fd/0", O_PATH);
        open_in_proc(pid, "ns/net", O_RDONLY);
        (void)snprintf(path, sizeof(path), "/proc/%d/fd", pid);
        must_fail(opendir(path) ? 0 : -1, path);
        must_fail(process_vm_readv(pid, &mine, 1, &theirs, 1, 0), "process_vm_readv");
        pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        must_fail(syscall(SYS_pidfd_getfd, pidfd, 0, 0), "pidfd_getfd");
        must_fail(syscall(SYS_kcmp, pid, getpid(), KCMP_FILE, 0, 0), "kcmp");
        must_fail(setpriority(PRIO_PROCESS, (id_t)pid, 19), "setpriority");
        must_fail(prlimit(pid, RLIMIT_CORE, &(struct rlimit){ 0, 0 }, NULL), "prlimit");
}

/* Every signal. Whether it is still there is for the test to see from outside. */
static void kill_init(char **args)
{
        unsigned delivered = 0;

        for (int sig = 1; sig <= SIGRTMAX; sig++)
                if (kill(1, sig) == 0)
                        delivered++;
        refused("%u of %d signals were accepted", delivered, SIGRTMAX);
        refused("all others: %d", kill(-1, SIGCONT));
}

/* Stop signals that claim to come from outside: whoever queues one writes the sender into it. As
 * above, the test looks from outside. */
static void forge_signal(char **args)
{
        static const int codes[] = { SI_QUEUE, SI_TIMER,   SI_MESGQ, SI_ASYNCIO, SI_SIGIO,
                                     SI_TKILL, SI_ASYNCNL, SI_USER,  SI_KERNEL };
        static const int signals[] = { SIGTERM, SIGINT, SIGCHLD };
        int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
        unsigned tried = 0, delivered = 0;

        for (size_t s = 0; s < sizeof(signals) / sizeof(signals[0]); s++)
                for (size_t c = 0; c < sizeof(codes) / sizeof(codes[0]); c++) {
                        siginfo_t info = { .si_signo = signals[s], .si_code = codes[c] };

                        tried += 3;
                        delivered += syscall(SYS_rt_sigqueueinfo, 1, signals[s], &info) == 0;
                        delivered += syscall(SYS_rt_tgsigqueueinfo, 1, 1, signals[s], &info) == 0;
                        delivered +=
                                syscall(SYS_pidfd_send_signal, pidfd, signals[s], &info, 0) == 0;
                }
        refused("%u of %u signals were accepted", delivered, tried);
}

/* The same without a sender: the kernel has room for so many queued signals of a user and all
 * namespaces that he has made, and a plain signal that it has no room for arrives without its
 * details, as one from process 0. */
static void crowd_signals(char **args)
{
        siginfo_t info = { .si_signo = SIGTERM, .si_code = SI_QUEUE };
        unsigned queued = 0, delivered = 0;
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGRTMIN);
        sigprocmask(SIG_BLOCK, &set, NULL);
        while (queued < 2000000 && sigqueue(getpid(), SIGRTMIN, (union sigval){ 0 }) == 0)
                queued++;
        if (errno != EAGAIN)
                broken("%u signals are queued: %s", queued, strerrorname_np(errno));
        for (int i = 0; i < 8; i++) {
                delivered += syscall(SYS_rt_sigqueueinfo, 1, SIGTERM, &info) == 0;
                delivered += syscall(SYS_rt_tgsigqueueinfo, 1, 1, SIGTERM, &info) == 0;
        }
        refused("%u signals are queued, %u more were accepted", queued, delivered);
}

/* The same user's processes by calls that a box has no need for. */
static void read_child(char **args)
{
        static char secret = 's';
        char byte = 0;
        struct iovec mine = { &byte, 1 }, theirs = { &secret, 1 };
        pid_t pid = fork();
        long r;
        int error, pidfd;

        if (pid == 0) {
                (void)pause();
                _exit(0);
        }
        pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        r = process_vm_readv(pid, &mine, 1, &theirs, 1, 0);
        error = errno;
        if (r < 0) {
                r = process_vm_writev(pid, &mine, 1, &theirs, 1, 0);
                error = errno;
        }
        if (r < 0) {
                r = syscall(SYS_pidfd_getfd, pidfd, 1, 0);
                error = errno;
        }
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        errno = error;
        must_fail(r, "process_vm_readv, process_vm_writev, pidfd_getfd of a child");
}

/* What a process may do at most is what the kernel says about it. */
static void check_status(char **args)
{
        static const char *const wanted[] = {
                "CapInh:\t0000000000000000",
                "CapPrm:\t0000000000000000",
                "CapEff:\t0000000000000000",
                "CapBnd:\t0000000000000000",
                "CapAmb:\t0000000000000000",
                "NoNewPrivs:\t1",
                "Seccomp:\t2",
        };
        char text[8192];
        ssize_t n;
        int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);

        n = read(fd, text, sizeof(text) - 1);
        if (n <= 0)
                broken("/proc/self/status: %s", strerrorname_np(errno));
        text[n] = '\0';
        for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
                if (!strstr(text, wanted[i]))
                        escaped("not so: %s", wanted[i]);
        refused("no capabilities, no new privileges, a filter");
        must_fail(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0), "raise a capability");
        must_fail(setuid(0) == 0 && getuid() != 0 ? 0 : -1, "setuid 0");
}

const struct escape_case process_cases[] = {
        { "find-process", "WORD", 1, find_process },
        { "signal", "PID...", 1, signal_process },
        { "enter-init", "[PID]", 0, enter_init },
        { "kill-init", "", 0, kill_init },
        { "forge-signal", "", 0, forge_signal },
        { "crowd-signals", "", 0, crowd_signals },
        { "read-child", "", 0, read_child },
        { "status", "", 0, check_status },
        { 0 },
};
