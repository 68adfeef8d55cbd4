/* The private daemon: a command that finds no daemon, and was given no address, starts one on the
 * Unix socket of the data directory, without a port, in the background; the next command joins it.
 * It ends by itself when no client has needed it for a few seconds (daemon/idle.h), or when `berth
 * serve` takes over from it (daemon/datadir.h).
 *
 * The lock of the data directory, which the daemon takes, decides which one is first: starting one
 * too many is harmless, it says `locked` and ends. One thread. */
#pragma once

#include "cli/command.h"

/* Connect c to the daemon of the data directory, if it answers. */
bool private_join(struct cli *c);
/* The same, started if need be; never in the directory of another user. */
int private_ensure(struct cli *c, struct err *err);
/* Start it again if it was a private one that went away; another daemon is not ours to replace. */
void private_revive(struct cli *c);
/* `berth serve` with these arguments (argv[0] and on, NULL at the end) in the background: returns
 * when it listens. It takes over from a private daemon; any other one is there already, and that is
 * said. c->data is absolute. */
int private_background(struct cli *c, const char *const *argv, struct err *err);
