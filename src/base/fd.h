/* Descriptors and whole files. Everything opened here is close-on-exec. Any thread. */
#pragma once

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/life.h"

/* For CLEAN(); leaves errno alone. */
void cleanup_fd(int *fd);

/* Write everything, going on after short writes and EINTR. Blocking descriptors only. */
int fd_write_all(int fd, const void *data, size_t len, struct err *err);

/* Append what one read() gives, at most `max` bytes: how many, 0 at the end, -1 with errno set.
 * ENOBUFS: the buffer has no room. */
ssize_t fd_read_some(int fd, struct buf *buf, size_t max);
/* Append everything up to the end; 0, or -1 with errno as above. Blocking descriptors only. */
int fd_read_to_end(int fd, struct buf *buf);
/* Send what the socket takes now, and drop that from buf. False with errno set when it takes
 * nothing any more. */
bool fd_send_some(int fd, struct buf *buf);
/* Let go of everything from `first` on. */
void fd_close_from(unsigned first);

/* Append the whole file to buf; more than `limit` bytes is ERR_TOO_LARGE. ENOENT is ERR_NOT_FOUND.
 * Where err is NULL, errno says why, except for ERR_TOO_LARGE. */
int file_read_at(int dirfd, const char *path, size_t limit, struct buf *buf, struct err *err);

/* Whether there is something under that name; a link counts as what it leads to. errno says why
 * not.
 */
enum life file_life_at(int dirfd, const char *path);
/* When this returns 0, the content of the file, or the names in the directory, survive a power
 * cut. */
int file_sync(int dirfd, const char *path, struct err *err);
/* The same for the directory that holds `path`, which need not be dirfd itself. */
int file_sync_parent(int dirfd, const char *path, struct err *err);
/* The path was removed, and a power cut does not bring it back when this returns 0. To be called
 * before the removal is recorded. A directory above it that is gone, too, is fine. */
int file_sync_removal(const char *path, struct err *err);

/* Replace the file by temporary file, fsync and rename, then fsync the directory: afterwards the
 * path holds the old content or the new one, whatever happens in between. */
int file_write_at(int dirfd, const char *path, const void *data, size_t len, mode_t mode,
                  struct err *err);
