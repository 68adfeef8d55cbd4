/* The command line of ssh. Everything that decides which host is trusted is said here, so that
 * nothing of the operator's own set-up counts unless the operator said so (`-F none`); words from a
 * configuration stand after `-p`, `-l` and `--`, where they cannot be options. Pure; any thread. */
#pragma once

#include "base/arena.h"
#include "ssh/target.h"

struct ssh_files {
        const char *known_hosts; /* path, or NULL: the operator's */
        bool also_own;           /* the operator's count as well */
        const char *agent;       /* path of a socket, or NULL: none of ours */
};

/* NULL-terminated. `remote` is the one argument that the login shell gets. The target was checked.
 */
const char *const *ssh_command(const struct ssh_target *t, const struct ssh_files *files,
                               const char *remote, struct arena *arena);
/* The variables that ssh gets. */
const char *const *ssh_environment(const struct ssh_target *t, struct arena *arena);
