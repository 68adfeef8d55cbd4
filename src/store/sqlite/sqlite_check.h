/* Looking for damage in a SQLite file, and copying one: by a daemon that uses it, and by a command
 * beside the daemon. Blocking; any thread. */
#pragma once

#include "rt/op.h"
#include "store/sqlite/sqlite_conn.h"

/* What a check found, in SQLite's words or ours. */
typedef void (*sqlite_finding_fn)(void *ctx, const char *text);

/* A quick check of a file that is small enough to be read through at every start; *ret_checked says
 * whether it was. ERR_CORRUPT with the first finding. */
int sqlite_check_small(struct sqlite_conn *c, bool *ret_checked, struct err *err);

/* Structure, indexes and constraints of one table after the other, with a rest after each, so that
 * the log does not grow for long and other work does not wait for the disk. ERR_CORRUPT with the
 * first finding; the operation's end otherwise. */
int sqlite_check_tables(const char *path, const struct op *op, struct err *err);

/* Everything that SQLite can say about the file; then, about references between rows. The number of
 * findings. */
int sqlite_check_all(struct sqlite_conn *c, sqlite_finding_fn fn, void *ctx, struct err *err);
int sqlite_check_references(struct sqlite_conn *c, sqlite_finding_fn fn, void *ctx,
                            struct err *err);

/* Copy the database as it is at one moment into a new file, while others read and write it. The
 * copy is synced and complete when this returns 0. */
int sqlite_copy(struct sqlite_conn *from, const char *to, struct err *err);
