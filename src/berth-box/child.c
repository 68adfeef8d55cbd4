/* Making the process of an execution.
 *
 * The child is forked straight into its cgroup (clone3), so there is no moment at which it could
 * fork outside of it; where that is not possible it moves itself before it does anything else.
 * Between fork and exec only plain system calls are made. A failure there is written to the status
 * pipe, which exec closes: end of file means that the program runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <termios.h>

#include "base/clock.h"
#include "base/fd.h"
#include "berth-box/sandbox.h"

/* The child's ends; all are closed in the parent once it is forked. */
struct ends {
        int in, out, err, status, cgroup;
};

static void ends_done(struct ends *e)
{
        cleanup_fd(&e->in);
        cleanup_fd(&e->out);
        cleanup_fd(&e->err);
        cleanup_fd(&e->status);
        cleanup_fd(&e->cgroup);
}

pid_t child_fork(int cgroup_fd, bool *ret_joined)
{
        struct clone_args args = {
                .flags = CLONE_INTO_CGROUP,
                .exit_signal = SIGCHLD,
                .cgroup = (unsigned)cgroup_fd,
        };
        pid_t pid = -1;

        *ret_joined = cgroup_fd >= 0;
        if (cgroup_fd >= 0)
                pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
        if (pid < 0) {
                *ret_joined = false;
                pid = fork();
        }
        return pid;
}

/* A pipe whose end for us does not block. */
static int make_pipe(bool write_end_is_ours, int *ret_ours, int *ret_theirs)
{
        int p[2];

        if (pipe2(p, O_CLOEXEC) < 0)
                return -1;
        *ret_ours = p[write_end_is_ours ? 1 : 0];
        *ret_theirs = p[write_end_is_ours ? 0 : 1];
        if (fcntl(*ret_ours, F_SETFL, O_NONBLOCK) < 0)
                return -1;
        return 0;
}

static int make_pipes(struct exec *e, struct ends *ends)
{
        for (int i = 0; i < 2; i++)
                if (make_pipe(false, &e->out[i].pipe, i ? &ends->err : &ends->out) < 0)
                        return -1;
        if (e->flags & BOX_START_STDIN)
                return make_pipe(true, &e->stdin_fd, &ends->in);
        ends->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return ends->in < 0 ? -1 : 0;
}

/* The box keeps the command's side open as well: a command that closes it for a while and comes
 * back through /dev/tty finds it working, and no output is cut off by a hang-up. */
static int make_terminal(const struct box *b, struct exec *e, const struct start *s,
                         struct ends *ends)
{
        struct winsize size = { .ws_col = s->columns, .ws_row = s->rows };
        int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);

        if (master < 0)
                return -1;
        e->out[0].pipe = master;
        if (fcntl(master, F_SETFD, FD_CLOEXEC) < 0 || fcntl(master, F_SETFL, O_NONBLOCK) < 0 ||
            unlockpt(master) < 0)
                return -1;
        e->keep_tty = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (e->keep_tty < 0)
                return -1;
        if (b->sandbox &&
            fchown(e->keep_tty,
                   b->sandbox->spec.root_inside ? 0 : sandbox_user_id(&b->sandbox->spec),
                   (gid_t)-1) < 0)
                return -1;
        (void)ioctl(master, TIOCSWINSZ, &size);
        e->stdin_fd = fcntl(master, F_DUPFD_CLOEXEC, 3);
        ends->in = fcntl(e->keep_tty, F_DUPFD_CLOEXEC, 3);
        ends->out = fcntl(e->keep_tty, F_DUPFD_CLOEXEC, 3);
        ends->err = fcntl(e->keep_tty, F_DUPFD_CLOEXEC, 3);
        return e->stdin_fd < 0 || ends->in < 0 || ends->out < 0 || ends->err < 0 ? -1 : 0;
}

/* In the child from here on. */

static NORETURN void child_fails(int status_fd, int code)
{
        int word[2] = { code, errno };

        (void)!write(status_fd, word, sizeof(word));
        _exit(127);
}

static int exec_error_code(int errno_value)
{
        switch (errno_value) {
        case ENOENT:
        case ENOTDIR:
                return BOX_ERR_NOT_FOUND;
        case EAGAIN:
        case ENOMEM:
        case EMFILE:
        case ENFILE:
                return BOX_ERR_RESOURCES;
        default:
                return BOX_ERR_REFUSED;
        }
}

static const char *path_of(char **envp)
{
        for (; *envp; envp++)
                if (str_starts(*envp, "PATH="))
                        return *envp + 5;
        return "/usr/local/bin:/usr/bin:/bin";
}

/* As execvp() does it, but in the given environment, and a file without format is not handed to a
 * shell. Returns only on failure, with the most telling errno. */
static void exec_in_path(const struct start *s)
{
        const char *at = path_of(s->envp);
        size_t name_len = strlen(s->command);
        bool refused = false;
        char full[4096];

        for (;;) {
                const char *end = strchrnul(at, ':');
                size_t len = (size_t)(end - at);

                if (len + name_len + 2 <= sizeof(full)) {
                        memcpy(full, at, len);
                        full[len] = '/';
                        memcpy(full + len + (len > 0), s->command, name_len + 1);
                        execve(full, s->argv, s->envp);
                        if (errno == EACCES)
                                refused = true;
                        else if (errno != ENOENT && errno != ENOTDIR)
                                return;
                }
                if (!*end)
                        break;
                at = end + 1;
        }
        errno = refused ? EACCES : ENOENT;
}

/* Signals that are handled get their default action by the exec; ignored ones would stay ignored.
 * By the system call itself: the library keeps two signals to itself, and the process that started
 * us may have ignored those too. All zero is the default action, whatever else the kernel's
 * structure holds. */
static void reset_signals(const struct box *b)
{
        static const unsigned char standard[64];
        sigset_t none;

        for (int i = 1; i <= SIGRTMAX; i++) {
                if (b->ignored & UINT64_C(1) << (i - 1))
                        (void)syscall(SYS_rt_sigaction, i, standard, NULL, 8);
        }
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
}

static int enter_cgroup(int cgroup_fd)
{
        CLEAN(cleanup_fd) int fd = openat(cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);

        return fd >= 0 && write(fd, "0", 1) == 1 ? 0 : -1;
}

static void die_with_box(const struct box *b)
{
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (getppid() != b->pid) /* it died before it could have been told */
                _exit(127);
}

static int take_rights_away(const struct box *b)
{
        setrlimit(RLIMIT_NOFILE, &b->nofile);
        umask(b->umask);
        if (!b->sandbox)
                return 0;
        limits_command(b);
        return privs_for_command(b->sandbox);
}

static NORETURN void run_child(const struct box *b, const struct start *s, const struct ends *ends,
                               bool joined)
{
        if ((ends->cgroup >= 0 && !joined && enter_cgroup(ends->cgroup) < 0) || limits_enter(b) < 0)
                child_fails(ends->status, BOX_ERR_RESOURCES);
        if (!b->sandbox) /* PID 1 takes all processes with it */
                die_with_box(b);
        setsid();
        reset_signals(b);
        if (dup2(ends->in, 0) < 0 || dup2(ends->out, 1) < 0 || dup2(ends->err, 2) < 0)
                child_fails(ends->status, BOX_ERR_RESOURCES);
        if (s->flags & BOX_START_TERMINAL && ioctl(0, TIOCSCTTY, 0) < 0)
                child_fails(ends->status, BOX_ERR_REFUSED);
        if (take_rights_away(b) < 0)
                child_fails(ends->status, BOX_ERR_REFUSED);
        if (chdir(s->cwd[0] ? s->cwd : "/") < 0)
                child_fails(ends->status, BOX_ERR_CWD);
        if (s->flags & BOX_START_ACP)
                (void)syscall(SYS_execveat, b->program_fd, "", s->argv, s->envp, AT_EMPTY_PATH);
        else if (strchr(s->command, '/'))
                execve(s->command, s->argv, s->envp);
        else if (s->command[0])
                exec_in_path(s);
        else
                errno = ENOENT;
        child_fails(ends->status, exec_error_code(errno));
}

/* In the box. */

static int fork_child(struct box *b, struct exec *e, const struct start *s, struct ends *ends)
{
        bool joined;

        if (make_pipe(false, &e->status_pipe, &ends->status) < 0)
                return -1;
        pid_t pid = child_fork(ends->cgroup, &joined);
        if (pid < 0)
                return -1;
        if (pid == 0)
                run_child(b, s, ends, joined);
        e->pid = pid;
        e->alive = true;
        e->started_ms = (uint64_t)(clock_wall_us() / US_PER_MS);
        if (s->time_limit_ms)
                e->limit_at = b->now + (int64_t)s->time_limit_ms;
        return 0;
}

void child_start(struct box *b, struct exec *e, const struct start *s)
{
        CLEAN(ends_done) struct ends ends = { -1, -1, -1, -1, -1 };

        if (spool_create(b, e, s->flags & BOX_START_SHARED ? s->spool : NULL) < 0) {
                exec_fail(b, e, BOX_ERR_SPOOL, "cannot create the spool", errno);
                return;
        }
        e->kill_method = BOX_KILL_SUBREAPER;
        if (b->cgroup_fd >= 0) {
                ends.cgroup = cgroup_create(b, e);
                if (ends.cgroup >= 0)
                        e->kill_method = BOX_KILL_CGROUP;
        }
        int r = s->flags & BOX_START_TERMINAL ? make_terminal(b, e, s, &ends)
                                              : make_pipes(e, &ends);
        e->stdin_open = e->stdin_fd >= 0;
        if (r < 0 || fork_child(b, e, s, &ends) < 0) {
                exec_fail(b, e, BOX_ERR_RESOURCES, "cannot start a process", errno);
                return;
        }
        if (box_watch(b, e->status_pipe, EPOLLIN, EV_STATUS, box_index(b, e)) < 0)
                exec_fail(b, e, BOX_ERR_RESOURCES, "cannot watch a process", errno);
}

/* A fresh program: nothing of our memory is in it, and it has no right that a command does not. */
pid_t child_serve_files(struct box *b, int fd)
{
        static char *const argv[] = { (char *)"berth-box", (char *)"--files", NULL };
        static char *const envp[] = { NULL };
        int cgroup = b->sandbox && b->sandbox->cgroup_split ? b->cgroup_fd : -1;
        bool joined;
        pid_t pid = b->program_fd >= 0 ? child_fork(cgroup, &joined) : -1;

        if (pid != 0)
                return pid;
        /* A command that gets hold of it has no more memory by that. */
        if ((cgroup >= 0 && !joined && enter_cgroup(cgroup) < 0) || limits_enter(b) < 0)
                _exit(127);
        if (!b->sandbox)
                die_with_box(b);
        setsid();
        reset_signals(b);
        if (dup2(fd, 0) < 0 || take_rights_away(b) < 0 || chdir("/") < 0)
                _exit(127);
        (void)syscall(SYS_execveat, b->program_fd, "", argv, envp, AT_EMPTY_PATH);
        _exit(127);
}

void child_resize(struct exec *e, uint16_t columns, uint16_t rows)
{
        struct winsize size = { .ws_col = columns, .ws_row = rows };

        if (e->flags & BOX_START_TERMINAL && e->out[0].pipe >= 0)
                (void)ioctl(e->out[0].pipe, TIOCSWINSZ, &size);
}
