/* A private directory for one login: the agent's socket and a copy of the known host keys. Mode
 * 0700, and its path is short and plain enough for socket addresses and for ssh's options, which
 * expand and split what they are given. Any thread. */
#pragma once

#include "base/err.h"

struct ssh_rundir {
        char *path; /* NULL: none */
};

/* Beneath `base` when that will do, else beneath /tmp. */
int ssh_rundir_make(const char *base, struct ssh_rundir *ret, struct err *err);
/* With the files in it. */
void ssh_rundir_remove(struct ssh_rundir *d);
/* Remove what a daemon that was killed left beneath `base`. */
void ssh_rundir_sweep(const char *base);
