/* Inside berth-box: what a sandbox is made of. One process, the launcher, stays outside and
 * prepares what needs the host's rights; the other is cloned into the namespaces and becomes PID 1.
 *
 *   sandbox.c  the launcher, PID 1's way from clone to the loop, and their handshake
 *   userns.c   user namespaces and the users in them
 *   limits.c   cgroups of the box as a whole, resource limits
 *   root.c     the root: mounts, devices, processes, workspace, and changing to it
 *   etc.c      its /etc
 *   layers.c   trees of the host that go into it: grabbed outside where that needs root
 *   privs.c    the rights that PID 1 keeps and those that a command has
 *   seccomp.c  the system calls that a command does not have
 *   workspace.c a directory of the host shown in it later on
 *   check.c    whether all that works on this machine
 *
 * Crash safety: until PID 1 has said that it is ready it dies with the launcher. Before anything
 * outlives a process (a cgroup), its name is in DIR, so that box_bury() finds it. */
#pragma once

#include "berth-box/box.h"
#include "box/sandbox_spec.h"

#define V1_CONTROLLERS 3
#define LIMIT_MEMORY   0 /* among them */

/* Detached mounts, or -1. */
struct trees {
        int base[SANDBOX_MAX_BASE];
        int layers[SANDBOX_MAX_LAYERS];
        int storage;
        int workspace;
        uint32_t workspace_uid, workspace_gid; /* of the host */
};

struct sandbox {
        struct sandbox_spec spec;
        char *store; /* the spec's strings */
        struct sandbox_report report;
        struct trees trees;
        bool rootless;
        bool cgroup_split; /* box::cgroup_fd is `commands` in the box's own, see limits.c */
        int output_fd;
        int cgroup_fd;              /* the box's own of version 2 */
        int v1_fds[V1_CONTROLLERS]; /* `tasks` of those of version 1 */
        pid_t pid;                  /* of PID 1, on the host */
        int64_t wall_until;
};

/* sandbox.c: the whole life of `berth-box --sandbox`; the launcher's exit status. */
int sandbox_main(struct box *b);
/* Run again from a sealed copy in memory, unless that is where we are. The program of a daemon that
 * is not root belongs to a user that inner root stands above; a sealed copy cannot be written to at
 * all. */
void sandbox_seal_program(char **argv);

/* userns.c */
/* Map the range into the namespace of `pid`; as root by itself, otherwise by newuidmap. */
int userns_map(const struct sandbox *s, pid_t pid, struct err *err);
/* A namespace that shows `n` ids from `from` on as those from `to` on. */
struct idmap {
        uint32_t from_uid, from_gid, to, n;
};
int userns_for_idmap(const struct idmap *map, int *ret_fd, struct err *err);

/* limits.c */
int limits_make(struct box *b, struct err *err);     /* the launcher, before clone */
int limits_go_ahead(struct box *b, struct err *err); /* the launcher itself, right before it */
int limits_join(struct box *b, pid_t pid, bool joined_v2, struct err *err); /* after it */
int limits_enter(const struct box *b);    /* a command or a file worker: where memory is limited */
void limits_command(const struct box *b); /* a command or a file worker, before exec */

/* layers.c */
void trees_init(struct trees *t);
int trees_grab(struct sandbox *s, struct err *err);
int trees_show_owners(struct sandbox *s, struct err *err); /* the launcher, as root */
/* A detached overlay of attached layers, the uppermost first. */
struct overlay {
        const char *source; /* NULL: "overlay" */
        int lower[SANDBOX_MAX_LAYERS + SANDBOX_MAX_BASE];
        /* The directory in it; NULL: itself. */
        const char *lower_part[SANDBOX_MAX_LAYERS + SANDBOX_MAX_BASE];
        size_t n_lower;
        int upper_dir; /* a directory with the next two */
        const char *upper, *work;
};
int overlay_make(const struct overlay *o, struct err *err);

/* root.c, in PID 1 */
int root_build(struct box *b, struct err *err);

/* etc.c, in the new root as working directory */
int etc_build(const struct box *b, struct err *err);
int etc_amend(const struct box *b, struct err *err); /* of a base */
int etc_write(const char *path, const char *text);

/* privs.c */
int privs_become_supervisor(const struct sandbox *s, struct err *err);
int privs_drop(const struct sandbox_spec *spec, struct err *err); /* PID 1, once it is built */
int privs_for_command(const struct sandbox *s);                   /* a command, before exec */

/* seccomp.c */
int seccomp_install(const struct sandbox *s);
