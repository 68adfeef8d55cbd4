/* Where an ssh environment is and how one gets in: the configuration of an environment with its
 * secrets in it, checked for what must never reach a command line. Pure; any thread. */
#pragma once

#include "base/err.h"

/* Texts are borrowed. */
struct ssh_target {
        const char *host, *username;
        int port;
        const char *path; /* absolute; beneath the home directory when it begins with / ~ / */
        const char *private_key; /* NULL: none */
        const char *known_hosts; /* NULL: the operator's own */
        bool strict;             /* false: a host that is new is recorded */
        bool use_ssh_config;     /* the operator's configuration, agents and keys count */
        int patience_s;          /* how long nothing may come; 0: the default */
};

/* Whether ssh can be given these words without taking one for something else. ERR_UNPROCESSABLE
 * says which one it is. */
int ssh_target_check(const struct ssh_target *t, struct err *err);
