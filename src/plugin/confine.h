/* Confining a worker: what has to happen between fork and exec, without forking here. The host
 * starts our own program again under the name PLUGIN_TRAMPOLINE; that process gives up rights and
 * becomes the worker.
 *
 * Where the kernel has Landlock a worker may read its package, the interpreter, the system's
 * libraries, certificates and name service files, and write to its private directory; nothing else
 * of the file system. The network stays open, it is what workers are for. Everywhere: no new
 * privileges, no capabilities but for reading files, no core dumps, and the end of the daemon is
 * its end. */
#ifndef BERTH_PLUGIN_CONFINE_H
#define BERTH_PLUGIN_CONFINE_H

#include "base/arena.h"

#define PLUGIN_TRAMPOLINE "berth-worker"

struct confinement {
        const char *program;            /* real path of the interpreter, or of the worker itself */
        const char *entry;              /* its argument; NULL: none */
        const char *root;               /* may be read */
        const char *private_dir;        /* may be written */
        const char *const *extra_reads; /* may be NULL */
        bool landlock;
};

/* The command line of the trampoline. */
const char *const *confine_argv(const struct confinement *c, struct arena *arena);

/* Whether this process was started as the trampoline. */
bool confine_is_trampoline(const char *argv0);
/* main() of the trampoline: 126 or 127 when the worker could not be started, with a line on
 * standard error. */
int confine_main(int argc, char **argv);

/* The version of Landlock that the kernel offers; 0: none. */
int confine_landlock_version(void);

#endif
