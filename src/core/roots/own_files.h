/* The daemon's own files: the data directory with the socket, the database, the files with keys,
 * the directory of plugins (settings.own_paths). None of them is ever part of a workspace, of a
 * restore or a salvage, of a sandbox's root, or read as an agent's instructions.
 *
 * They are recognised by identity, never by name: device and inode of the opened file, compared on
 * the way up from both sides, and the position within the file system, which a bind mount elsewhere
 * does not change. So it makes no difference by which link, mount or spelling a directory was
 * named.
 *
 * Blocking; any thread. */
#pragma once

#include "base/arena.h"
#include "core/runtime.h"
#include "workspace/scan.h"

/* 0 when the directory `fd` is not one of the daemon's own, contains none and lies in none.
 * Otherwise, and when that cannot be determined, ERR_UNPROCESSABLE with `path` in its text. */
int own_files_check(const struct runtime *rt, int fd, const char *path, struct err *err);
/* The same, but anything in `allowed`, a directory of the daemon or NULL, is accepted. */
int own_files_check_but(const struct runtime *rt, int fd, const char *path, const char *allowed,
                        struct err *err);
/* The same for a file: it does not lie in such a directory, and is not another name of a file that
 * does. */
int own_files_check_file(const struct runtime *rt, int fd, const char *path, struct err *err);

/* For walks through a tree: the identities of all own files. In the arena. */
const struct tree_ids *own_files_ids(const struct runtime *rt, struct arena *arena);
