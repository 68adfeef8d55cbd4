/* Between the files of the host's end: running berth-box for its word, and telling processes apart.
 * Operation threads. */
#ifndef BERTH_BOX_LAUNCH_SPAWN_H
#define BERTH_BOX_LAUNCH_SPAWN_H

#include "base/buf.h"
#include "base/life.h"
#include "rt/op.h"

/* Run it with standard input from fd_in (-1: nothing) and collect what it says until it ends. On
 * failure it is dead. */
int launch_spawn(struct op *op, const char *program, const char *const *argv, int fd_in,
                 struct buf *word, struct err *err);

/* The process that the file `pid` in a box's directory names: 1 when it lives, 0 when it is gone or
 * the file names none, or an error when that cannot be known now. */
int launch_noted_process(const char *dir, pid_t *ret_pid, struct err *err);

/* What the program said when it refused: the text after "error ", up to the end of the line, behind
 * `what`. Transient when it says so (BOX_NOT_NOW). Returns code. */
int launch_refused(const char *word, int code, const char *what, struct err *err);

#endif
