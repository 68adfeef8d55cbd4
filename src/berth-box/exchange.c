/* berth-box where only single commands can be run: a stream to a box, carried by calls
 * (docs/box-protocol.md, section 12), and questions about boxes from the command line.
 *
 * A call is handed to the resident end, which keeps the connection to the box between calls. It is
 * started where there is none. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "berth-box/mains.h"
#include "box/launch.h"
#include "codec/exchange.h"

/* The resident end.
 *
 * One connection to the box at a time: that of the latest session. Both directions count their
 * bytes from 0; bytes to the host are kept until a call says that they have arrived. */

#define EXCHANGE_SOCKET "exchange.sock"

#define CALLS_MAX     16
#define IN_MAX        ((size_t)512 << 10)
#define OUT_MAX       ((size_t)256 << 10)
#define WAIT_MAX_MS   5000
#define LOOK_MS       2000   /* whether our directory is still there */
#define LOOK_ENDED_MS 100    /* the same, without a box */
#define IDLE_MS       900000 /* without a call */

struct call {
        int fd;        /* -1: free */
        struct buf in; /* until it is whole */
        bool waits;
        int64_t until_ms;
};

struct resident {
        const char *dir;
        int listen_fd, box_fd;
        uint64_t session;
        bool ended, no_box;
        struct buf in; /* for the box */
        uint64_t taken;
        struct buf out; /* for the host, from out_offset on */
        uint64_t out_offset;
        int64_t last_call_ms;
        struct call calls[CALLS_MAX];
};

static void answer_call(struct resident *r, struct call *c, uint8_t status)
{
        CLEAN(buf_done) struct buf bytes = BUF_INIT;
        size_t n = status == EXCHANGE_STALE ? 0 : MIN(r->out.len, EXCHANGE_OUT_MAX);

        /* It has ended for the host when it has all of it. */
        if (status == EXCHANGE_ENDED && n < r->out.len)
                status = EXCHANGE_OPEN;
        exchange_answer_write(&bytes, &(struct exchange_answer){ .status = status,
                                                                 .taken = r->taken,
                                                                 .offset = r->out_offset,
                                                                 .data = { buf_str(&r->out), n } });
        (void)fcntl(c->fd, F_SETFL, 0); /* the caller reads at once */
        (void)fd_write_all(c->fd, bytes.data, bytes.len, NULL);
        close(c->fd);
        buf_wipe(&c->in);
        c->fd = -1;
        c->waits = false;
}

static uint8_t status_of(const struct resident *r)
{
        return r->no_box ? EXCHANGE_NO_BOX : r->ended ? EXCHANGE_ENDED : EXCHANGE_OPEN;
}

static void begin_session(struct resident *r, uint64_t session)
{
        cleanup_fd(&r->box_fd);
        r->box_fd = -1;
        buf_wipe(&r->in);
        buf_wipe(&r->out);
        r->in.max = IN_MAX;
        r->out.max = OUT_MAX + 65536;
        r->taken = r->out_offset = 0;
        r->session = session;
        r->ended = false;
        r->no_box = box_connect(r->dir, &r->box_fd, NULL) < 0;
        /* Calls of the session before can get no other answer. */
        for (int i = 0; i < CALLS_MAX; i++)
                if (r->calls[i].waits)
                        answer_call(r, &r->calls[i], EXCHANGE_STALE);
}

static void write_box(struct resident *r)
{
        /* Of a box that takes nothing any more, the last bytes are still to be read. */
        if (r->box_fd >= 0 && !fd_send_some(r->box_fd, &r->in))
                r->in.len = 0;
        if (r->in.len == 0)
                buf_wipe(&r->in);
}

static void read_box(struct resident *r)
{
        while (r->box_fd >= 0 && r->out.len < OUT_MAX) {
                char *at = buf_reserve(&r->out, 65536);
                ssize_t n = at ? recv(r->box_fd, at, 65536, MSG_DONTWAIT) : -1;

                if (n > 0)
                        buf_grew(&r->out, (size_t)n);
                else if (n < 0 && errno == EAGAIN)
                        return;
                else if (n == 0 || errno != EINTR) {
                        close(r->box_fd);
                        r->box_fd = -1;
                        r->ended = true;
                        buf_wipe(&r->in);
                }
        }
}

/* Bytes that are known already are dropped; with a gap all of them, for the answer says where to
 * go on. */
static void take_bytes(struct resident *r, const struct exchange_call *q)
{
        if (q->offset > r->taken || r->taken - q->offset >= q->data.len || r->box_fd < 0)
                return;
        uint64_t known = r->taken - q->offset;
        size_t n = MIN(q->data.len - (size_t)known, IN_MAX - r->in.len);
        buf_append(&r->in, q->data.p + known, n);
        r->taken += n;
}

static void handle_call(struct resident *r, struct call *c)
{
        struct exchange_call q;

        if (exchange_call_read(buf_str(&c->in), c->in.len, &q, NULL) < 0 ||
            q.session < r->session) {
                answer_call(r, c, EXCHANGE_STALE);
                return;
        }
        r->last_call_ms = clock_mono_ms();
        if (q.session > r->session)
                begin_session(r, q.session);
        for (int i = 0; i < CALLS_MAX; i++) /* no call is held while the host has more to say */
                if (r->calls[i].waits)
                        answer_call(r, &r->calls[i], status_of(r));
        take_bytes(r, &q);
        if (q.taken > r->out_offset) {
                size_t n = (size_t)MIN(q.taken - r->out_offset, (uint64_t)r->out.len);

                buf_consume(&r->out, n);
                r->out_offset += n;
        }
        write_box(r);
        read_box(r);
        c->waits = true;
        c->until_ms = r->last_call_ms + MIN(q.wait_ms, WAIT_MAX_MS);
        buf_wipe(&c->in);
}

static void read_call(struct resident *r, struct call *c)
{
        ssize_t n = fd_read_some(c->fd, &c->in, 65536);

        if (n == 0) {
                handle_call(r, c);
        } else if (n < 0 && errno != EAGAIN) {
                close(c->fd);
                c->fd = -1;
        }
}

static void accept_call(struct resident *r)
{
        /* cppcheck-suppress nullPointer ; accept4() takes none when none is wanted */
        int fd = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        for (int i = 0; fd >= 0 && i < CALLS_MAX; i++) {
                if (r->calls[i].fd >= 0)
                        continue;
                r->calls[i] = (struct call){ .fd = fd };
                r->calls[i].in.max = EXCHANGE_MAX + 65536;
                return;
        }
        if (fd >= 0)
                close(fd);
}

/* Until the directory is gone, or no call has come for long. */
static bool is_wanted(const struct resident *r)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/" EXCHANGE_SOCKET, r->dir);

        return access(path, F_OK) == 0 && clock_mono_ms() - r->last_call_ms < IDLE_MS;
}

static int next_wait(const struct resident *r)
{
        int64_t now = clock_mono_ms(), wait = r->ended ? LOOK_ENDED_MS : LOOK_MS;

        for (int i = 0; i < CALLS_MAX; i++)
                if (r->calls[i].waits)
                        wait = MIN(wait, MAX(r->calls[i].until_ms - now, INT64_C(0)));
        return (int)wait;
}

static void resident_turn(struct resident *r)
{
        struct pollfd fds[CALLS_MAX + 2] = {
                { .fd = r->listen_fd, .events = POLLIN },
                { .fd = r->box_fd },
        };

        if (r->out.len < OUT_MAX)
                fds[1].events |= POLLIN;
        if (r->in.len > 0)
                fds[1].events |= POLLOUT;
        if (!fds[1].events) /* its end would be told again and again */
                fds[1].fd = -1;
        for (int i = 0; i < CALLS_MAX; i++)
                fds[i + 2] = (struct pollfd){ .fd = r->calls[i].waits ? -1 : r->calls[i].fd,
                                              .events = POLLIN };
        if (poll(fds, CALLS_MAX + 2, next_wait(r)) < 0)
                return;
        if (fds[1].revents) {
                write_box(r);
                read_box(r);
        }
        for (int i = 0; i < CALLS_MAX; i++)
                if (fds[i + 2].revents && r->calls[i].fd >= 0)
                        read_call(r, &r->calls[i]);
        if (fds[0].revents)
                accept_call(r);

        /* Answer the calls that there is something for, and those that have waited enough. */
        int64_t now = clock_mono_ms();

        for (int i = 0; i < CALLS_MAX; i++) {
                struct call *c = &r->calls[i];

                if (c->waits && (r->out.len > 0 || r->ended || r->no_box || now >= c->until_ms))
                        answer_call(r, c, status_of(r));
        }
}

static int listen_in(struct resident *r)
{
        CLEAN(cleanup_fd) int at = open(r->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        /* Kept for our life: there is one of us. */
        int lock = at < 0 ? -1
                          : openat(at, "exchange.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                                   0600);

        if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0)
                return -1;
        r->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/" EXCHANGE_SOCKET,
                 at);
        (void)unlinkat(at, EXCHANGE_SOCKET, 0);
        (void)umask(077);
        if (bind(r->listen_fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -1;
        return listen(r->listen_fd, CALLS_MAX);
}

/* Becomes the resident end of DIR; one byte to `ready_fd`, which is closed, when it listens. */
static int resident_main(const char *dir, int ready_fd)
{
        static struct resident r;

        signal(SIGPIPE, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        r.dir = dir;
        r.box_fd = -1;
        r.last_call_ms = clock_mono_ms();
        r.no_box = true;
        for (int i = 0; i < CALLS_MAX; i++)
                r.calls[i].fd = -1;
        if (listen_in(&r) < 0)
                return 1;
        (void)!write(ready_fd, "", 1);
        close(ready_fd);
        while (is_wanted(&r))
                resident_turn(&r);
        return 0;
}

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

static int read_request(struct buf *call)
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

        if (read_request(&call) < 0 ||
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
