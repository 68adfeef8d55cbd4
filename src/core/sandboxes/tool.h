/* Running programs of the system for work that they do better than our code: cp, rm, mkfs.
 * Operation threads. */
#pragma once

#include "base/buf.h"
#include "rt/op.h"

/* Run a program and wait; it is killed when the operation ends first. Its output is appended to
 * *ret_out, which may be NULL. ERR_PROVIDER "<what>: <its output>" when it fails. */
int run_tool(struct op *op, const char *path, const char *const *argv, const char *what,
             struct buf *ret_out, struct err *err);
