/* Signals through a pipe, their names, and dying of one. */
#define _GNU_SOURCE
#include "cli/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <strings.h>

static int pipe_fds[2] = { -1, -1 };

static void write_number(int number)
{
        int saved = errno;
        char c = (char)number;

        (void)!write(pipe_fds[1], &c, 1); /* a full pipe holds enough of them */
        errno = saved;
}

int signals_catch(struct err *err)
{
        static const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH };
        struct sigaction action = { .sa_handler = write_number }, old;

        if (pipe_fds[0] >= 0)
                return 0;
        if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0)
                return err_sys(err, ERR_INTERNAL, errno, "pipe");
        sigemptyset(&action.sa_mask);
        for (size_t i = 0; i < ARRAY_LEN(caught); i++)
                if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
                        (void)sigaction(caught[i], &action, NULL);
        (void)signal(SIGPIPE, SIG_IGN);
        return 0;
}

int signals_fd(void)
{
        return pipe_fds[0];
}

int signals_next(void)
{
        char c;

        return pipe_fds[0] >= 0 && read(pipe_fds[0], &c, 1) == 1 ? c : 0;
}

const char *signals_name(int number)
{
        static char name[32];
        const char *abbreviated = number > 0 ? sigabbrev_np(number) : NULL;

        if (!abbreviated)
                return NULL;
        (void)snprintf(name, sizeof(name), "SIG%s", abbreviated);
        return name;
}

int signals_number(const char *text)
{
        char *end;
        long n = strtol(text, &end, 10);

        if (*text && *end == '\0')
                return n > 0 && n < NSIG && signals_name((int)n) ? (int)n : 0;
        for (int i = 1; i < NSIG; i++) {
                const char *name = signals_name(i);

                if (name && (strcasecmp(name, text) == 0 || strcasecmp(name + 3, text) == 0))
                        return i;
        }
        return 0;
}

void signals_die_of(int number)
{
        sigset_t set;

        (void)signal(number, SIG_DFL);
        sigemptyset(&set);
        sigaddset(&set, number);
        (void)sigprocmask(SIG_UNBLOCK, &set, NULL);
        (void)raise(number);
}
