/* Processes that end with the daemon. ssh and ssh-agent do not notice when the process that started
 * them is killed, and an agent holds a key: so they are started by way of our own program under the
 * name TIED_TRAMPOLINE, which asks the kernel to be killed with its parent and becomes them. */
#pragma once

#include "rt/proc.h"

#define TIED_TRAMPOLINE "berth-tied"

/* As proc_spawn(). trampoline is the path of our own program; NULL: started as it is. `plain` gives
 * up the rights of setuid and setgid programs: the kernel forgets the tie where it grants them. */
int tied_spawn(const char *trampoline, bool plain, const struct proc_spec *spec, struct proc *ret,
               struct err *err);

/* End it and what it started (its session), and wait for it. Fine for one that was never started.
 */
void tied_end(const struct op *op, struct proc *proc);

bool tied_is_trampoline(const char *argv0);
int tied_main(int argc, char **argv);
