/* When a private daemon is started, and how its socket is waited for. */
#define _GNU_SOURCE
#include "cli/private.h"

#include <berth/berth.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "cli/output.h"

#define PATIENCE_MS 20000
#define TAKING_MS   60000 /* a daemon that takes over waits for the private one: daemon/datadir.c */
#define PAUSE_MIN   5
#define PAUSE_MAX   200
#define LOG_FILE    "berth.log"
#define LOG_MAX     (1 << 20)

/* Reaching it */

/* The first answer proves that it is there, and the open connection keeps it. */
static bool daemon_answers(struct cli *c)
{
        struct berth_options o = {
                .socket_path = cli_printf(c, "%s/berth.sock", c->data),
                .api_key = c->api_key,
                .run_id = cli_env("BERTH_RUN_ID", "PAPERCLIP_RUN_ID"),
        };
        CLEAN(berth_response_done) struct berth_response response = { 0 };
        struct berth *api;

        if (berth_open(&o, &api, NULL) < 0)
                return false;
        if (berth_request(api, "GET", "/api/health", NULL, &response, NULL) < 0) {
                berth_close(api);
                return false;
        }
        berth_close(c->api);
        c->api = api;
        return true;
}

/* Starting it */

static const char *absolute_path(struct cli *c, const char *path)
{
        CLEAN(cleanup_free) char *cwd = *path == '/' ? NULL : getcwd(NULL, 0);

        return cwd ? cli_printf(c, "%s/%s", cwd, path) : path;
}

static int open_log(struct cli *c, int *ret_fd, struct err *err)
{
        const char *path = cli_printf(c, "%s/" LOG_FILE, c->data);
        struct stat st;

        if (stat(path, &st) == 0 && st.st_size > LOG_MAX)
                (void)rename(path, cli_printf(c, "%s.1", path));
        *ret_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        return *ret_fd < 0 ? err_sys(err, ERR_IO, errno, "open %s", path) : 0;
}

/* In the grandchild: a session of its own, so that no Ctrl-C reaches it, and no parent that waits.
 */
static NORETURN void become_daemon(const char *const *argv, int out, int log)
{
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        if (setsid() < 0 || null < 0 || fork() != 0)
                _exit(0);
        if (dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
            dup2(log, STDERR_FILENO) < 0 || chdir("/") < 0)
                _exit(1);
        (void)execv("/proc/self/exe", (char *const *)argv);
        _exit(1);
}

/* The first line that it says; "" when it says nothing. */
static void read_word(int fd, int64_t patience_ms, struct buf *line)
{
        int64_t until = clock_mono_ms() + patience_ms;

        while (!memchr(buf_str(line), '\n', line->len)) {
                struct pollfd p = { .fd = fd, .events = POLLIN };
                int64_t left = until - clock_mono_ms();
                ssize_t n;

                if (left <= 0)
                        break;
                if (poll(&p, 1, (int)left) <= 0)
                        continue;
                n = read(fd, buf_reserve(line, 1024), 1024);
                if (n <= 0)
                        break;
                buf_grew(line, (size_t)n);
        }
        char *end = line->len > 0 ? memchr(line->data, '\n', line->len) : NULL;

        if (end)
                *end = '\0';
}

/* Start our own program with these arguments; `line` is the first that it says. */
static int launch_daemon(struct cli *c, const char *const *argv, int64_t patience_ms,
                         struct buf *line, struct err *err)
{
        CLEAN(cleanup_fd) int in = -1;
        CLEAN(cleanup_fd) int out = -1;
        CLEAN(cleanup_fd) int log = -1;
        int fds[2], r;

        r = path_make_dirs(c->data, 0700, err);
        if (r >= 0)
                r = open_log(c, &log, err);
        if (r < 0)
                return r;
        if (pipe2(fds, O_CLOEXEC) < 0)
                return err_sys(err, ERR_INTERNAL, errno, "pipe");
        in = fds[0];
        out = fds[1];
        pid_t pid = fork();
        if (pid == 0)
                become_daemon(argv, out, log);
        if (pid < 0)
                return err_sys(err, ERR_BUSY, errno, "start a daemon");
        close(take_fd(&out));
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        read_word(in, patience_ms, line);
        return 0;
}

/* A daemon of ours in a directory of another user could not be used by that user, and its files
 * would be in their way. Of a directory that is to be made, what it is made in counts. */
static int check_owner(struct cli *c, struct err *err)
{
        char *path = cli_printf(c, "%s", c->data);
        bool is_there = true;
        struct stat st;

        while (stat(path, &st) < 0) {
                char *slash = strrchr(path, '/');

                if (errno != ENOENT || !slash)
                        return err_sys(err, ERR_UNREACHABLE, errno, "no daemon answers, and %s",
                                       c->data);
                is_there = false;
                slash[slash == path] = '\0';
        }
        if (st.st_uid == geteuid() || (!is_there && st.st_uid == 0))
                return 0;
        return err_set(err, ERR_UNREACHABLE,
                       "no daemon answers in %s, and none is started there: %s is user %u's. Start "
                       "one as that user with: berth serve",
                       c->data, path, (unsigned)st.st_uid);
}

/* 0 when it listens or another one has the directory. */
static int start_daemon(struct cli *c, struct err *err)
{
        CLEAN(buf_done) struct buf line = { .max = 65536 };
        const char *const argv[] = { "berth", "serve", "--private", "--data", c->data, NULL };
        int r = check_owner(c, err);

        if (r >= 0)
                r = launch_daemon(c, argv, PATIENCE_MS, &line, err);

        if (r < 0)
                return r;
        if (str_starts(buf_str(&line), "listening ") || str_starts(buf_str(&line), "locked "))
                return 0;
        return err_set(err, ERR_UNREACHABLE, "the daemon does not start: %s (see %s/" LOG_FILE ")",
                       line.len ? buf_str(&line) : "it said nothing", c->data);
}

bool private_join(struct cli *c)
{
        c->data = absolute_path(c, c->data);
        return daemon_answers(c);
}

int private_ensure(struct cli *c, struct err *err)
{
        int64_t until = clock_mono_ms() + PATIENCE_MS, pause = PAUSE_MIN;

        c->data = absolute_path(c, c->data);
        while (!daemon_answers(c)) {
                int r = start_daemon(c, err);

                if (r < 0)
                        return r;
                if (daemon_answers(c))
                        return 0;
                /* Another one has the directory: it is about to listen, or about to end. */
                if (clock_mono_ms() > until)
                        return err_set(err, ERR_UNREACHABLE,
                                       "the daemon that uses %s does not answer", c->data);
                (void)usleep((useconds_t)(pause * 1000));
                pause = MIN(pause * 2, PAUSE_MAX);
        }
        return 0;
}

/* The lock file names the last daemon, and whether it was private. */
static bool was_private(struct cli *c, int *ret_pid)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;

        (void)file_read_at(AT_FDCWD, cli_printf(c, "%s/berth.lock", c->data), 4096, &text, NULL);
        *ret_pid = atoi(buf_str(&text));
        return strstr(buf_str(&text), "\nprivate\n") != NULL;
}

void private_revive(struct cli *c)
{
        int pid;

        if (was_private(c, &pid))
                (void)start_daemon(c, NULL);
}

/* Serving in the background */

/* The last line of the log, which says why the daemon ended. */
static const char *log_end(struct cli *c)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        const char *nl;

        (void)file_read_at(AT_FDCWD, cli_printf(c, "%s/" LOG_FILE, c->data), 2 * LOG_MAX, &text,
                           NULL);
        if (text.len > 0 && text.data[text.len - 1] == '\n')
                text.data[--text.len] = '\0';
        nl = strrchr(buf_str(&text), '\n');
        return cli_printf(c, "%s", nl ? nl + 1 : buf_str(&text));
}

int private_background(struct cli *c, const char *const *argv, struct err *err)
{
        CLEAN(buf_done) struct buf line = { .max = 65536 };
        bool answers = daemon_answers(c);
        int pid, r;

        if (answers && was_private(c, &pid))
                answers = false; /* the new one takes over */
        berth_close(c->api);
        c->api = NULL;
        r = answers ? 0 : launch_daemon(c, argv, TAKING_MS, &line, err);
        if (r < 0)
                return r;
        if (str_starts(buf_str(&line), "listening ")) {
                (void)was_private(c, &pid);
                out_line("%s", buf_str(&line));
                out_note("process %d, messages in %s/" LOG_FILE "; kill %d stops it", pid, c->data,
                         pid);
                return 0;
        }
        /* Another one may have been first. */
        answers = daemon_answers(c) && !was_private(c, &pid);
        if (!answers)
                return err_set(err, ERR_UNREACHABLE,
                               "the daemon does not start: %s (%s/" LOG_FILE ")", log_end(c),
                               c->data);
        out_line("a daemon already runs (process %d), with the data in %s", pid, c->data);
        return 0;
}
