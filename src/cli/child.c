/* Starts a program, reads one of its streams to the end and reaps it. */
#define _GNU_SOURCE
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

int child_capture(const char *program, const char *const *argv, int stream, struct buf *out,
                  int *ret_status)
{
        int fds[2], status = -1;
        pid_t pid;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return errno;
        pid = fork();
        if (pid == 0) {
                int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);

                if (dup2(nothing, STDIN_FILENO) >= 0 && dup2(fds[1], stream) >= 0)
                        (void)execvp(program, (char *const *)argv);
                _exit(127);
        }
        close(fds[1]);
        if (pid > 0)
                (void)fd_read_to_end(fds[0], out);
        close(fds[0]);
        if (pid > 0)
                (void)waitpid(pid, &status, 0);
        *ret_status = status;
        return pid > 0 ? 0 : EAGAIN;
}
