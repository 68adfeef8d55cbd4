/* berth-box --acp: an agent that speaks the Agent Client Protocol, run as the command of an
 * execution. This process is the agent's parent and the client of its session (codec/acp.h): it
 * reads the prompt from standard input, prints the session's events, and ends as the session did.
 * It runs beside the work, so a restart of the daemon is nothing to it.
 *
 * The agent has a process group of its own: a SIGTERM to the command reaches this process, which
 * asks the agent to cancel first. Its rights are the agent's, so files are served without further
 * checks. One thread, one poll loop; nothing blocks once the prompt is read. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "berth-box/mains.h"
#include "codec/acp.h"

#define PROMPT_MAX ((size_t)16 << 20)
#define READ_SIZE  ((size_t)64 << 10)
#define AUTH_MAX   8

#define START_S   300  /* for the agent to be ready for the prompt */
#define CANCEL_MS 5000 /* to answer after session/cancel */
#define QUIET_MS  300  /* without a word, and a loaded session is told to its end */
#define LEAVE_MS  5000 /* to end once its input is closed */
#define TERM_MS   2000 /* and after SIGTERM */

struct client {
        struct acp *acp;
        pid_t pid; /* 0: reaped */
        int status;
        int to_agent, from_agent, signals;
        bool output_broken; /* nobody reads our events */
        bool was_asked;     /* we got SIGTERM */
        int64_t cancel_at;  /* when to stop waiting after a cancel; 0: not cancelled */
        int64_t start_by;
        int64_t heard_at;
        char block[READ_SIZE];
};

/* -- Files ------------------------------------------------------------------------------------- */

static int read_text(void *ctx UNUSED, const char *path, struct buf *ret, struct err *err)
{
        CLEAN(cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        struct stat st;
        ssize_t n = 1;

        if (fd < 0 || fstat(fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "%s", path);
        if (!S_ISREG(st.st_mode))
                return err_set(err, ERR_INVALID, "%s is not a regular file", path);
        buf_init(ret, ACP_FILE_MAX + 1);
        while (n > 0) {
                char *to = buf_reserve(ret, MIN(READ_SIZE, ACP_FILE_MAX - ret->len));

                if (ret->len == ACP_FILE_MAX || !to)
                        return err_set(err, ERR_TOO_LARGE, "%s has more than %zu bytes", path,
                                       ACP_FILE_MAX);
                n = read(fd, to, MIN(READ_SIZE, ACP_FILE_MAX - ret->len));
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "%s", path);
                buf_grew(ret, (size_t)n);
        }
        return 0;
}

static int make_parent(const char *path, struct err *err)
{
        const char *slash = strrchr(path, '/');
        CLEAN(cleanup_free) char *dir = NULL;

        if (!slash || slash == path)
                return 0;
        dir = xstrndup(path, (size_t)(slash - path));
        return path_make_dirs(dir, 0777, err);
}

static int write_text(void *ctx UNUSED, const char *path, const char *text, size_t len,
                      struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        struct stat st;
        int r = make_parent(path, err);

        if (r < 0)
                return r;
        /* Not O_TRUNC: what is no file is left as it is. */
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
        if (fd < 0 || fstat(fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "%s", path);
        if (!S_ISREG(st.st_mode))
                return err_set(err, ERR_INVALID, "%s is not a regular file", path);
        if (ftruncate(fd, 0) < 0)
                return err_sys(err, ERR_IO, errno, "%s", path);
        while (len > 0) {
                ssize_t n = write(fd, text, len);

                if (n < 0 && errno != EINTR)
                        return err_sys(err, ERR_IO, errno, "%s", path);
                text += MAX(n, 0);
                len -= (size_t)MAX(n, 0);
        }
        return 0;
}

/* -- The agent's process ----------------------------------------------------------------------- */

/* 0, or the errno with which the program could not be started. */
static int start_agent(struct client *c, const char *const *argv)
{
        int in[2], out[2], word[2], why = 0;
        sigset_t none;

        if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(word, O_CLOEXEC) < 0)
                return errno;
        c->pid = fork();
        if (c->pid < 0)
                return errno;
        if (c->pid == 0) {
                sigemptyset(&none);
                sigprocmask(SIG_SETMASK, &none, NULL);
                signal(SIGPIPE, SIG_DFL);
                setpgid(0, 0);
                if (dup2(in[0], 0) >= 0 && dup2(out[1], 1) >= 0)
                        execvp(argv[0], (char *const *)argv);
                why = errno;
                (void)!write(word[1], &why, sizeof(why));
                _exit(127);
        }
        setpgid(c->pid, c->pid);
        close(in[0]);
        close(out[1]);
        close(word[1]);
        c->to_agent = in[1];
        c->from_agent = out[0];
        (void)!fcntl(c->to_agent, F_SETFL, O_NONBLOCK);
        (void)!fcntl(c->from_agent, F_SETFL, O_NONBLOCK);
        while (read(word[0], &why, sizeof(why)) < 0 && errno == EINTR)
                ;
        close(word[0]);
        return why;
}

static void reap_agent(struct client *c)
{
        if (c->pid > 0 && waitpid(c->pid, &c->status, WNOHANG) == c->pid)
                c->pid = 0;
}

static void how_it_ended(const struct client *c, char *text, size_t size)
{
        if (c->pid > 0)
                snprintf(text, size, "it closed its output");
        else if (WIFSIGNALED(c->status))
                snprintf(text, size, "signal %d", WTERMSIG(c->status));
        else
                snprintf(text, size, "exit status %d", WEXITSTATUS(c->status));
}

/* -- The loop ---------------------------------------------------------------------------------- */

static void take_signals(struct client *c)
{
        struct signalfd_siginfo info;

        while (read(c->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
                if (info.ssi_signo == SIGCHLD) {
                        reap_agent(c);
                } else if (!c->was_asked) {
                        c->was_asked = true;
                        c->cancel_at = clock_mono_ms() + CANCEL_MS;
                        acp_cancel(c->acp);
                }
        }
}

static void read_agent(struct client *c)
{
        ssize_t n = read(c->from_agent, c->block, sizeof(c->block));

        if (n > 0) {
                acp_feed(c->acp, c->block, (size_t)n);
                c->heard_at = clock_mono_ms();
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
                close(c->from_agent);
                c->from_agent = -1;
        }
}

/* Bytes that nobody takes any more are dropped. */
static bool write_some(int fd, struct buf *b)
{
        ssize_t n = write(fd, b->data, b->len);

        if (n < 0 && errno != EAGAIN && errno != EINTR) {
                buf_clear(b);
                return false;
        }
        buf_consume(b, (size_t)MAX(n, 0));
        return true;
}

/* One round; `until`: of clock_mono_ms(), -1: no limit. */
static void client_turn(struct client *c, int64_t until)
{
        struct buf *out = acp_to_agent(c->acp), *events = acp_events(c->acp);
        int64_t left = until < 0 ? -1 : MAX(until - clock_mono_ms(), 0);
        struct pollfd p[] = {
                { .fd = c->signals, .events = POLLIN },
                { .fd = acp_is_full(c->acp) ? -1 : c->from_agent, .events = POLLIN },
                { .fd = out->len ? c->to_agent : -1, .events = POLLOUT },
                { .fd = events->len && !c->output_broken ? 1 : -1, .events = POLLOUT },
        };

        if (poll(p, ARRAY_LEN(p), (int)MIN(left, 60000)) < 0 && errno != EINTR)
                return;
        if (p[0].revents)
                take_signals(c);
        if (p[1].revents)
                read_agent(c);
        if (p[2].revents && !write_some(c->to_agent, out)) {
                close(c->to_agent);
                c->to_agent = -1;
        }
        if (p[3].revents)
                c->output_broken = !write_some(1, events);
        if (c->to_agent < 0)
                buf_clear(out);
        if (c->output_broken)
                buf_clear(events);
}

static void run_session(struct client *c)
{
        char how[64];

        while (!acp_is_over(c->acp)) {
                bool starting = !acp_has_prompted(c->acp);
                int64_t until = c->cancel_at ? c->cancel_at : starting ? c->start_by : -1;
                int64_t quiet_at = c->heard_at + QUIET_MS;

                client_turn(c, acp_is_settling(c->acp) ? MIN(quiet_at, until) : until);
                if (acp_is_settling(c->acp) && clock_mono_ms() >= c->heard_at + QUIET_MS)
                        acp_settled(c->acp);
                if (c->from_agent < 0) {
                        /* Its end says more than that of its output. */
                        for (int i = 0; c->pid > 0 && i < 20; i++)
                                client_turn(c, clock_mono_ms() + 10);
                        how_it_ended(c, how, sizeof(how));
                        acp_end(c->acp, how);
                } else if (until >= 0 && clock_mono_ms() >= until && !acp_is_over(c->acp)) {
                        if (c->cancel_at)
                                acp_fail(c->acp, "the agent did not answer to session/cancel");
                        else if (!acp_has_prompted(c->acp))
                                acp_fail(c->acp, "the agent did not get ready in time");
                }
        }
}

static void wait_for_agent(struct client *c, int64_t limit_ms)
{
        int64_t until = clock_mono_ms() + limit_ms;

        while ((c->pid > 0 || (acp_events(c->acp)->len > 0 && !c->output_broken)) &&
               clock_mono_ms() < until)
                client_turn(c, until);
}

/* The agent writes its session down when its input ends; a deaf one is killed with the tree. */
static void end_agent(struct client *c)
{
        if (c->to_agent >= 0)
                close(c->to_agent);
        c->to_agent = -1;
        buf_clear(acp_to_agent(c->acp));
        if (!c->was_asked || acp_is_good(c->acp))
                wait_for_agent(c, LEAVE_MS);
        if (c->pid > 0)
                (void)kill(-c->pid, SIGTERM);
        wait_for_agent(c, TERM_MS);
        if (c->pid > 0)
                (void)kill(-c->pid, SIGKILL);
        wait_for_agent(c, TERM_MS);
}

/* -- The command line -------------------------------------------------------------------------- */

struct options {
        struct acp_config config;
        const char *auth[AUTH_MAX + 1];
        int64_t start_s;
        const char *const *argv;
};

/* Words of the form NAME=VALUE, then `--` and the agent's command. */
static bool read_words(const char *const *words, struct options *o)
{
        size_t n_auth = 0;
        int permission = ACP_REJECT;

        for (; *words && !streq(*words, "--"); words++) {
                const char *value = strchr(*words, '=');
                size_t n = value ? (size_t)(value - *words) : 0;

                if (!value++)
                        return false;
                if (n == 7 && memcmp(*words, "session", n) == 0)
                        o->config.session = value;
                else if (n == 5 && memcmp(*words, "model", n) == 0)
                        o->config.model = value;
                else if (n == 4 && memcmp(*words, "mode", n) == 0)
                        o->config.mode = value;
                else if (n == 11 && memcmp(*words, "permissions", n) == 0)
                        permission = acp_permission_of(value);
                else if (n == 8 && memcmp(*words, "startSec", n) == 0)
                        o->start_s = strtol(value, NULL, 10);
                else if (n == 4 && memcmp(*words, "auth", n) == 0 && n_auth < AUTH_MAX)
                        o->auth[n_auth++] = value;
                else
                        return false;
        }
        if (permission < 0 || !*words || !words[1] || o->start_s < 1)
                return false;
        o->config.permission = (enum acp_permission)permission;
        o->config.auth = o->auth;
        o->argv = words + 1;
        return true;
}

static bool read_prompt(struct buf *prompt)
{
        ssize_t n = 1;

        buf_init(prompt, PROMPT_MAX);
        while (n > 0) {
                char *to = buf_reserve(prompt, READ_SIZE);

                n = to ? read(0, to, READ_SIZE) : -1;
                if (n < 0 && to && errno == EINTR)
                        n = 1;
                else if (n > 0)
                        buf_grew(prompt, (size_t)n);
        }
        return n == 0;
}

static int watch_signals(struct client *c)
{
        sigset_t set;

        signal(SIGPIPE, SIG_IGN);
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
                return -1;
        c->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        return c->signals;
}

/* As the session did: a command that was asked to end has ended by that signal. */
static int end_as_asked(const struct client *c)
{
        sigset_t none;

        if (acp_is_good(c->acp))
                return 0;
        if (!c->was_asked)
                return 1;
        sigemptyset(&none);
        signal(SIGTERM, SIG_DFL);
        sigprocmask(SIG_SETMASK, &none, NULL);
        (void)raise(SIGTERM);
        return 1;
}

int acp_main(const struct main_args *a)
{
        static struct client c;
        static const struct acp_files files = { .read = read_text, .write = write_text };
        struct options o = { .start_s = START_S };
        CLEAN(buf_done) struct buf prompt = BUF_INIT;
        CLEAN(cleanup_free) char *cwd = getcwd(NULL, 0);
        int why, status;

        if (!cwd || !read_words(a->words, &o)) {
                fputs("usage: berth-box --acp -- [session=ID] [model=ID] [mode=ID] [auth=METHOD]...\n"
                      "                       [permissions=POLICY] [startSec=N] -- COMMAND [ARGUMENT...]\n",
                      stderr);
                return 2;
        }
        if (!read_prompt(&prompt)) {
                fputs("the prompt cannot be read, or is too long\n", stderr);
                return 1;
        }
        o.config.cwd = cwd;
        o.config.prompt = buf_str(&prompt);
        o.config.prompt_len = prompt.len;
        c.to_agent = c.from_agent = -1;
        if (watch_signals(&c) < 0) {
                perror("signalfd");
                return 1;
        }
        why = start_agent(&c, o.argv);
        if (why) {
                fprintf(stderr, "cannot start %s: %s\n", o.argv[0], strerror(why));
                return 127;
        }
        (void)!fcntl(1, F_SETFL, O_NONBLOCK);
        c.start_by = clock_mono_ms() + o.start_s * 1000;
        c.acp = acp_new(&o.config, &files);
        run_session(&c);
        end_agent(&c);
        status = end_as_asked(&c);
        acp_free(c.acp);
        return status;
}
