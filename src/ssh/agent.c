/* Starts a private ssh-agent with one key, and ends it. */
#define _GNU_SOURCE
#include "ssh/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/fd.h"
#include "ssh/text.h"

#define AGENT_LIFE "120"
#define START_MS   10000
#define ADD_MS     10000
#define WORD_MAX   4096

static const char *path_variable(void)
{
        const char *path = getenv("PATH");

        return path ? path : "/usr/local/bin:/usr/bin:/bin";
}

/* One direction of a pipe; `ours` does not block. */
static int make_pipe(bool we_read, int *ret_ours, int *ret_theirs, struct err *err)
{
        int fds[2];

        if (pipe2(fds, O_CLOEXEC) < 0)
                return err_sys(err, ERR_BUSY, errno, "pipe");
        *ret_ours = fds[we_read ? 0 : 1];
        *ret_theirs = fds[we_read ? 1 : 0];
        if (fcntl(*ret_ours, F_SETFL, O_NONBLOCK) < 0)
                return err_sys(err, ERR_BUSY, errno, "pipe");
        return 0;
}

/* Up to the end of a line, or to end of file. */
static int read_word(struct op *op, int fd, bool one_line, struct buf *word, struct err *err)
{
        for (;;) {
                ssize_t n;
                int r = op_wait_fd(op, fd, POLLIN, START_MS, err);

                if (r < 0)
                        return r;
                if (r == 0)
                        return err_set(err, ERR_TIMEOUT, "no answer in time");
                n = fd_read_some(fd, word, 256);
                if (n < 0 && errno == EAGAIN)
                        continue;
                if (n <= 0)
                        return 0;
                if (one_line && memchr(word->data, '\n', word->len))
                        return 0;
        }
}

/* It says where it listens once it does. */
static int start_agent(struct op *op, const char *trampoline, struct ssh_agent *a, struct err *err)
{
        const char *argv[] = { "ssh-agent", "-D", "-s", "-t", AGENT_LIFE, "-a", a->socket, NULL };
        CLEAN(cleanup_free) char *path = xasprintf("PATH=%s", path_variable());
        const char *env[] = { path, NULL };
        CLEAN(buf_done) struct buf word = { .max = WORD_MAX };
        CLEAN(cleanup_fd) int ours = -1;
        CLEAN(cleanup_fd) int theirs = -1;
        int r = make_pipe(true, &ours, &theirs, err);

        if (r >= 0)
                r = tied_spawn(trampoline, true,
                               &(struct proc_spec){ .path = "ssh-agent",
                                                    .argv = argv,
                                                    .env = env,
                                                    .cwd = "/",
                                                    .fd_in = -1,
                                                    .fd_out = theirs,
                                                    .fd_err = theirs,
                                                    .new_session = true },
                               &a->proc, err);
        if (r < 0)
                return r;
        close(take_fd(&theirs));
        r = read_word(op, ours, true, &word, err);
        if (r < 0)
                return r;
        if (!str_starts(buf_str(&word), "SSH_AUTH_SOCK="))
                return err_set(err, ERR_PROVIDER, "ssh-agent does not start: %.200s",
                               word.len ? buf_str(&word) : "is openssh-client installed?");
        return 0;
}

/* A byte at a time is enough to drop carriage returns; keys are small. */
static int write_key(struct op *op, int fd, const char *key, struct err *err)
{
        size_t len = strlen(key);

        for (size_t i = 0; i <= len; i++) {
                char c = i < len ? key[i] : '\n';
                ssize_t n;
                int r;

                if (c == '\r')
                        continue;
                while ((n = write(fd, &c, 1)) < 0 && (errno == EINTR || errno == EAGAIN)) {
                        r = op_wait_fd(op, fd, POLLOUT, ADD_MS, err);
                        if (r <= 0)
                                return r < 0 ? r : err_set(err, ERR_TIMEOUT, "ssh-add hangs");
                }
                if (n < 0)
                        return 0; /* it has ended, and says why */
        }
        return 0;
}

static int agent_refused(const struct buf *word, struct err *err)
{
        CLEAN(buf_done) struct buf line = BUF_INIT;

        ssh_text_line(buf_str(word), word->len, 300, &line);
        return err_set(err, ERR_UNPROCESSABLE,
                       "The private key cannot be used: %s. It has to be a whole key file of "
                       "OpenSSH or PEM, without a passphrase.",
                       line.len ? buf_str(&line) : "ssh-add refused it");
}

static int add_key(struct op *op, const char *trampoline, const struct ssh_agent *a,
                   const char *key, struct err *err)
{
        const char *argv[] = { "ssh-add", "-q", "-", NULL };
        CLEAN(cleanup_free) char *path = xasprintf("PATH=%s", path_variable());
        CLEAN(cleanup_free) char *agent = xasprintf("SSH_AUTH_SOCK=%s", a->socket);
        const char *env[] = { path, agent, "SSH_ASKPASS_REQUIRE=never", NULL };
        CLEAN(buf_done) struct buf word = { .max = WORD_MAX };
        CLEAN(cleanup_fd) int in = -1;
        CLEAN(cleanup_fd) int their_in = -1;
        CLEAN(cleanup_fd) int out = -1;
        CLEAN(cleanup_fd) int their_out = -1;
        struct proc proc = PROC_INIT;
        struct proc_status status = { .exit_code = -1 };
        int r = make_pipe(false, &in, &their_in, err);

        if (r >= 0)
                r = make_pipe(true, &out, &their_out, err);
        if (r >= 0)
                r = tied_spawn(trampoline, true,
                               &(struct proc_spec){ .path = "ssh-add",
                                                    .argv = argv,
                                                    .env = env,
                                                    .cwd = "/",
                                                    .fd_in = their_in,
                                                    .fd_out = their_out,
                                                    .fd_err = their_out,
                                                    .new_session = true },
                               &proc, err);
        if (r < 0)
                return r;
        close(take_fd(&their_in));
        close(take_fd(&their_out));
        r = write_key(op, in, key, err);
        close(take_fd(&in));
        if (r >= 0)
                r = read_word(op, out, false, &word, err);
        if (r >= 0)
                r = proc_wait(op, &proc, &status, err);
        tied_end(op, &proc);
        if (r < 0)
                return err_wrap(err, r, "hand the key to ssh-agent");
        return status.exit_code == 0 ? 0 : agent_refused(&word, err);
}

int ssh_agent_start(struct op *op, const char *trampoline, const char *dir, const char *key,
                    struct ssh_agent *ret, struct err *err)
{
        *ret = SSH_AGENT_INIT;
        ret->socket = xasprintf("%s/agent", dir);
        int r = start_agent(op, trampoline, ret, err);
        if (r >= 0)
                r = add_key(op, trampoline, ret, key, err);
        if (r < 0)
                ssh_agent_end(op, ret);
        return r;
}

void ssh_agent_end(const struct op *op, struct ssh_agent *a)
{
        tied_end(op, &a->proc);
        free(take_ptr(&a->socket));
}
