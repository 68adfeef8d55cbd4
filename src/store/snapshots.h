/* Rows of `snapshots`: writable layers of sandboxes, kept under a name. */
#pragma once

#include "store/db.h"

#define SNAPSHOT_MAKING   "making"
#define SNAPSHOT_READY    "ready"
#define SNAPSHOT_DELETING "deleting"

struct snapshot {
        const char *id, *company_id, *name, *state;
        const char *parent_id; /* the layer below it; NULL: none */
        const char *rootfs;    /* what all of them lie on; both NULL: the host's programs */
        const char *image_id;
        const char *place_id, *lease_id;
        int64_t first_id;    /* the host id that root of the sandbox had */
        const char *fork_by; /* what forks stand on: how it was made; NULL: a snapshot */
        bool is_whole;       /* ... its workspace and /tmp do not stand on the parent's */
        int64_t bytes;
        const char *owner_instance;
        int64_t created_at, updated_at;
};

extern const struct row_type snapshot_table;

typedef int (*snapshot_fn)(void *ctx, const struct snapshot *row);

/* ERR_CONFLICT when the name is taken. */
ROW_BASICS(snapshots, struct snapshot, snapshot_table) /* snapshots_insert(), snapshots_get() */
int snapshots_by_name(struct db *db, const char *company_id, const char *name, struct arena *arena,
                      struct snapshot *ret, struct err *err);
/* From one state to another, with size and owner of *to. 1, or 0 when it is in another state. */
int snapshots_move(struct db *db, const char *id, const char *from, const struct snapshot *to,
                   struct err *err);
int snapshots_delete(struct db *db, const char *id, const char *state, struct err *err);
/* Snapshots, newest first; at most `limit` rows, after the one whose created_at and id are given
 * (0, NULL: from the start). */
int snapshots_list(struct db *db, const char *company_id, int64_t before_us, const char *before_id,
                   int64_t limit, struct arena *arena, snapshot_fn fn, void *ctx, struct err *err);
/* What forks stood on, and nothing does any more. */
int snapshots_unused(struct db *db, struct arena *arena, struct snapshot **ret, struct err *err);
/* Those that are being made or deleted. */
int snapshots_open(struct db *db, struct arena *arena, struct snapshot **ret, struct err *err);
/* How many living places and other snapshots stand on it. */
int snapshots_count_users(struct db *db, const char *id, int64_t *ret, struct err *err);
