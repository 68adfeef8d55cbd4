/* Programs of this machine that a command asks: what they print, and how they ended. One thread. */
#pragma once

#include "base/buf.h"

/* Run a program, found in PATH unless its name has a slash, with nothing to read, and append what
 * it prints to `stream` (STDOUT_FILENO, STDERR_FILENO). *ret_status is that of waitpid(), 127 << 8
 * when it could not be started. Returns 0 or an errno value. */
int child_capture(const char *program, const char *const *argv, int stream, struct buf *out,
                  int *ret_status);
