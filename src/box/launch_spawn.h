/* Between the files of the host's end: running berth-box for its word, and telling processes apart.
 * Operation threads. */
#pragma once

#include "base/buf.h"
#include "base/life.h"
#include "rt/op.h"

/* Run it with standard input from fd_in (-1: nothing) and collect what it says until it ends. On
 * failure it is dead; a box that it was making may live, and has `lock_fd` (a box's lock, or 0) as
 * long as it does. */
int launch_spawn(struct op *op, const char *program, const char *const *argv, int fd_in,
                 int lock_fd, struct buf *word, struct err *err);

/* The process that the file `pid` in a box's directory names: 1 when it lives, 0 when it is gone or
 * the file names none, or an error when that cannot be known now. */
int launch_noted_process(const char *dir, pid_t *ret_pid, struct err *err);
