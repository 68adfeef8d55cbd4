/* One call: hands it to the resident end, and starts that where there is none. */
#define _GNU_SOURCE
#include "berth-box/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "berth-box/mains.h"
#include "codec/exchange.h"

#define TRIES 5

/* By way of a descriptor: the directory's path may be too long for a socket's address. */
static int reach_resident(const char *dir)
{
        CLEAN(cleanup_fd) int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        CLEAN(cleanup_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" EXCHANGE_SOCKET,
                 at);
        if (at < 0 || fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -1;
        return take_fd(&fd);
}

static void become_resident(const char *dir, int ready_fd)
{
        int null = open("/dev/null", O_RDWR);

        setsid();
        if (fork() != 0)
                _exit(0);
        for (int fd = 0; fd < 3; fd++)
                if (null < 0 || dup2(null, fd) < 0)
                        _exit(1);
        if (dup2(ready_fd, 3) < 0)
                _exit(1);
        (void)syscall(SYS_close_range, 4U, ~0U, 0U);
        _exit(resident_main(dir, 3));
}

static void start_resident(const char *dir)
{
        int fds[2];
        char byte;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return;
        pid_t pid = fork();
        if (pid == 0)
                become_resident(dir, fds[1]);
        close(fds[1]);
        if (pid > 0) {
                (void)waitpid(pid, NULL, 0);
                (void)!read(fds[0], &byte, 1); /* it listens, or another one does */
        }
        close(fds[0]);
}

/* Hand it over and collect the answer. */
static int ask_resident(int fd, const struct buf *call, struct buf *answer)
{
        if (fd_write_all(fd, call->data, call->len, NULL) < 0 || shutdown(fd, SHUT_WR) < 0 ||
            fd_read_to_end(fd, answer) < 0)
                return -1;
        return answer->len == 0 ? -1 : 0;
}

static int read_call(struct buf *call)
{
        CLEAN(buf_wipe) struct buf text = { .max = 2 * EXCHANGE_MAX };

        if (fd_read_to_end(0, &text) < 0)
                return -1;
        while (text.len > 0 && strchr("\r\n", text.data[text.len - 1]))
                text.len--;
        return exchange_from_text(buf_str(&text), text.len, call, NULL);
}

int exchange_main(const struct main_args *a)
{
        CLEAN(buf_wipe) struct buf call = BUF_INIT;
        CLEAN(buf_done) struct buf answer = { .max = EXCHANGE_MAX + 65536 };
        CLEAN(buf_done) struct buf printed = BUF_INIT;
        struct exchange_call checked;

        if (read_call(&call) < 0 ||
            exchange_call_read(buf_str(&call), call.len, &checked, NULL) < 0)
                return 2;
        for (int i = 0; i < TRIES && answer.len == 0; i++) {
                CLEAN(cleanup_fd) int fd = reach_resident(a->dir);

                if (fd < 0 && access(a->dir, W_OK) == 0)
                        start_resident(a->dir);
                else if (fd < 0 || ask_resident(fd, &call, &answer) == 0)
                        break;
        }
        if (answer.len == 0)
                exchange_answer_write(&answer, &(struct exchange_answer){ .status = EXCHANGE_NO_BOX,
                                                                          .data = { "", 0 } });
        buf_puts(&printed, EXCHANGE_WORD);
        exchange_to_text(&printed, &answer);
        buf_putc(&printed, '\n');
        return fd_write_all(1, printed.data, printed.len, NULL) < 0 ? 1 : 0;
}
