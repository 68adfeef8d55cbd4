/* Commands on a host that cannot run a box: one ssh process each, without the guarantees of a box.
 * Their input is given at the beginning, they do not survive the connection, and a signal or a time
 * limit kills their tree by a second login, found by the variables it carries.
 *
 * A thread each; callbacks come from it. */
#pragma once

#include "core/exec/exec.h"

/* Its `call` is the place. */
extern const struct exec_runner ssh_plain_runner;

/* Operation: end every command of a place. */
int ssh_plain_end_place(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err);
/* The daemon ends: kill them all, and wait for their threads. */
void ssh_plain_stop(struct ssh_hosts *hosts);
