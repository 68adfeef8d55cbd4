/* The trampoline: its command line, the processes of a worker with a view, and giving up rights. */
#define _GNU_SOURCE
#include "plugin/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "base/fd.h"
#include "plugin/confine_internal.h"
#include "rt/tool.h"

#define OPEN_FILES_MAX 4096
#define CHECK_LIMIT_MS 20000
#define STATUS_FAILED  126

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
/* The rights that may be asked for on something that is no directory. */
static const uint64_t access_file = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |
                                    LANDLOCK_ACCESS_FS_WRITE_FILE | ACCESS_TRUNCATE |
                                    ACCESS_IOCTL_DEV;

/* What any program needs to start, to find hosts and to check certificates. Of /etc/ssl not the
 * whole: it has private keys. */
static const struct shown system_paths[] = {
        { "/usr", NULL, SHOWN_READ },
        { "/lib", NULL, SHOWN_READ },
        { "/lib32", NULL, SHOWN_READ },
        { "/lib64", NULL, SHOWN_READ },
        { "/bin", NULL, SHOWN_READ },
        { "/sbin", NULL, SHOWN_READ },
        { "/sys/fs/cgroup", NULL, SHOWN_READ },
        { "/sys/devices/system", NULL, SHOWN_READ },
        { "/etc/ssl/certs", NULL, SHOWN_READ },
        { "/etc/ssl/cert.pem", NULL, SHOWN_READ },
        { "/etc/ssl/ca-bundle.pem", NULL, SHOWN_READ },
        { "/etc/ssl/openssl.cnf", NULL, SHOWN_READ },
        { "/var/lib/ca-certificates", NULL, SHOWN_READ },
        { "/etc/pki/tls/certs", NULL, SHOWN_READ },
        { "/etc/pki/tls/openssl.cnf", NULL, SHOWN_READ },
        { "/etc/pki/ca-trust", NULL, SHOWN_READ },
        { "/etc/ca-certificates", NULL, SHOWN_READ },
        { "/etc/crypto-policies", NULL, SHOWN_READ },
        { "/etc/resolv.conf", NULL, SHOWN_READ },
        { "/etc/hosts", NULL, SHOWN_READ },
        { "/etc/host.conf", NULL, SHOWN_READ },
        { "/etc/hostname", NULL, SHOWN_READ },
        { "/etc/nsswitch.conf", NULL, SHOWN_READ },
        { "/etc/gai.conf", NULL, SHOWN_READ },
        { "/etc/services", NULL, SHOWN_READ },
        { "/etc/protocols", NULL, SHOWN_READ },
        { "/etc/passwd", NULL, SHOWN_READ },
        { "/etc/group", NULL, SHOWN_READ },
        { "/etc/localtime", NULL, SHOWN_READ },
        { "/etc/ld.so.cache", NULL, SHOWN_READ },
        { "/etc/os-release", NULL, SHOWN_READ },
        { "/etc/alternatives", NULL, SHOWN_READ },
        { "/etc/bash.bashrc", NULL, SHOWN_READ },
        { "/etc/profile", NULL, SHOWN_READ },
        { "/run/systemd/resolve", NULL, SHOWN_READ },
        { "/dev/random", NULL, SHOWN_DEVICE },
        { "/dev/urandom", NULL, SHOWN_DEVICE },
        { "/dev/null", NULL, SHOWN_DEVICE },
        { "/dev/zero", NULL, SHOWN_DEVICE },
        { "/dev/full", NULL, SHOWN_DEVICE },
};

/* The host's side */

bool confine_has_users(const struct confine_policy *policy)
{
        return policy->confine && policy->uid_count > 0 && geteuid() == 0;
}

/* BERTH_TEST_NO_VIEW: tests see what is left where there can be none. */
static bool is_view_forbidden(void)
{
#ifdef BERTH_FAULTS
        return getenv("BERTH_TEST_NO_VIEW") != NULL;
#else
        return false;
#endif
}

static void keep_last_line(void *ctx, const char *line)
{
        struct confine_policy *policy = ctx;

        snprintf(policy->view_failure, sizeof(policy->view_failure), "%s", line);
}

int confine_try_view(const struct op *op, struct confine_policy *policy, struct err *err)
{
        static const char *const argv[] = { PLUGIN_TRAMPOLINE, "--check", NULL };
        static const char *const env[] = { NULL };
        CLEAN(buf_done) struct buf out = { .max = 4096 };
        struct tool tool = { .path = policy->trampoline,
                             .argv = argv,
                             .env = env,
                             .cwd = "/",
                             .limit_ms = CHECK_LIMIT_MS,
                             .out = &out,
                             .line = keep_last_line,
                             .ctx = policy };
        struct proc_status status = { 0 };
        int r = 0;

        pthread_mutex_lock(&policy->lock);
        if (!policy->confine || is_view_forbidden())
                policy->view = VIEW_FAILS;
        if (policy->view == VIEW_UNKNOWN) {
                r = tool_run(op, &tool, &status, err);
                if (r >= 0)
                        policy->view = status.exit_code == 0 ? VIEW_WORKS : VIEW_FAILS;
        }
        pthread_mutex_unlock(&policy->lock);
        return r < 0 ? err_wrap(err, r, "find out how workers can be confined") : 0;
}

bool confine_has_view(struct confine_policy *policy)
{
        bool works;

        pthread_mutex_lock(&policy->lock);
        works = policy->view == VIEW_WORKS;
        pthread_mutex_unlock(&policy->lock);
        return works;
}

/* BERTH_TEST_LANDLOCK: tests see what an older kernel leaves. */
static int landlock_to_use(void)
{
        int version = confine_landlock_version();
#ifdef BERTH_FAULTS
        const char *given = getenv("BERTH_TEST_LANDLOCK");

        if (given)
                return MIN(version, (int)strtol(given, NULL, 10));
#endif
        return version;
}

/* An interpreter outside /usr has its libraries beside its bin directory. Nothing else of that
 * prefix: it may be a user's home. */
static const char *libraries_of(const char *program, struct arena *arena)
{
        const char *slash = strrchr(program, '/');
        size_t dir = slash ? (size_t)(slash - program) : 0;

        if (dir < strlen("/bin") || strncmp(slash - strlen("/bin"), "/bin", strlen("/bin")) != 0)
                return NULL;
        return arena_printf(arena, "%.*s/lib", (int)(dir - strlen("/bin")), program);
}

const char *const *confine_argv(struct confine_policy *policy, const struct confinement *c,
                                const char *const *probes, struct arena *arena)
{
        const char **argv = arena_alloc(arena, 2 * SHOWN_MAX * sizeof(*argv));
        const char *libraries = libraries_of(c->program, arena);
        size_t n = 0;

        argv[n++] = PLUGIN_TRAMPOLINE;
        argv[n++] = arena_printf(arena, "--parent=%d", (int)getpid());
        if (c->offline)
                argv[n++] = "--offline";
        if (!policy->confine) {
                argv[n++] = "--open-files";
        } else {
                argv[n++] = arena_printf(arena, "--landlock=%d", landlock_to_use());
                if (confine_has_view(policy))
                        argv[n++] = "--view";
                if (c->uid)
                        argv[n++] = arena_printf(arena, "--uid=%u", (unsigned)c->uid);
                for (const char *const *p = policy->never_shown; p && *p; p++)
                        argv[n++] = arena_printf(arena, "--never=%s", *p);
                argv[n++] = arena_printf(arena, "--write=%s", c->private_dir);
                if (c->entry)
                        argv[n++] = arena_printf(arena, "--read=%s", c->program);
                if (c->entry && libraries)
                        argv[n++] = arena_printf(arena, "--read=%s", libraries);
        }
        for (const struct confine_path *p = c->reads;
             policy->confine && p && p->path && n < 2 * SHOWN_MAX - 64; p++) {
                if (p->copy)
                        argv[n++] = arena_printf(arena, "--copy=%s", p->copy);
                argv[n++] = arena_printf(arena, "--read=%s", p->path);
        }
        if (probes)
                argv[n++] = "--probe";
        argv[n++] = "--";
        if (!probes) {
                argv[n++] = c->program;
                argv[n++] = c->entry;
        }
        for (; probes && *probes && n < 2 * SHOWN_MAX - 1; probes++)
                argv[n++] = *probes;
        argv[n] = NULL;
        return argv;
}

int confine_landlock_version(void)
{
        long version =
                syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

        return version > 0 ? (int)version : 0;
}

/* The trampoline's side */

bool confine_is_trampoline(const char *argv0)
{
        return argv0 && streq(argv0, PLUGIN_TRAMPOLINE);
}

int confine_complain(const char *what, const char *about)
{
        fprintf(stderr, "berth-worker: %s%s%s: %s\n", what, about ? " " : "", about ? about : "",
                strerror(errno));
        return -1;
}

static void add_shown(struct trampoline *t, const char *path, const char *copy, enum shown_how how)
{
        if (t->n_shown < SHOWN_MAX)
                t->shown[t->n_shown++] = (struct shown){ path, copy, how };
}

/* The value of --NAME=VALUE, or NULL when it is another option. */
static const char *option_value(const char *arg, const char *name)
{
        return str_starts(arg, name) ? arg + strlen(name) : NULL;
}

static bool read_options(struct trampoline *t, int argc, char **argv)
{
        const char *value, *copy = NULL;
        int i;

        for (size_t k = 0; k < ARRAY_LEN(system_paths); k++)
                t->shown[t->n_shown++] = system_paths[k];
        for (i = 1; i < argc && !streq(argv[i], "--"); i++) {
                if ((value = option_value(argv[i], "--parent=")))
                        t->parent = (pid_t)strtol(value, NULL, 10);
                else if ((value = option_value(argv[i], "--landlock=")))
                        t->landlock = (int)strtol(value, NULL, 10);
                else if ((value = option_value(argv[i], "--uid=")))
                        t->uid = (uid_t)strtoul(value, NULL, 10);
                else if ((value = option_value(argv[i], "--copy=")))
                        copy = value;
                else if ((value = option_value(argv[i], "--never=")))
                        add_shown(t, value, NULL, SHOWN_NEVER);
                else if ((value = option_value(argv[i], "--write=")))
                        add_shown(t, t->private_dir = value, NULL, SHOWN_WRITE);
                else if ((value = option_value(argv[i], "--read="))) {
                        add_shown(t, value, copy, SHOWN_READ);
                        copy = NULL;
                } else if (streq(argv[i], "--check"))
                        t->check = t->view = true;
                else if (streq(argv[i], "--view"))
                        t->view = true;
                else if (streq(argv[i], "--offline"))
                        t->offline = true;
                else if (streq(argv[i], "--open-files"))
                        t->open_files = true;
                else if (streq(argv[i], "--probe"))
                        t->probe = true;
                else
                        return false;
        }
        t->program = argv + i + (i < argc);
        return t->check || t->probe || *t->program;
}

/* Landlock */

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

/* A path that does not exist cannot be read, and needs no rule. */
static int landlock_allow(int ruleset, const char *path, uint64_t access)
{
        CLEAN(cleanup_fd) int fd = open(path, O_PATH | O_CLOEXEC);
        struct landlock_path_beneath_attr rule = { .parent_fd = fd };
        struct stat st;

        if (fd < 0)
                return errno == ENOENT || errno == ENOTDIR || errno == EACCES
                               ? 0
                               : confine_complain("open", path);
        if (fstat(fd, &st) < 0)
                return confine_complain("look at", path);
        rule.allowed_access = S_ISDIR(st.st_mode) ? access : access & access_file;
        if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
                return confine_complain("allow", path);
        return 0;
}

static int landlock_ruleset(int version, uint64_t *ret_handled)
{
        struct ruleset_attr attr = { .handled_access_fs = handled_access(version) };
        size_t size = version >= LANDLOCK_SCOPES ? sizeof(attr)
                      : version >= 4             ? offsetof(struct ruleset_attr, scoped)
                                     : offsetof(struct ruleset_attr, handled_access_net);

        if (version >= LANDLOCK_SCOPES)
                attr.scoped = SCOPE_ABSTRACT | SCOPE_SIGNAL;
        *ret_handled = attr.handled_access_fs;
        return (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
}

static int restrict_files(const struct trampoline *t)
{
        CLEAN(cleanup_fd) int ruleset = -1;
        uint64_t handled;
        int r;

        ruleset = landlock_ruleset(t->landlock, &handled);
        if (ruleset < 0)
                return confine_complain("landlock", NULL);
        r = landlock_allow(ruleset, "/proc", access_read);
        for (size_t i = 0; r >= 0 && i < t->n_shown; i++) {
                const struct shown *s = &t->shown[i];

                if (s->how == SHOWN_READ)
                        r = landlock_allow(ruleset, s->path, access_read);
                else if (s->how == SHOWN_WRITE)
                        r = landlock_allow(ruleset, s->path, handled);
                else if (s->how == SHOWN_DEVICE)
                        r = landlock_allow(ruleset, s->path,
                                           access_read | LANDLOCK_ACCESS_FS_WRITE_FILE);
        }
        if (r >= 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
                r = confine_complain("landlock", NULL);
        return r;
}

/* Giving up rights */

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
                return confine_complain("no new privileges", NULL);
        return 0;
}

/* Which capabilities are left. None, but
 *   with all files open to it, root keeps its way past modes;
 *   without a view another user could not reach its package in a directory of root: it may search
 *   and read, and Landlock says where. */
static uint32_t kept_capabilities(const struct trampoline *t)
{
        if (t->open_files)
                return (1u << CAP_DAC_OVERRIDE) | (1u << CAP_DAC_READ_SEARCH);
        return t->view || geteuid() != 0 ? 0 : 1u << CAP_DAC_READ_SEARCH;
}

static int become_user(uid_t uid)
{
        if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
            setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
                return confine_complain(
                        "become the worker's user (it takes CAP_SETUID and CAP_SETGID)", NULL);
        return 0;
}

static int drop_rights(const struct trampoline *t)
{
        const uint32_t kept = kept_capabilities(t);
        struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
        struct __user_cap_data_struct data[2] = { { 0 } };

        for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
                if (cap >= 32 || !(kept & (1u << cap)))
                        (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
        if (t->uid && become_user(t->uid) < 0)
                return -1;
        if (syscall(SYS_capget, &header, data) < 0)
                return confine_complain("capabilities", NULL);
        data[0].permitted &= kept;
        data[0].effective = data[0].permitted;
        data[0].inheritable = t->uid ? data[0].permitted : 0;
        data[1].permitted = data[1].effective = data[1].inheritable = 0;
        if (syscall(SYS_capset, &header, data) < 0)
                return confine_complain("capabilities", NULL);
        for (int cap = 0; t->uid && cap < 32; cap++)
                if ((data[0].permitted & (1u << cap)) &&
                    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
                        return confine_complain("capabilities", NULL);
        return 0;
}

/* From here on this process is the worker. */
static int become_worker(const struct trampoline *t)
{
        if (limit_self() < 0 || (t->landlock && restrict_files(t) < 0) || drop_rights(t) < 0)
                return STATUS_FAILED;
        (void)syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
        if (filter_install(t) < 0)
                return STATUS_FAILED;
        if (t->probe)
                return probe_main(t);
        execv(t->program[0], t->program);
        if (errno == ENOENT || errno == EACCES)
                fprintf(stderr,
                        "berth-worker: start %s: %s; when its #! line names an interpreter outside "
                        "/usr, name that one's directory in plugin_paths\n",
                        t->program[0], strerror(errno));
        else
                (void)confine_complain("start", t->program[0]);
        return 127;
}

/* A worker with a view: three processes
 *
 *   the leader   what the host started and signals. Stays on the host, passes signals on, and ends
 *                as the worker did.
 *   the first    of the new namespace of processes. Collects whatever loses its parent there. Its
 *                end, which is that of the leader, is the end of all.
 *   the worker
 *
 * The worker cannot be the first one itself: the kernel keeps signals from that one. */

static const int passed_on[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

/* A worker that does not look at its standard input would outlive a daemon that was killed. */
static int die_with_parent(void)
{
        return prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* A reader sees no end of a pipe while this process still holds it. */
static void let_go_of_streams(void)
{
        (void)syscall(SYS_close_range, STDIN_FILENO, ~0U, 0);
}

static _Noreturn void run_first(int leader)
{
        struct pollfd gone = { .fd = leader, .events = POLLIN };
        sigset_t child;

        /* A leader that died before this process was tied to it sends no signal any more. */
        if (die_with_parent() < 0 || poll(&gone, 1, 0) != 0)
                _exit(STATUS_FAILED);
        let_go_of_streams();
        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        while (true) {
                while (waitpid(-1, NULL, WNOHANG) > 0)
                        ;
                (void)sigwaitinfo(&child, NULL);
        }
}

static _Noreturn void end_like(int status)
{
        sigset_t none;

        if (WIFSIGNALED(status)) {
                sigemptyset(&none);
                (void)signal(WTERMSIG(status), SIG_DFL);
                (void)sigprocmask(SIG_SETMASK, &none, NULL);
                (void)raise(WTERMSIG(status));
        }
        _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

static _Noreturn void lead(pid_t worker, const sigset_t *awaited)
{
        int status, signal;

        let_go_of_streams();
        while (waitpid(worker, &status, WNOHANG) == 0) {
                signal = sigwaitinfo(awaited, NULL);
                if (signal > 0 && signal != SIGCHLD)
                        (void)kill(worker, signal);
        }
        end_like(status);
}

static int run_view(const struct trampoline *t)
{
        CLEAN(cleanup_fd) int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
        sigset_t awaited, none;
        pid_t first, worker;

        sigemptyset(&none);
        sigemptyset(&awaited);
        sigaddset(&awaited, SIGCHLD);
        for (size_t i = 0; i < ARRAY_LEN(passed_on); i++)
                sigaddset(&awaited, passed_on[i]);
        (void)sigprocmask(SIG_BLOCK, &awaited, NULL);
        if (self < 0) {
                (void)confine_complain("pidfd_open", NULL);
                return STATUS_FAILED;
        }
        if (view_leave_host() < 0)
                return STATUS_FAILED;
        /* All three, until the worker is another program: their /proc/PID leads to the host. */
        (void)prctl(PR_SET_DUMPABLE, 0);
        first = fork();
        if (first == 0)
                run_first(self);
        worker = first < 0 ? -1 : fork();
        if (worker == 0) {
                (void)sigprocmask(SIG_SETMASK, &none, NULL);
                _exit(view_enter(t) < 0 ? STATUS_FAILED : t->check ? 0 : become_worker(t));
        }
        if (worker < 0) {
                (void)confine_complain("fork", NULL);
                return STATUS_FAILED;
        }
        lead(worker, &awaited);
}

int confine_main(int argc, char **argv)
{
        static struct trampoline t;

        (void)syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
        if (!read_options(&t, argc, argv)) {
                fprintf(stderr, "berth-worker: not meant to be started by hand\n");
                return STATUS_FAILED;
        }
        if (die_with_parent() < 0 || (t.parent && getppid() != t.parent))
                return STATUS_FAILED;
        if (t.view)
                return run_view(&t);
        _exit(become_worker(&t)); /* exit handlers are not for a process without rights */
}
