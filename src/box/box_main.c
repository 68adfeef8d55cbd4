/* Command line, directory, lock, socket, and becoming a process of its own.
 *
 * Two forks: the caller waits for the first process, which ends as soon as the box is ready or has
 * failed; the box itself has no parent that would have to reap it, a session of its own, and no
 * descriptor, environment variable or signal setting of whoever started it. Everything that can
 * fail is done by the final process, so its answer on standard output is the whole truth. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "box/box.h"

extern char **environ;

static const char usage[] =
        "usage: berth-box --dir DIR --id UUID [--spool-limit BYTES] [--idle-exit MS] [--kill "
        "METHOD]\n"
        "       berth-box --version\n"
        "\n"
        "Runs commands for a Berth daemon that connects to DIR/box.sock (docs/box-protocol.md).\n"
        "Answers `ready PID KILL-METHOD` or `error TEXT` on standard output, and goes on by "
        "itself.\n"
        "\n"
        "  --spool-limit BYTES  output kept per stream for a host that does not take it (64 MiB)\n"
        "  --idle-exit MS       end after this time without host and executions (600000)\n"
        "  --kill METHOD        auto or subreaper: do not use cgroups even where they work\n";

static bool parse_number(const char *text, int64_t *ret)
{
        char *end;

        errno = 0;
        *ret = strtoll(text, &end, 10);
        return errno == 0 && *text && !*end && *ret > 0;
}

static int parse_args(struct box *b, int argc, char **argv, struct err *err)
{
        static const struct option options[] = {
                { "dir", required_argument, NULL, 'd' },
                { "id", required_argument, NULL, 'i' },
                { "spool-limit", required_argument, NULL, 's' },
                { "idle-exit", required_argument, NULL, 'e' },
                { "kill", required_argument, NULL, 'k' },
                { "version", no_argument, NULL, 'v' },
                { "help", no_argument, NULL, 'h' },
                { NULL, 0, NULL, 0 },
        };
        const char *dir = NULL, *id = NULL;
        int64_t limit = (int64_t)64 << 20;
        int opt;

        b->idle_exit_ms = 600 * 1000;
        while ((opt = getopt_long(argc, argv, "", options, NULL)) >= 0) {
                switch (opt) {
                case 'd':
                        dir = optarg;
                        break;
                case 'i':
                        id = optarg;
                        break;
                case 's':
                        if (!parse_number(optarg, &limit))
                                return err_set(err, ERR_USAGE, "--spool-limit: not a number");
                        break;
                case 'e':
                        if (!parse_number(optarg, &b->idle_exit_ms))
                                return err_set(err, ERR_USAGE, "--idle-exit: not a number");
                        break;
                case 'k':
                        b->force_subreaper = streq(optarg, "subreaper");
                        if (!b->force_subreaper && !streq(optarg, "auto"))
                                return err_set(err, ERR_USAGE, "--kill: auto or subreaper");
                        break;
                case 'v':
                        printf("berth-box %s protocol %d\n", BERTH_VERSION, FRAME_VERSION);
                        exit(0);
                case 'h':
                        fputs(usage, stdout);
                        exit(0);
                default:
                        return err_set(err, ERR_USAGE, "unknown option");
                }
        }
        if (optind != argc || !dir || !id || !frame_uuid_bytes(id, b->id))
                return err_set(err, ERR_USAGE, "--dir DIR and --id UUID are needed");
        frame_uuid_text(b->id, b->name);
        b->spool_limit = (uint64_t)limit;
        if (strlen(dir) >= sizeof(b->dir))
                return err_set(err, ERR_USAGE, "--dir: too long");
        memcpy(b->dir, dir, strlen(dir) + 1);
        return 0;
}

/* The directory, private to us, and the descriptors that everything else is opened from. */
static int open_directory(struct box *b, struct err *err)
{
        struct stat st;
        char path[PATH_MAX];

        if (mkdir(b->dir, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "create %s", b->dir);
        b->dir_fd = open(b->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (b->dir_fd < 0 || fstat(b->dir_fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "open %s", b->dir);
        if (st.st_uid != geteuid())
                return err_set(err, ERR_FORBIDDEN, "%s belongs to somebody else", b->dir);
        if ((st.st_mode & 0777) != 0700 && fchmod(b->dir_fd, 0700) < 0)
                return err_sys(err, ERR_IO, errno, "make %s private", b->dir);
        if (!realpath(b->dir, path))
                return err_sys(err, ERR_IO, errno, "open %s", b->dir);
        memcpy(b->dir, path, strlen(path) + 1);
        return 0;
}

/* A box that stops removes the file while it holds the lock, so a lock on a file that is no longer
 * there is worth nothing. */
#define LOCK_TRIES 60

static int lock_directory(struct box *b, struct err *err)
{
        for (int tries = 0; tries < 100; tries++) {
                struct stat held, there;
                int fd = openat(b->dir_fd, "box.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                                0600);

                if (fd < 0)
                        return err_sys(err, ERR_IO, errno, "open box.lock");
                if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                        close(fd);
                        /* A child of a box that was killed holds it until its exec; that is soon.
                         */
                        if (tries < LOCK_TRIES) {
                                (void)usleep(5000);
                                continue;
                        }
                        return err_set(err, ERR_LOCKED, "another box runs in %s", b->dir);
                }
                if (fstat(fd, &held) == 0 &&
                    fstatat(b->dir_fd, "box.lock", &there, AT_SYMLINK_NOFOLLOW) == 0 &&
                    held.st_ino == there.st_ino && held.st_dev == there.st_dev) {
                        b->lock_fd = fd;
                        return 0;
                }
                close(fd);
        }
        return err_set(err, ERR_LOCKED, "cannot lock %s", b->dir);
}

static int make_spool_directory(struct box *b, struct err *err)
{
        if (mkdirat(b->dir_fd, "spool", 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "create the spool");
        b->spool_fd = openat(b->dir_fd, "spool", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (b->spool_fd < 0)
                return err_sys(err, ERR_IO, errno, "open the spool");
        return 0;
}

/* By a relative name: the whole path may be longer than an address has room for. */
static int listen_in_directory(struct box *b, struct err *err)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "box.sock" };

        b->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (b->listen_fd < 0)
                return err_sys(err, ERR_IO, errno, "socket");
        (void)unlinkat(b->dir_fd, "box.sock", 0);
        if (fchdir(b->dir_fd) < 0 ||
            bind(b->listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
            fchmodat(b->dir_fd, "box.sock", 0600, 0) < 0 || chdir("/") < 0 ||
            listen(b->listen_fd, 128) < 0)
                return err_sys(err, ERR_IO, errno, "listen in %s", b->dir);
        return box_watch(b, b->listen_fd, EPOLLIN, EV_LISTEN, 0) < 0
                       ? err_sys(err, ERR_IO, errno, "epoll")
                       : 0;
}

static int write_pid_file(struct box *b, struct err *err)
{
        char when[ISO_TIME_LEN + 1], text[128];
        int n;

        clock_iso(clock_wall_us(), when);
        n = snprintf(text, sizeof(text), "%d %s\n", (int)b->pid, when);
        (void)unlinkat(b->dir_fd, "pid", 0);
        CLEAN(cleanup_fd)
        int fd = openat(b->dir_fd, "pid", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "create the pid file");
        return fd_write_all(fd, text, (size_t)n, err);
}

/* Signals come through a descriptor. What would end us by the way is ignored: a host that goes
 * away (SIGPIPE), a terminal that closes (SIGHUP), a spool file at its size limit (SIGXFSZ). */
static int take_signals(struct box *b, struct err *err)
{
        sigset_t set;

        signal(SIGPIPE, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        signal(SIGXFSZ, SIG_IGN);
        signal(SIGCHLD, SIG_DFL);
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigprocmask(SIG_SETMASK, &set, NULL);
        b->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        if (b->signal_fd < 0 || box_watch(b, b->signal_fd, EPOLLIN, EV_SIGNAL, 0) < 0)
                return err_sys(err, ERR_IO, errno, "signalfd");
        return 0;
}

static void *reserve(size_t size)
{
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        return p == MAP_FAILED ? NULL : p;
}

static int make_tables(struct box *b, struct err *err)
{
        b->execs = reserve(sizeof(struct exec) * BOX_MAX_EXECS);
        b->conns = reserve(sizeof(struct conn) * BOX_MAX_CONNS);
        b->stdin_store = reserve(BOX_STDIN_SIZE * BOX_MAX_EXECS);
        b->procs = reserve(sizeof(struct proc) * BOX_MAX_PROCS);
        b->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (!b->execs || !b->conns || !b->stdin_store || !b->procs || b->epoll_fd < 0)
                return err_sys(err, ERR_INTERNAL, errno, "memory");
        return 0;
}

static void become_supervisor(struct box *b)
{
        struct rlimit raised;

        b->pid = getpid();
        b->umask = umask(077);
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        /* Commands of the same user must not read our memory or attach to us. */
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        getrlimit(RLIMIT_NOFILE, &b->nofile);
        raised = b->nofile;
        raised.rlim_cur = raised.rlim_max;
        setrlimit(RLIMIT_NOFILE, &raised);
}

static int set_up(struct box *b, struct err *err)
{
        int r;

        become_supervisor(b);
        b->cgroup_fd = b->spool_fd = b->listen_fd = -1;
        r = make_tables(b, err);
        if (r < 0)
                return r;
        r = open_directory(b, err);
        if (r < 0)
                return r;
        r = lock_directory(b, err);
        if (r < 0)
                return r;
        r = make_spool_directory(b, err);
        if (r < 0)
                return r;
        r = take_signals(b, err);
        if (r < 0)
                return r;
        tree_init(b);
        spool_adopt(b);
        r = write_pid_file(b, err);
        if (r < 0)
                return r;
        return listen_in_directory(b, err);
}

/* An empty environment, also for who reads it in our memory. */
static void forget_environment(void)
{
        for (char **e = environ; e && *e; e++)
                explicit_bzero(*e, strlen(*e));
        clearenv();
}

static void close_inherited(void)
{
        if (syscall(SYS_close_range, 3U, ~0U, 0U) < 0)
                for (int fd = 3; fd < 65536; fd++)
                        close(fd);
        for (int fd = 0; fd < 3; fd++)
                if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
                        _exit(1);
}

static int null_standard_streams(void)
{
        CLEAN(cleanup_fd) int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
                return -1;
        return 0;
}

static void answer(int fd, const char *text)
{
        (void)!write(fd, text, strlen(text));
        close(fd);
}

/* The final process: set up, answer, work. */
static int run_box(struct box *b, int done_pipe)
{
        CLEAN(err_done) struct err err = { 0 };
        char text[1100];
        int out = fcntl(1, F_DUPFD_CLOEXEC, 3);

        if (out < 0 || null_standard_streams() < 0)
                return 1;
        if (set_up(b, &err) < 0) {
                snprintf(text, sizeof(text), "error %s\n", err.msg);
                answer(out, text);
                return 1;
        }
        snprintf(text, sizeof(text), "ready %d %d\n", (int)b->pid, b->kill_method);
        answer(out, text);
        (void)!write(done_pipe, "", 1);
        close(done_pipe);
        return box_loop(b);
}

static int wait_until_ready(pid_t child, int done_pipe)
{
        char byte;
        ssize_t n;

        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
                ;
        do
                n = read(done_pipe, &byte, 1);
        while (n < 0 && errno == EINTR);
        return n == 1 ? 0 : 1;
}

int main(int argc, char **argv)
{
        static struct box box;
        CLEAN(err_done) struct err err = { 0 };
        int done[2];
        pid_t child;

        if (parse_args(&box, argc, argv, &err) < 0) {
                printf("error %s\n", err.msg);
                fputs(usage, stderr);
                return 2;
        }
        close_inherited();
        forget_environment();
        if (pipe2(done, O_CLOEXEC) < 0 || (child = fork()) < 0) {
                printf("error %s\n", strerror(errno));
                return 1;
        }
        if (child > 0) {
                close(done[1]);
                return wait_until_ready(child, done[0]);
        }
        close(done[0]);
        setsid();
        child = fork();
        if (child != 0)
                _exit(child < 0 ? 1 : 0);
        return run_box(&box, done[1]);
}
