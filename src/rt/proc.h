/* Child processes, by posix_spawn and a pidfd. The daemon never forks: a copy of a process with
 * threads may hold locks that are never released.
 *
 * The child's environment is exactly `env`, its descriptors exactly those given (everything else
 * is close-on-exec), its signal mask empty and its dispositions default.
 *
 * proc_wait() is for operations, proc_watch() for the loop; a process is reaped by one of them. */
#pragma once

#include <sys/types.h>
#include <uv.h>

#include "rt/op.h"

struct proc_spec {
        const char *path;        /* looked up in PATH of `env`'s owner only when it has no slash */
        const char *const *argv; /* NULL-terminated */
        const char *const *env;  /* NULL-terminated, exact */
        const char *cwd;         /* NULL: ours */
        int cwd_fd;              /* the same as a descriptor, instead; 0: none */
        int fd_in, fd_out, fd_err; /* -1: /dev/null */
        int fd_three;              /* the child's descriptor 3; 0: it has none */
        bool new_session;
};

struct proc {
        pid_t pid;
        int pidfd;
};

struct proc_status {
        int exit_code; /* -1 when a signal ended it */
        int signal;    /* 0 when it exited */
};

#define PROC_INIT                                                                                  \
        (struct proc)                                                                              \
        {                                                                                          \
                .pid = -1, .pidfd = -1                                                             \
        }

int proc_spawn(const struct proc_spec *spec, struct proc *ret, struct err *err);
/* Send a signal; a process that is gone already is fine. */
int proc_kill(const struct proc *p, int signal, struct err *err);
/* Wait for the end and reap; on ERR_TIMEOUT or ERR_CANCELLED the process is still there. */
int proc_wait(const struct op *op, struct proc *p, struct proc_status *ret, struct err *err);
/* Close the pidfd. Does not kill. */
void proc_done(struct proc *p);

struct proc_watch {
        uv_poll_t poll;
        struct proc proc;
        void (*on_exit)(struct proc_watch *w, const struct proc_status *status);
};

/* Take over p and call on_exit on the loop thread when it ended and was reaped; the watch's handle
 * is closed by then. */
int proc_watch_start(struct proc_watch *w, uv_loop_t *loop, struct proc *take_proc,
                     void (*on_exit)(struct proc_watch *, const struct proc_status *),
                     struct err *err);
