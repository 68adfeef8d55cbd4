/* A private ssh-agent for one login. The key comes from a secret and goes to `ssh-add -` through a
 * pipe: it is in no file, no argument and no variable. The agent listens in the login's own
 * directory, forgets the key after two minutes at the latest, and ends with the login, or with the
 * daemon. Operation threads. */
#pragma once

#include "ssh/tied.h"

struct ssh_agent {
        struct proc proc;
        char *socket;
};

#define SSH_AGENT_INIT                                                                             \
        (struct ssh_agent)                                                                         \
        {                                                                                          \
                .proc = PROC_INIT                                                                  \
        }

/* ERR_UNPROCESSABLE when the key is none that ssh-add reads, with its word. */
int ssh_agent_start(struct op *op, const char *trampoline, const char *dir, const char *key,
                    struct ssh_agent *ret, struct err *err);
void ssh_agent_end(const struct op *op, struct ssh_agent *a);
