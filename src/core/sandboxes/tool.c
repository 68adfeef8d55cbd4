/* Runs a program of the system, and turns its failure into an error. */
#define _GNU_SOURCE
#include "core/sandboxes/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>

#include "base/fd.h"
#include "rt/proc.h"

#define SAID_MAX   400
#define OUTPUT_MAX 65536

/* Cut the tool's path arguments, and paths beneath them, down to their last part: the error must
 * not reveal where the daemon keeps its files. */
static void cut_paths(char *text, const char *const *argv)
{
        for (; *argv; argv++) {
                const char *slash = strrchr(*argv, '/');

                if (**argv != '/')
                        continue;
                for (char *at = text; (at = strstr(at, *argv));)
                        memmove(at, at + (slash + 1 - *argv), strlen(at + (slash + 1 - *argv)) + 1);
        }
}

/* The first line of the tool's output, or how it ended. */
static int explain_failure(int said, const char *const *argv, const struct proc_status *status,
                           const char *what, struct err *err)
{
        char text[SAID_MAX + 1] = "";
        ssize_t n = pread(said, text, SAID_MAX, 0);

        text[n > 0 ? n : 0] = '\0';
        text[strcspn(text, "\n")] = '\0';
        cut_paths(text, argv);
        if (*text)
                return err_set(err, ERR_PROVIDER, "%s: %s", what, text);
        return err_set(err, ERR_PROVIDER, "%s: status %d, signal %d", what, status->exit_code,
                       status->signal);
}

static int wait_for(struct op *op, struct proc *proc, struct proc_status *ret, struct err *err)
{
        int r = proc_wait(op, proc, ret, err);

        if (r < 0) {
                struct op shield = op_shield(op, 5000);

                (void)proc_kill(proc, SIGKILL, NULL);
                (void)proc_wait(&shield, proc, ret, NULL);
        }
        return r;
}

static void read_all(int fd, struct buf *out)
{
        char *at = buf_reserve(out, OUTPUT_MAX);
        ssize_t n = at ? pread(fd, at, OUTPUT_MAX, 0) : -1;

        if (n > 0)
                buf_grew(out, (size_t)n);
}

int run_tool(struct op *op, const char *path, const char *const *argv, const char *what,
             struct buf *ret_out, struct err *err)
{
        const char *env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", NULL };
        CLEAN(cleanup_fd) int said = memfd_create("said", MFD_CLOEXEC);
        CLEAN(cleanup_fd) int out = ret_out ? memfd_create("out", MFD_CLOEXEC) : -1;
        struct proc proc = PROC_INIT;
        struct proc_status status;

        if (said < 0)
                return err_sys(err, ERR_BUSY, errno, "%s", what);
        int r = proc_spawn(&(struct proc_spec){ .path = path,
                                                .argv = argv,
                                                .env = env,
                                                .cwd = "/",
                                                .fd_in = -1,
                                                .fd_out = out,
                                                .fd_err = said },
                           &proc, err);
        if (r < 0)
                return err_wrap(err, r, "%s", what);
        r = wait_for(op, &proc, &status, err);
        proc_done(&proc);
        if (r < 0)
                return err_wrap(err, r, "%s", what);
        if (ret_out)
                read_all(out, ret_out);
        return status.exit_code == 0 ? 0 : explain_failure(said, argv, &status, what, err);
}
