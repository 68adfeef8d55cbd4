/* The POSIX shell texts that run on the host. The login shell, whatever it is, sees one fixed line
 * of plain words; the text itself comes through standard input, so nothing of it is quoted twice,
 * shows in a process list, or meets a shell that is no sh. Pure; any thread. */
#pragma once

#include "base/buf.h"

/* A box program that can be brought to a host. */
struct ssh_box {
        const char *machine; /* as `uname -m` says it */
        const char *path;    /* here */
        char hash[65];       /* SHA-256 of its content; empty: there is none for that machine */
};

#define SSH_N_BOXES 2

/* For the login shell: run the `len` bytes that come first. */
void ssh_script_launcher(size_t len, struct buf *out);

/* The same for a program that gives a shell its text as an argument: what follows `sh -c`. */
void ssh_script_argument(size_t len, struct buf *out);

/* Make and enter the workspace, see that it can be written, and say so, and what kind of host it
 * is. mark: session.h. */
void ssh_script_ready(const char *mark, const char *path, const struct ssh_box *boxes,
                      struct buf *out);
/* The same, then the box: found with the right content or fetched, and become the relay to it. */
void ssh_script_stream(const char *mark, const char *path, const struct ssh_box *boxes,
                       struct buf *out);

/* The same, for a workspace that is `owner`'s own: a directory with something in it that does not
 * carry the owner's mark is refused, because bringing files makes it what they are. */
void ssh_script_own_stream(const char *mark, const char *path, const char *owner,
                           const struct ssh_box *boxes, struct buf *out);

/* Source the login's start-up files, set again what was set before (names only: values are never
 * text of a script), and become "$@". NULL-terminated list of names. */
void ssh_script_command(const char *const *names, struct buf *out);

/* A command without a box. Its tree carries both ids in its variables, by which it is found again.
 */
struct ssh_plain_command {
        const char *exec_id, *place_id, *cwd, *command;
        const char *const *args; /* NULL-terminated, as the next */
        const char *const *env;  /* NAME=value: variables that were set explicitly */
};
void ssh_script_plain(const char *mark, const struct ssh_plain_command *c, struct buf *out);
/* End the processes that carry `name`=`id`: SIGTERM, and SIGKILL to those left after `grace_s`
 * seconds. */
void ssh_script_kill(const char *mark, const char *name, const char *id, unsigned grace_s,
                     struct buf *out);
