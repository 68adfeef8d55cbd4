/* What belongs to the daemon itself: the data directory with the socket, the database, the files
 * with keys, the directory of plugins (settings.own_paths). None of it is ever part of a workspace,
 * of what is restored or salvaged, of a sandbox's root, or read as an agent's instructions.
 *
 * It is told by identity, never by name: device and inode of what was opened, compared on the way
 * up from both sides, and the place within the file system, which a bind mount elsewhere does not
 * change. So it makes no difference by which link, mount or spelling a directory was named.
 *
 * Blocking; any thread. */
#ifndef BERTH_CORE_OWN_FILES_H
#define BERTH_CORE_OWN_FILES_H

#include "base/arena.h"
#include "core/runtime.h"
#include "workspace/scan.h"

/* 0 when the directory `fd` neither is, nor contains, nor lies in what is the daemon's own;
 * ERR_UNPROCESSABLE, with `path` in its text, otherwise, and when that cannot be told. */
int own_files_check(const struct runtime *rt, int fd, const char *path, struct err *err);
/* The same but for what lies in `allowed`, a directory of ours, or NULL. */
int own_files_check_but(const struct runtime *rt, int fd, const char *path, const char *allowed,
                        struct err *err);
/* The same for a file: it does not lie there, and is no other name of one that does. */
int own_files_check_file(const struct runtime *rt, int fd, const char *path, struct err *err);

/* For walks through a tree: the identities of all of it. In the arena. */
const struct tree_ids *own_files_ids(const struct runtime *rt, struct arena *arena);

#endif
