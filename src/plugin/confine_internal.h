/* Inside the trampoline only. It is a process of one thread that is about to exec, and says what
 * goes wrong on standard error, which the host keeps. Functions return 0, or -1 once they have
 * complained. */
#pragma once

#include "plugin/confine.h"

#define SHOWN_MAX       400
#define LANDLOCK_SCOPES 6 /* the first version that keeps signals inside */

enum shown_how {
        SHOWN_READ,
        SHOWN_WRITE,  /* the private directory */
        SHOWN_DEVICE, /* may be written, and is a device */
        SHOWN_NEVER,  /* covered where something else would show it */
};

struct shown {
        const char *path;
        const char *copy; /* NULL: the path itself */
        enum shown_how how;
};

/* What the command line says. */
struct trampoline {
        pid_t parent;
        uid_t uid;    /* 0: the one that we have */
        int landlock; /* the version to use; 0: none */
        bool view, open_files /* nothing keeps it from any file */, check, probe;
        bool offline; /* no sockets at all */
        const char *private_dir;
        struct shown shown[SHOWN_MAX];
        size_t n_shown;
        char **program; /* NULL-terminated; the probes with `probe` */
};

int confine_complain(const char *what, const char *about);

/* confine_view.c */

/* Namespaces of users (unless we are root), processes and IPC; the processes forked from now on are
 * in them. */
int view_leave_host(void);
/* A namespace of mounts in which nothing is there but what is shown. In a process that was forked
 * after view_leave_host(). */
int view_enter(const struct trampoline *t);

/* confine_filter.c */
int filter_install(const struct trampoline *t);

/* confine_probe.c: main() in the place of the worker. */
int probe_main(const struct trampoline *t);
