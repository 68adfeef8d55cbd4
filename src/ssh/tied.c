/* The trampoline that ties a process to the daemon's life. */
#define _GNU_SOURCE
#include "ssh/tied.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

#define ARGS_MAX    128
#define END_TIME_MS 10000

int tied_spawn(const char *trampoline, bool plain, const struct proc_spec *spec, struct proc *ret,
               struct err *err)
{
        const char *argv[ARGS_MAX];
        struct proc_spec tied = *spec;
        char parent[32];
        size_t n = 0;

        if (!trampoline)
                return proc_spawn(spec, ret, err);
        snprintf(parent, sizeof(parent), "--parent=%d", (int)getpid());
        argv[n++] = TIED_TRAMPOLINE;
        argv[n++] = parent;
        argv[n++] = plain ? "--plain" : "--";
        argv[n++] = spec->path;
        for (const char *const *a = spec->argv + 1; *a; a++) {
                if (n + 1 >= ARGS_MAX)
                        return err_set(err, ERR_INTERNAL, "too many arguments for %s", spec->path);
                argv[n++] = *a;
        }
        argv[n] = NULL;
        tied.path = trampoline;
        tied.argv = argv;
        return proc_spawn(&tied, ret, err);
}

void tied_end(const struct op *op, struct proc *proc)
{
        struct op shield = op_shield(op, END_TIME_MS);
        struct proc_status status;

        if (proc->pid <= 0)
                return;
        /* It is still there, if only as a zombie, so no other process has the number of its
         * session. */
        (void)kill(-proc->pid, SIGKILL);
        (void)proc_kill(proc, SIGKILL, NULL);
        (void)proc_wait(&shield, proc, &status, NULL);
        proc_done(proc);
}

bool tied_is_trampoline(const char *argv0)
{
        return argv0 && streq(argv0, TIED_TRAMPOLINE);
}

int tied_main(int argc, char **argv)
{
        if (argc < 4 || !str_starts(argv[1], "--parent=")) {
                fprintf(stderr, TIED_TRAMPOLINE ": not meant to be started by hand\n");
                return 126;
        }
        long parent = strtol(argv[1] + strlen("--parent="), NULL, 10);
        if (streq(argv[2], "--plain"))
                (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
                return 126;
        execvp(argv[3], argv + 3);
        fprintf(stderr, "%s: %s\n", argv[3], strerror(errno));
        return 127;
}
