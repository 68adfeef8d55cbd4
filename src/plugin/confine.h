/* Confining a worker: what has to happen between fork and exec, without forking here. The host
 * starts our own program again under the name PLUGIN_TRAMPOLINE; that process gives up rights and
 * becomes the worker, or leads it.
 *
 * A worker that is confined has
 *
 *   a user of its own     where the daemon is root: no capabilities, no groups. Its private
 *                         directory belongs to that user; files.h says how it is chosen.
 *   a view of its own     namespaces of mounts, processes and IPC (confine_view.c). It sees its
 *                         package, its private directory, the system's libraries, certificates and
 *                         name service files, and no process but its own. All but the private
 *                         directory is read-only, its modes, owners and times included.
 *   Landlock              over the same list of paths, where the kernel has it.
 *   a filter              of system calls (confine_filter.c), in every case.
 *
 * Everywhere: no new privileges, no core dumps, no descriptors but the standard ones, and the end
 * of the daemon is its end. The network stays open to workers, it is what they are for.
 *
 * Where no view can be made (no user namespaces, or a container that forbids mounts) the rest
 * stands, and the filter refuses more: see confine_filter.c. `plugin_confine = false` leaves the
 * filter alone. confine_probe.c tries from inside what can be reached. */
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include "base/arena.h"
#include "rt/op.h"

#define PLUGIN_TRAMPOLINE "berth-worker"

/* Users of workers, of a daemon that is root: above the range of sandboxes (core/sandboxes). */
#define CONFINE_UID_FIRST 0x7fff0000
#define CONFINE_UID_COUNT 0x8000

/* How the workers of one daemon are confined. Immutable once it is in use but for what the first
 * use finds out; any thread. */
struct confine_policy {
        const char *trampoline;         /* our own program */
        bool confine;                   /* false: only the filter */
        int64_t uid_first, uid_count;   /* count 0: no users of their own */
        const char *refusal;            /* no worker may start, and why; NULL: they may */
        const char *private_dir;        /* directories of workers: each one's owner is its user */
        const char *const *never_shown; /* directories that no worker sees; NULL-terminated */
        pthread_mutex_t lock;           /* over the choice of a user and these */
        enum { VIEW_UNKNOWN, VIEW_WORKS, VIEW_FAILS } view;
        char view_failure[256];
};

/* Operation: find out once whether workers can have views of their own here. An error: it could not
 * be found out, and nothing that depends on it may be started. */
int confine_try_view(const struct op *op, struct confine_policy *policy, struct err *err);
/* The result; the reason is in policy->view_failure when they cannot. */
bool confine_has_view(struct confine_policy *policy);
/* Whether workers have users of their own. */
bool confine_has_users(const struct confine_policy *policy);

/* A path that the worker may read. */
struct confine_path {
        const char *path;
        const char *copy; /* shown in its place; NULL: it is shown itself */
};

struct confinement {
        const char *program;              /* real path of the interpreter, or the worker itself */
        const char *entry;                /* its argument; NULL: the program is the worker itself */
        const char *private_dir;          /* may be written */
        const struct confine_path *reads; /* ends with one without a path */
        uid_t uid;                        /* 0: the daemon's */
        bool offline;                     /* without network */
};

/* The command line of the trampoline, after confine_try_view(). `probes`: try what can be reached
 * instead of running the program; NULL, or its NULL-terminated arguments (confine_probe.c). */
const char *const *confine_argv(struct confine_policy *policy, const struct confinement *c,
                                const char *const *probes, struct arena *arena);

/* Whether this process was started as the trampoline. */
bool confine_is_trampoline(const char *argv0);
/* main() of the trampoline: 126 or 127 when the worker could not be started, with a line on
 * standard error. */
int confine_main(int argc, char **argv);

/* The version of Landlock that the kernel offers; 0: none. */
int confine_landlock_version(void);
