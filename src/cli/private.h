/* The private daemon: `berth run` without a daemon starts one on the Unix socket of the data
 * directory, without a port, in the background; the next `berth run` joins it. It ends by itself
 * when no client has needed it for a few seconds (daemon/idle.h).
 *
 * The lock of the data directory, which the daemon takes, decides which one is first: starting one
 * too many is harmless, it says `locked` and ends. One thread. */
#pragma once

#include "cli/command.h"

/* Connect c to the daemon of the data directory, started if need be. */
int private_ensure(struct cli *c, struct err *err);
/* Start it again if it was a private one that went away; another daemon is not ours to replace. */
void private_revive(struct cli *c);
/* `berth serve` with these arguments (argv[0] and on, NULL at the end) in the background: returns
 * when it listens. A private daemon that has the data directory is waited for; any other one is
 * there already, and that is said. c->data is absolute. */
int private_background(struct cli *c, const char *const *argv, struct err *err);
