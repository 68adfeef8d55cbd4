#define _GNU_SOURCE
#include "plugin/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fd.h"

#define ARGS_MAX       256
#define OPEN_FILES_MAX 4096

#ifdef __x86_64__
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#else
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#endif
#define X32_BIT 0x40000000U

/* In newer headers than Debian 12 has. */
#define ACCESS_REFER     (UINT64_C(1) << 13) /* version 2 */
#define ACCESS_TRUNCATE  (UINT64_C(1) << 14) /* 3 */
#define ACCESS_IOCTL_DEV (UINT64_C(1) << 15) /* 5 */
#define SCOPE_ABSTRACT   (UINT64_C(1) << 0)  /* 6 */
#define SCOPE_SIGNAL     (UINT64_C(1) << 1)

struct ruleset_attr {
        uint64_t handled_access_fs, handled_access_net, scoped;
};

static const uint64_t access_read =
        LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
/* What may be asked for on something that is no directory. */
static const uint64_t access_file = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |
                                    LANDLOCK_ACCESS_FS_WRITE_FILE | ACCESS_TRUNCATE |
                                    ACCESS_IOCTL_DEV;

/* What any program needs to start, to find hosts and to check certificates. */
static const char *const system_reads[] = {
        "/usr",
        "/lib",
        "/lib32",
        "/lib64",
        "/bin",
        "/sbin",
        "/proc",
        "/sys/fs/cgroup",
        "/sys/devices/system",
        "/etc/ssl",
        "/etc/pki",
        "/etc/ca-certificates",
        "/etc/crypto-policies",
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/host.conf",
        "/etc/hostname",
        "/etc/nsswitch.conf",
        "/etc/gai.conf",
        "/etc/services",
        "/etc/protocols",
        "/etc/passwd",
        "/etc/group",
        "/etc/localtime",
        "/etc/ld.so.cache",
        "/etc/os-release",
        "/etc/alternatives",
        "/etc/bash.bashrc",
        "/etc/profile",
        "/run/systemd/resolve",
        "/dev/random",
        "/dev/urandom",
        NULL,
};
static const char *const system_writes[] = { "/dev/null", "/dev/zero", "/dev/full", NULL };

/* The host's side */

const char *const *confine_argv(const struct confinement *c, struct arena *arena)
{
        const char **argv = arena_alloc(arena, (ARGS_MAX + 8) * sizeof(*argv));
        size_t n = 0;

        argv[n++] = PLUGIN_TRAMPOLINE;
        argv[n++] = arena_printf(arena, "--parent=%d", (int)getpid());
        if (c->landlock) {
                argv[n++] = arena_printf(arena, "--read=%s", c->root);
                argv[n++] = arena_printf(arena, "--write=%s", c->private_dir);
                for (const char *const *p = c->extra_reads; p && *p && n < ARGS_MAX; p++)
                        argv[n++] = arena_printf(arena, "--read=%s", *p);
        }
        argv[n++] = "--";
        argv[n++] = c->program;
        argv[n++] = c->entry;
        argv[n] = NULL;
        return argv;
}

int confine_landlock_version(void)
{
        long version =
                syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

        return version > 0 ? (int)version : 0;
}

/* The trampoline's side. It is a process of one thread that is about to exec, and says what goes
 * wrong on standard error, which the host keeps. */

bool confine_is_trampoline(const char *argv0)
{
        return argv0 && streq(argv0, PLUGIN_TRAMPOLINE);
}

static int complain(const char *what, const char *about)
{
        fprintf(stderr, "berth-worker: %s%s%s: %s\n", what, about ? " " : "", about ? about : "",
                strerror(errno));
        return -1;
}

static uint64_t handled_access(int version)
{
        uint64_t all = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;

        if (version >= 2)
                all |= ACCESS_REFER;
        if (version >= 3)
                all |= ACCESS_TRUNCATE;
        if (version >= 5)
                all |= ACCESS_IOCTL_DEV;
        return all;
}

/* What is not there cannot be read, and needs no rule. */
static int allow(int ruleset, const char *path, uint64_t access)
{
        CLEAN(cleanup_fd) int fd = open(path, O_PATH | O_CLOEXEC);
        struct landlock_path_beneath_attr rule = { .parent_fd = fd };
        struct stat st;

        if (fd < 0)
                return errno == ENOENT || errno == ENOTDIR || errno == EACCES
                               ? 0
                               : complain("open", path);
        if (fstat(fd, &st) < 0)
                return complain("look at", path);
        rule.allowed_access = S_ISDIR(st.st_mode) ? access : access & access_file;
        if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
                return complain("allow", path);
        return 0;
}

static int allow_all(int ruleset, const char *const *paths, uint64_t access)
{
        int r = 0;

        for (; r >= 0 && *paths; paths++)
                r = allow(ruleset, *paths, access);
        return r;
}

/* An interpreter outside /usr has its files in the prefix that its bin directory is in. */
static int allow_prefix(int ruleset, const char *program)
{
        char prefix[4096];

        snprintf(prefix, sizeof(prefix), "%s", program);
        for (int i = 0; i < 2; i++) {
                char *slash = strrchr(prefix, '/');

                if (slash)
                        *slash = '\0';
        }
        return allow(ruleset, prefix[0] ? prefix : program, access_read);
}

static int make_ruleset(int version, uint64_t *ret_handled)
{
        struct ruleset_attr attr = { .handled_access_fs = handled_access(version) };
        size_t size = version >= 6   ? sizeof(attr)
                      : version >= 4 ? offsetof(struct ruleset_attr, scoped)
                                     : offsetof(struct ruleset_attr, handled_access_net);

        if (version >= 6)
                attr.scoped = SCOPE_ABSTRACT | SCOPE_SIGNAL;
        *ret_handled = attr.handled_access_fs;
        return (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
}

static int restrict_files(char **options, const char *program)
{
        CLEAN(cleanup_fd) int ruleset = -1;
        int version = confine_landlock_version(), r;
        uint64_t handled;

        if (version == 0)
                return 0;
        ruleset = make_ruleset(version, &handled);
        if (ruleset < 0)
                return complain("landlock", NULL);
        r = allow_all(ruleset, system_reads, access_read);
        if (r >= 0)
                r = allow_all(ruleset, system_writes, access_read | LANDLOCK_ACCESS_FS_WRITE_FILE);
        if (r >= 0)
                r = allow_prefix(ruleset, program);
        for (; r >= 0 && *options; options++) {
                if (str_starts(*options, "--read="))
                        r = allow(ruleset, *options + strlen("--read="), access_read);
                else if (str_starts(*options, "--write="))
                        r = allow(ruleset, *options + strlen("--write="), handled);
        }
        if (r >= 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
                r = complain("landlock", NULL);
        return r;
}

static int limit_self(void)
{
        struct rlimit files;

        (void)setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > OPEN_FILES_MAX) {
                files.rlim_cur = OPEN_FILES_MAX;
                (void)setrlimit(RLIMIT_NOFILE, &files);
        }
        umask(077);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return complain("no new privileges", NULL);
        return 0;
}

/* As root a program could read the memory and the environment of every other one: Landlock stands
 * in the way of tracing, but the kernel lets CAP_PERFMON past it. What is kept lets it read a
 * package that belongs to somebody else. Without capabilities there is nothing to drop. */
static int drop_capabilities(void)
{
        const uint32_t kept = (1u << CAP_DAC_OVERRIDE) | (1u << CAP_DAC_READ_SEARCH);
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = { { 0 } };

        for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
                if (cap >= 32 || !(kept & (1u << cap)))
                        (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
        if (syscall(SYS_capget, &header, data) < 0)
                return complain("capabilities", NULL);
        data[0].permitted &= kept;
        data[0].effective &= kept;
        data[0].inheritable = data[1].inheritable = 0;
        data[1].permitted = data[1].effective = 0;
        if (syscall(SYS_capset, &header, data) < 0)
                return complain("capabilities", NULL);
        return 0;
}

/* The daemon's own socket knows its user by his id, which a worker has too, and Landlock does not
 * stand before sockets with a path. So there are none; pairs are there for a worker's children, and
 * io_uring, which could make one without asking, is not. Other ABIs have other numbers. */
static int restrict_sockets(void)
{
        static struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 0, 6),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 4, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 3, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 4),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 2),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { ARRAY_LEN(filter), filter };

        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0)
                return complain("seccomp", NULL);
        return 0;
}

/* A worker that does not look at its standard input would outlive a daemon that was killed. */
static bool die_with(long parent)
{
        return prctl(PR_SET_PDEATHSIG, SIGKILL) >= 0 && getppid() == parent;
}

int confine_main(int argc, char **argv)
{
        bool landlock = false;
        long parent = 0;
        int i;

        for (i = 1; i < argc && !streq(argv[i], "--"); i++) {
                if (str_starts(argv[i], "--parent="))
                        parent = strtol(argv[i] + strlen("--parent="), NULL, 10);
                else
                        landlock = true;
        }
        if (i + 1 >= argc) {
                fprintf(stderr, "berth-worker: not meant to be started by hand\n");
                return 126;
        }
        argv[i] = NULL;
        if (!die_with(parent) || limit_self() < 0 ||
            (landlock && restrict_files(argv + 1, argv[i + 1]) < 0) || drop_capabilities() < 0 ||
            restrict_sockets() < 0)
                return 126;
        execv(argv[i + 1], argv + i + 1);
        (void)complain("start", argv[i + 1]);
        return 127;
}
