/* Starts, kills and waits for child processes. */
#define _GNU_SOURCE
#include "rt/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int open_pidfd(pid_t pid)
{
        return (int)syscall(SYS_pidfd_open, pid, 0);
}

static int add_stdio(posix_spawn_file_actions_t *actions, int fd, int target)
{
        if (fd < 0)
                return posix_spawn_file_actions_addopen(
                        actions, target, "/dev/null", target == STDIN_FILENO ? O_RDONLY : O_WRONLY,
                        0);
        /* dup2 onto itself would keep close-on-exec; posix_spawn clears it in that case. */
        return posix_spawn_file_actions_adddup2(actions, fd, target);
}

static int set_attributes(posix_spawnattr_t *attr, bool new_session)
{
        sigset_t none, all;
        short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;

        sigemptyset(&none);
        sigfillset(&all);
        if (new_session)
                flags |= POSIX_SPAWN_SETSID;
        posix_spawnattr_setsigmask(attr, &none);
        posix_spawnattr_setsigdefault(attr, &all);
        return posix_spawnattr_setflags(attr, flags);
}

int proc_spawn(const struct proc_spec *spec, struct proc *ret, struct err *err)
{
        posix_spawn_file_actions_t actions;
        posix_spawnattr_t attr;
        pid_t pid;

        posix_spawn_file_actions_init(&actions);
        posix_spawnattr_init(&attr);
        int r = add_stdio(&actions, spec->fd_in, STDIN_FILENO);
        if (r == 0)
                r = add_stdio(&actions, spec->fd_out, STDOUT_FILENO);
        if (r == 0)
                r = add_stdio(&actions, spec->fd_err, STDERR_FILENO);
        if (r == 0 && spec->cwd_fd > 0)
                r = posix_spawn_file_actions_addfchdir_np(&actions, spec->cwd_fd);
        else if (r == 0 && spec->cwd)
                r = posix_spawn_file_actions_addchdir_np(&actions, spec->cwd);
        if (r == 0 && spec->fd_three > 0) /* the last: one of those before may be our 3 */
                r = posix_spawn_file_actions_adddup2(&actions, spec->fd_three, 3);
        if (r == 0)
                r = set_attributes(&attr, spec->new_session);
        if (r == 0)
                r = posix_spawnp(&pid, spec->path, &actions, &attr, (char *const *)spec->argv,
                                 (char *const *)spec->env);
        posix_spawn_file_actions_destroy(&actions);
        posix_spawnattr_destroy(&attr);
        if (r != 0)
                return err_sys(err, r == ENOENT ? ERR_NOT_FOUND : ERR_INTERNAL, r, "start %s",
                               spec->path);
        /* No race: the child stays a zombie of ours until it is waited for. */
        int fd = open_pidfd(pid);
        if (fd < 0) {
                r = errno;
                kill(pid, SIGKILL);
                waitpid(pid, NULL, 0);
                return err_sys(err, ERR_INTERNAL, r, "pidfd of %s", spec->path);
        }
        *ret = (struct proc){ .pid = pid, .pidfd = fd };
        return 0;
}

int proc_kill(const struct proc *p, int signal, struct err *err)
{
        if (syscall(SYS_pidfd_send_signal, p->pidfd, signal, NULL, 0) < 0 && errno != ESRCH)
                return err_sys(err, ERR_INTERNAL, errno, "signal process %d", (int)p->pid);
        return 0;
}

static int reap_process(struct proc *p, struct proc_status *ret)
{
        siginfo_t info = { 0 };

        if (waitid(P_PIDFD, (id_t)p->pidfd, &info, WEXITED | WNOHANG) < 0)
                return -errno;
        if (info.si_pid == 0)
                return 0;
        *ret = (struct proc_status){ .exit_code = info.si_status };
        if (info.si_code != CLD_EXITED)
                *ret = (struct proc_status){ .exit_code = -1, .signal = info.si_status };
        return 1;
}

int proc_wait(const struct op *op, struct proc *p, struct proc_status *ret, struct err *err)
{
        int r = op_wait_fd(op, p->pidfd, POLLIN, -1, err);

        if (r < 0)
                return r;
        r = reap_process(p, ret);
        if (r <= 0)
                return err_sys(err, ERR_INTERNAL, -r, "wait for process %d", (int)p->pid);
        proc_done(p);
        return 0;
}

void proc_done(struct proc *p)
{
        if (p->pidfd >= 0)
                close(p->pidfd);
        *p = PROC_INIT;
}

static void watch_closed(uv_handle_t *handle)
{
        struct proc_watch *w = container_of((uv_poll_t *)handle, struct proc_watch, poll);
        struct proc_status status = { .exit_code = -1 };

        (void)reap_process(&w->proc, &status);
        proc_done(&w->proc);
        w->on_exit(w, &status);
}

static void watch_ready(uv_poll_t *poll, int status, int events)
{
        uv_poll_stop(poll);
        uv_close((uv_handle_t *)poll, watch_closed);
}

int proc_watch_start(struct proc_watch *w, uv_loop_t *loop, struct proc *take_proc,
                     void (*on_exit)(struct proc_watch *, const struct proc_status *),
                     struct err *err)
{
        w->proc = *take_proc;
        w->on_exit = on_exit;
        *take_proc = PROC_INIT;
        int r = uv_poll_init(loop, &w->poll, w->proc.pidfd);
        if (r == 0)
                r = uv_poll_start(&w->poll, UV_READABLE, watch_ready);
        if (r < 0)
                return err_set(err, ERR_INTERNAL, "watch process: %s", uv_strerror(r));
        return 0;
}
