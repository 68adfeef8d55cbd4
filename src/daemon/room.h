/* Room on the disk for closing: giving something up, recording an end and refusing a run have to
 * work on a full disk too.
 *
 * Every commit goes to SQLite's write-ahead log, whose file is used again from its beginning once
 * its pages are in the database. While the daemon runs, that file has blocks of its own for what it
 * usually takes and disk_reserve_mb more, so that a commit needs no new ones. The database has
 * blocks past its end for pages that are only in the log yet, and pages that hold nothing
 * (store/disk_reserve.h): when the disk is full they go to the writers that need one, so that the
 * database does not grow any more. Requests that are not needed for closing are refused before they
 * use any of this (api/call.c).
 *
 * SQLite removes the log when it is closed. Then its room is kept as a file `<database>-reserve` of
 * zeros, which becomes the log of the next start: a log without a header is an empty one. A little
 * of it is given back at that moment, for SQLite's index of the log.
 *
 * Where there is no room for it, or the file system knows no reservations, the daemon runs without.
 *
 * One thread at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

struct room {
        const char *database; /* path; NULL: on another machine, or no room is to be kept */
        const char *data_dir;
        int64_t bytes; /* of the log */
        int64_t more;  /* of that, past what it usually takes; and of the database */
        /* Of the database. Closed only after SQLite has closed it: closing any descriptor of a file
         * ends all locks that the process has on it. -1: none. */
        int fd;
        bool warned;
};

/* Before the database is opened. */
void room_open(struct room *room, const char *data_dir, const char *database, int64_t mb);
/* While it is open, again and again: room may have gone, or come back. */
void room_hold(struct op *op, struct room *room, struct store *store);
/* When it is closed. */
void room_close(struct room *room);
