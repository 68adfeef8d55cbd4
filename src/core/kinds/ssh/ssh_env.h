/* The variables of a command on an ssh host: what its login has, what its start-up files make of
 * it, and what the caller set, later ones winning. Pure; any thread. */
#pragma once

#include "core/exec/exec_request.h"

/* "Invalid SSH environment variable key: <key>" for a name that a shell would not take. `env` may
 * be anything. */
int ssh_env_check(const json_t *env, struct err *err);

/* The command as it is given to a box: /bin/sh sources the start-up files of the login, sets what
 * was set explicitly again, and becomes the command. `in->login` are the variables of the login. */
void ssh_env_wrap(struct arena *arena, const struct exec_request *in, struct exec_request *ret);
