/* The row of `database_home`: where the database is at home and which node is its own; and what
 * happens to the record when it gets a new node. daemon/home.h decides when. */
#pragma once

#include "store/db.h"

struct home {
        const char *singleton_key; /* home_set() knows it */
        const char *node_id;
        const char *machine; /* digest of the machine's id; "": it has none */
        const char *boot_id;
        int64_t device, inode; /* of the data directory */
        int64_t taken_at;      /* when the node got its id */
};

extern const struct row_type home_table;

/* ERR_NOT_FOUND: no daemon that knows of homes has used the database. */
int home_get(struct db *db, struct arena *arena, struct home *ret, struct err *err);
int home_set(struct db *db, const struct home *row, struct err *err);
int home_forget(struct db *db, struct err *err);

/* Whether the record names anything that a node had under way: living places, open runs. */
int home_has_work(struct db *db, bool *ret, struct err *err);

/* The record gets a new node. Work that was under way belongs to the node before, which may be
 * alive beside us, so it ends here, in the record only: leases are `failed`, commands `lost`, runs
 * `failed` or `cancelled`. Places with something in the world become `uncertain` and keep their
 * owner: only an operator moves them from there (core/leases/leaks.h). Agents that a timer wakes
 * are paused. `reason` is written to all of them. */
int home_leave_work(struct db *db, const char *node_id, const char *reason, int64_t now_us,
                    struct err *err);
