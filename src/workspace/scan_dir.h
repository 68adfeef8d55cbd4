/* A directory that is being walked: its descriptor, which the threads that still read files in it
 * share, and its names in order. As scan.h. */
#pragma once

#include "workspace/scan_internal.h"

struct dir;

/* Opens dir/name, a single name. SEEN_DIR with a directory; SEEN_NOTHING, or SEEN_UNKNOWN when it
 * cannot be opened. */
int dir_open(const struct owner *owner, int at, const char *name, struct dir **ret,
             enum seen *ret_seen, struct err *err);
struct dir *dir_ref(struct dir *d);
void dir_unref(struct dir *d); /* NULL is fine */
int dir_fd(const struct dir *d);

/* Reads and sorts the names; more than `limit` is ERR_TOO_LARGE. 1, or 0 when it cannot be read. */
int dir_read(struct dir *d, uint64_t limit, struct err *err);
/* The next name; NULL at the end. Valid as long as the directory. */
const char *dir_next(struct dir *d);

/* A directory that is open already. */
struct dir *dir_new(int take_fd);
