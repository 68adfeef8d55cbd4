/* Why ssh failed, and what helps: from its standard error, which the host has a hand in. Pure; any
 * thread. */
#pragma once

#include "base/buf.h"
#include "ssh/target.h"

enum ssh_trouble {
        SSH_OTHER,
        SSH_UNREACHABLE,
        SSH_UNRESOLVED,
        SSH_SILENT,          /* it answers, but does not go on */
        SSH_KEY_REFUSED,     /* none of our keys */
        SSH_HOSTKEY_UNKNOWN, /* no host key is known for the host */
        SSH_HOSTKEY_CHANGED, /* it is another than before */
        SSH_NO_DIRECTORY,
        SSH_NO_SPACE,
        SSH_NO_TAR,
        SSH_NO_CLIENT, /* no ssh on this machine */
        SSH_CUT,       /* it ended without a word, as what is killed does */
};

enum ssh_trouble ssh_trouble_of(const char *errors);

/* One line: what is wrong, and what to do about it. known_hosts is what ssh was given to compare
 * with, or NULL. */
void ssh_explain(enum ssh_trouble trouble, const char *errors, const struct ssh_target *t,
                 const char *known_hosts, struct buf *out);
