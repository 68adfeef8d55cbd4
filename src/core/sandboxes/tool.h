/* Programs of the system that do what they do better than we would: cp, rm, mkfs.
 * Operation threads. */
#ifndef BERTH_CORE_TOOL_H
#define BERTH_CORE_TOOL_H

#include "base/buf.h"
#include "rt/op.h"

/* Run it and wait; it is killed when the operation ends first. What it printed is appended to
 * *ret_out, which may be NULL. ERR_PROVIDER "<what>: <what it said>" when it fails. */
int run_tool(struct op *op, const char *path, const char *const *argv, const char *what,
             struct buf *ret_out, struct err *err);

#endif
