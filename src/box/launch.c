/* Starting a box on this machine, and what its refusal means. */
#define _GNU_SOURCE
#include "box/launch.h"
#include "box/launch_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>

#include "base/fd.h"
#include "codec/frame.h"
#include "rt/proc.h"

#define LAUNCH_TIMEOUT_MS 10000

/* Starting */

/* Read the one line that the box says; up to end of file. */
static int read_word(struct op *op, int fd, struct buf *line, struct err *err)
{
        for (;;) {
                ssize_t n;
                int r = op_wait_fd(op, fd, POLLIN, LAUNCH_TIMEOUT_MS, err);

                if (r < 0)
                        return r;
                if (r == 0)
                        return err_set(err, ERR_TIMEOUT, "the box did not get ready in time");
                n = fd_read_some(fd, line, 256);
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read from the box");
                if (n == 0)
                        return 0;
        }
}

int launch_spawn(struct op *op, const char *program, const char *const *argv, int fd_in,
                 int lock_fd, struct buf *word, struct err *err)
{
        const char *env[] = { NULL };
        CLEAN(cleanup_fd) int out = -1;
        CLEAN(cleanup_fd) int in = -1;
        struct proc proc = PROC_INIT;
        struct proc_status status;
        int fds[2], r;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return err_sys(err, ERR_BUSY, errno, "pipe");
        in = fds[0];
        out = fds[1];
        r = proc_spawn(&(struct proc_spec){ .path = program,
                                            .argv = argv,
                                            .env = env,
                                            .cwd = "/",
                                            .fd_in = fd_in,
                                            .fd_out = out,
                                            .fd_err = -1,
                                            .fd_three = lock_fd,
                                            .new_session = true },
                       &proc, err);
        if (r < 0)
                return r;
        close(take_fd(&out));
        r = read_word(op, in, word, err);
        struct op shield = op_shield(op, LAUNCH_TIMEOUT_MS);

        if (r < 0)
                (void)proc_kill(&proc, SIGKILL, NULL);
        /* The process we started only makes the box and ends; killed, it does so at once. */
        if (r >= 0)
                r = proc_wait(op, &proc, &status, err);
        else
                (void)proc_wait(&shield, &proc, &status, NULL);
        proc_done(&proc);
        return r;
}

int launch_refused(const char *word, int code, const char *what, struct err *err)
{
        const char *text = word + (str_starts(word, "error ") ? strlen("error ") : 0);
        bool not_now = !*word || str_starts(text, BOX_NOT_NOW);

        text += str_starts(text, BOX_NOT_NOW) ? strlen(BOX_NOT_NOW) : 0;
        if (!*text)
                text = "berth-box ended without a word";
        (void)err_set(err, code, "%s%.*s", what, (int)strcspn(text, "\n"), text);
        if (not_now)
                err_mark_transient(err);
        return code;
}

int box_launch(struct op *op, const char *program, const char *dir, const char *id, struct err *err)
{
        const char *argv[] = { "berth-box", "--dir", dir, "--id", id, "--locked", NULL };
        CLEAN(buf_done) struct buf line = { .max = 4096 };
        CLEAN(cleanup_fd) int lock = -1;
        int r = box_lock_take(dir, &lock, err);

        if (r == ERR_LOCKED && box_is_alive(dir) == LIFE_YES) {
                err_clear(err);
                return 0;
        }
        if (r >= 0)
                r = launch_spawn(op, program, argv, -1, lock, &line, err);
        if (r < 0)
                return err_wrap(err, r, "start the supervisor");
        if (str_starts(buf_str(&line), "ready "))
                return 0;
        return launch_refused(buf_str(&line), ERR_PROVIDER, "the supervisor did not start: ", err);
}
