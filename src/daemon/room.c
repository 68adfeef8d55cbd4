/* How much disk space is kept for closing, and when it is given up. */
#define _GNU_SOURCE
#include "daemon/room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/util.h"
#include "core/runtime.h"
#include "store/disk_reserve.h"

#define MIB ((int64_t)1 << 20)
/* What the log takes anyway: it is emptied from 2,000 pages on (store/sqlite/sqlite_conn.c), and
 * cut to 16 MiB then, which is why the reserve has an upper limit. */
#define USUAL (9 * MIB)
/* For SQLite's index, the socket, and what else a start makes. */
#define SPARE ((int64_t)256 << 10)
/* The room that is left over when something is kept. */
#define AMPLE (2 * MIB)

static int64_t size_of(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
}

static int64_t free_bytes(const char *path)
{
        struct statvfs fs;

        return statvfs(path, &fs) < 0 ? -1 : (int64_t)(fs.f_bavail * fs.f_frsize);
}

void room_open(struct room *room, const char *data_dir, const char *database, int64_t mb)
{
        CLEAN(cleanup_free) char *kept = xasprintf("%s-reserve", database);
        CLEAN(cleanup_free) char *log = xasprintf("%s-wal", database);
        bool is_kept = mb > 0 && !store_is_on_server(database);

        *room = (struct room){ .database = is_kept ? database : NULL,
                               .data_dir = data_dir,
                               .bytes = USUAL + mb * MIB,
                               .more = mb * MIB,
                               .fd = -1 };
        if (access(kept, F_OK) < 0)
                return;
        /* A database that is missing or empty is none whose log this could be. */
        if (!is_kept || access(log, F_OK) == 0 || size_of(database) == 0 ||
            truncate(kept, MAX(size_of(kept) - SPARE, INT64_C(0))) < 0 || rename(kept, log) < 0)
                (void)unlink(kept);
}

/* Blocks up to `end`, whatever the length of the file is. A reservation that does not fit would
 * take all there is before it fails. */
static int reserve_blocks(const struct room *room, int fd, int64_t end)
{
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return -1;
        if (st.st_blocks * 512 >= end)
                return 0;
        errno = ENOSPC;
        if (free_bytes(room->database) < end - st.st_blocks * 512 + AMPLE)
                return -1;
        return fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, end);
}

/* SQLite cuts the database to its length whenever all of the log is in it. */
static int hold_files(struct room *room)
{
        CLEAN(cleanup_free) char *log = xasprintf("%s-wal", room->database);
        CLEAN(cleanup_fd) int fd = open(log, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        struct stat st;

        if (room->fd < 0)
                room->fd = open(room->database, O_RDWR | O_CLOEXEC | O_NOCTTY);
        if (reserve_blocks(room, fd, room->bytes) < 0 || room->fd < 0 || fstat(room->fd, &st) < 0)
                return -1;
        return reserve_blocks(room, room->fd, st.st_size + room->more);
}

static int change_pages(struct db *db, void *arg, struct err *err)
{
        return *(bool *)arg ? disk_reserve_give(db, err) : disk_reserve_keep(db, err);
}

void room_hold(struct op *op, struct room *room, struct store *store)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int64_t left = free_bytes(room->data_dir);
        bool is_full = left >= 0 && left < (int64_t)DISK_FULL_BYTES, is_kept = false;

        if (!room->database)
                return;
        if (hold_files(room) == 0) {
                room->warned = false;
        } else if (!room->warned) {
                log_warn("no room can be kept for giving things up on a full disk",
                         LOG_S("database", room->database), LOG_S("error", strerror(errno)));
                room->warned = true;
        }
        int r = store_read_begin(op, store, &db, NULL);
        if (r >= 0)
                r = disk_reserve_is_kept(db, &is_kept, NULL);
        store_read_end(&db);
        if (r < 0 || (is_full ? !is_kept : is_kept || left < AMPLE))
                return;
        (void)store_write(op, store, change_pages, &is_full, NULL);
}

void room_close(struct room *room)
{
        CLEAN(cleanup_free) char *kept = NULL;
        CLEAN(cleanup_fd) int fd = -1;

        if (!room->database)
                return;
        cleanup_fd(&room->fd);
        room->fd = -1;
        if (size_of(room->database) == 0)
                return;
        kept = xasprintf("%s-reserve", room->database);
        fd = open(kept, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return;
        /* The room that the last start gave back may be taken by now. */
        for (int64_t size = room->bytes; size > SPARE; size -= SPARE)
                if (fallocate(fd, 0, 0, size) == 0 || errno == EOPNOTSUPP || ftruncate(fd, 0) < 0)
                        break;
        if (size_of(kept) == 0)
                (void)unlink(kept);
}
