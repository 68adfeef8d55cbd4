/* Between the files of the host's end: running berth-box for its word, and telling processes apart.
 * Operation threads. */
#ifndef BERTH_BOX_LAUNCH_SPAWN_H
#define BERTH_BOX_LAUNCH_SPAWN_H

#include "base/buf.h"
#include "rt/op.h"

/* Run it with standard input from fd_in (-1: nothing) and collect what it says until it ends. On
 * failure it is dead. */
int launch_spawn(struct op *op, const char *program, const char *const *argv, int fd_in,
                 struct buf *word, struct err *err);

/* From a file /proc/<pid>/stat: when the process was started, in clock ticks since boot; 0 when it
 * is gone. */
unsigned long long launch_start_time(const char *stat_path);

/* What the program said when it refused: the text after "error ", up to the end of the line, behind
 * `what`. Transient when it says so (BOX_NOT_NOW). Returns code. */
int launch_refused(const char *word, int code, const char *what, struct err *err);

#endif
