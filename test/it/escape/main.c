#include "escape.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS_HELD, STATUS_ESCAPED, STATUS_BROKEN };

static const struct escape_case *const families[] = {
        file_cases,   process_cases,    call_cases,  socket_cases, mount_cases,
        device_cases, descriptor_cases, flood_cases, race_cases,   setting_cases,
};

static char how[16384]; /* the refusals so far */
static unsigned n_refused;

static void say(const char *verdict, const char *text)
{
        (void)printf("%s %s\n", verdict, text);
        (void)fflush(stdout);
}

static void say_about(const char *verdict, const char *format, va_list args)
{
        char text[1024];

        (void)vsnprintf(text, sizeof(text), format, args);
        say(verdict, text);
}

void refused(const char *format, ...)
{
        size_t used = strlen(how);
        va_list args;

        n_refused++;
        if (used + 3 < sizeof(how) && used > 0)
                used += (size_t)sprintf(how + used, "; ");
        va_start(args, format);
        (void)vsnprintf(how + used, sizeof(how) - used, format, args);
        va_end(args);
}

void escaped(const char *format, ...)
{
        va_list args;

        va_start(args, format);
        say_about("ESCAPED", format, args);
        va_end(args);
        _exit(STATUS_ESCAPED);
}

void broken(const char *format, ...)
{
        va_list args;

        va_start(args, format);
        say_about("BROKEN", format, args);
        va_end(args);
        _exit(STATUS_BROKEN);
}

void must_fail(long result, const char *what)
{
        if (result >= 0)
                escaped("%s", what);
        refused("%s: %s", what, strerrorname_np(errno));
}

void must_not_be_reached(long result, const char *what)
{
        if (result >= 0)
                escaped("%s", what);
        if (errno != EPERM && errno != EACCES && errno != ENOSYS && errno != EAFNOSUPPORT)
                escaped("%s was looked at by the kernel: %s", what, strerrorname_np(errno));
        refused("%s: %s", what, strerrorname_np(errno));
}

int in_child(int (*attempt)(void *ctx), void *ctx, int *ret_signal)
{
        pid_t pid = fork();
        int status;

        if (pid < 0)
                broken("fork: %s", strerrorname_np(errno));
        if (pid == 0)
                _exit(attempt(ctx));
        if (waitpid(pid, &status, 0) < 0)
                broken("waitpid: %s", strerrorname_np(errno));
        *ret_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        return WIFSIGNALED(status) ? -1 : WEXITSTATUS(status);
}

struct job {
        const struct escape_case *what;
        char **args;
};

static int run(void *ctx)
{
        const struct job *job = ctx;

        job->what->run(job->args);
        if (n_refused == 0)
                broken("%s tried nothing", job->what->name);
        say("HELD", how);
        return STATUS_HELD;
}

static const struct escape_case *find(const char *name)
{
        for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
                for (const struct escape_case *c = families[i]; c->name; c++)
                        if (strcmp(c->name, name) == 0)
                                return c;
        return NULL;
}

static int usage(FILE *to)
{
        (void)fprintf(to, "usage: escape CASE [ARG...]\n");
        for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
                for (const struct escape_case *c = families[i]; c->name; c++)
                        (void)fprintf(to, "  %s %s\n", c->name, c->arguments);
        return STATUS_BROKEN;
}

int main(int argc, char **argv)
{
        struct job job = { .args = argv + 2 };
        int status, sig;

        if (argc < 2)
                return usage(stderr);
        if (strcmp(argv[1], "--list") == 0) {
                (void)usage(stdout);
                return 0;
        }
        job.what = find(argv[1]);
        if (!job.what || argc - 2 < job.what->least)
                return usage(stderr);
        status = in_child(run, &job, &sig);
        if (sig == SIGSYS)
                say("HELD", "killed by the system call filter");
        else if (sig != 0)
                broken("%s was killed by signal %d", argv[1], sig);
        return sig == SIGSYS ? STATUS_HELD : status;
}
