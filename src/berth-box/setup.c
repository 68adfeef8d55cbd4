/* What every box sets up, beside the work or as PID 1 of a sandbox: directory, lock, socket,
 * signals, tables. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
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
#include <sys/un.h>

#include "base/clock.h"
#include "base/fd.h"
#include "berth-box/box.h"
#include "box/launch.h"

/* The directory, private to us, and the descriptors that everything else is opened from. */
int setup_directory(struct box *b, struct err *err)
{
        struct stat st;
        char path[PATH_MAX];

        if (mkdir(b->dir, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "create %s", b->dir);
        b->dir_fd = open(b->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (b->dir_fd < 0 || fstat(b->dir_fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "open %s", b->dir);
        if (st.st_uid != geteuid())
                return err_set(err, ERR_FORBIDDEN, "%s belongs to another user", b->dir);
        if ((st.st_mode & 0777) != 0700 && fchmod(b->dir_fd, 0700) < 0)
                return err_sys(err, ERR_IO, errno, "make %s private", b->dir);
        if (!realpath(b->dir, path))
                return err_sys(err, ERR_IO, errno, "open %s", b->dir);
        memcpy(b->dir, path, strlen(path) + 1);
        return 0;
}

/* The process that started us may have the lock already, as BOX_LOCK_FD: then it has to be the one
 * of our directory, and held. */
int setup_lock(struct box *b, struct err *err)
{
        struct stat held, there;

        if (!b->is_locked)
                return box_lock_take_at(b->dir_fd, b->dir, &b->lock_fd, err);
        if (fstat(BOX_LOCK_FD, &held) < 0 ||
            fstatat(b->dir_fd, "box.lock", &there, AT_SYMLINK_NOFOLLOW) < 0 ||
            held.st_ino != there.st_ino || held.st_dev != there.st_dev ||
            flock(BOX_LOCK_FD, LOCK_EX | LOCK_NB) < 0 ||
            fcntl(BOX_LOCK_FD, F_SETFD, FD_CLOEXEC) < 0)
                return err_set(err, ERR_LOCKED, "descriptor %d is not the lock of %s", BOX_LOCK_FD,
                               b->dir);
        b->lock_fd = BOX_LOCK_FD;
        return 0;
}

int setup_spool(struct box *b, struct err *err)
{
        if (mkdirat(b->dir_fd, "spool", 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "create the spool");
        b->spool_fd = openat(b->dir_fd, "spool", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (b->spool_fd < 0)
                return err_sys(err, ERR_IO, errno, "open the spool");
        return 0;
}

/* By a relative name: the whole path may be longer than an address has room for. */
int setup_socket(struct box *b, struct err *err)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "box.sock" };

        b->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (b->listen_fd < 0)
                return err_sys(err, ERR_IO, errno, "socket");
        (void)unlinkat(b->dir_fd, "box.sock", 0);
        if (fchdir(b->dir_fd) < 0 ||
            bind(b->listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
            fchmodat(b->dir_fd, "box.sock", 0600, 0) < 0 || chdir("/") < 0)
                return err_sys(err, ERR_IO, errno, "listen in %s", b->dir);
        return 0;
}

/* A connection's credentials name the process that called listen(); box_bury() asks for them. */
int setup_listen(struct box *b, struct err *err)
{
        if (listen(b->listen_fd, 128) < 0 || box_watch(b, b->listen_fd, EPOLLIN, EV_LISTEN, 0) < 0)
                return err_sys(err, ERR_IO, errno, "listen");
        return 0;
}

/* "pid time start": the start in clock ticks since boot makes the process id worth something. */
int setup_pid_file(struct box *b, pid_t pid, struct err *err)
{
        char when[ISO_TIME_LEN + 1], text[128], path[32], stat[1024] = "";
        unsigned long long start = 0;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        {
                CLEAN(cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);

                if (fd >= 0)
                        (void)!read(fd, stat, sizeof(stat) - 1);
                else if (errno != ENOENT) /* without its start it could be taken for another */
                        return err_sys(err, ERR_IO, errno, "read %s", path);
        }
        const char *at = strrchr(stat, ')');
        if (at)
                (void)sscanf(at + 1,
                             " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                             "%*d %*d %*d %llu",
                             &start);
        clock_iso(clock_wall_us(), when);
        int n = snprintf(text, sizeof(text), "%d %s %llu\n", (int)pid, when, start);
        (void)unlinkat(b->dir_fd, "pid", 0);
        CLEAN(cleanup_fd)
        int fd = openat(b->dir_fd, "pid", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "create the pid file");
        return fd_write_all(fd, text, (size_t)n, err);
}

/* The signals that this process ignores, bit 0 is signal 1; all of them where that cannot be read.
 */
static uint64_t signals_ignored(void)
{
        CLEAN(buf_done) struct buf status = BUF_INIT;
        CLEAN(cleanup_fd) int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);

        if (fd < 0 || fd_read_to_end(fd, &status) < 0)
                return UINT64_MAX;
        const char *line = strstr(buf_str(&status), "\nSigIgn:\t");
        return line ? strtoull(line + strlen("\nSigIgn:\t"), NULL, 16) : UINT64_MAX;
}

/* Signals come through a descriptor. What would end us by the way is ignored: a host that goes
 * away (SIGPIPE), a terminal that closes (SIGHUP), a spool file at its size limit (SIGXFSZ). */
int setup_signals(struct box *b, struct err *err)
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
        b->ignored = signals_ignored();
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

int setup_tables(struct box *b, struct err *err)
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

void setup_process(struct box *b)
{
        b->pid = getpid();
        b->umask = umask(077);
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        /* Commands of the same user must not read our memory or attach to us. */
        prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
        getrlimit(RLIMIT_NOFILE, &b->nofile);
        struct rlimit raised = b->nofile;
        raised.rlim_cur = raised.rlim_max;
        setrlimit(RLIMIT_NOFILE, &raised);
}

int setup_null_streams(void)
{
        CLEAN(cleanup_fd) int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
                return -1;
        return 0;
}
