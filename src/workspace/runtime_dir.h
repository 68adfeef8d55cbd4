/* `.paperclip-runtime`: what we keep beside the work. The agent may write to it, so from there on a
 * path is opened without following a link. Any thread. */
#pragma once

#include "base/err.h"

#define RUNTIME_DIR ".paperclip-runtime"

/* Where in an absolute path the first such part begins, at its slash; NULL: it has none. */
const char *runtime_dir_in(const char *path);

/* Whether the one at this slash lies in the work, and does not have the work in it (an ssh host's
 * `runs`): then a `.gitignore` in it keeps all of it out of what is committed there. */
bool runtime_dir_is_within(const char *at);

/* Open a directory, anywhere; `make`: with its parents, and that `.gitignore`. ERR_FORBIDDEN: a
 * link is in the way, which the error names. ERR_NOT_FOUND: it is not there. */
int runtime_dir_open(const char *path, bool make, int *ret_fd, struct err *err);
