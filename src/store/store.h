/* The store: durable rows, read and written in transactions.
 *
 * A read transaction is a scoped value: one consistent snapshot, on the calling thread, from
 * store_read_begin() to the end of the scope. It should not last: while it does, the log of the
 * database cannot be made shorter.
 *
 *     CLEAN(store_read_end) struct db *db = NULL;
 *     int r = store_read_begin(op, store, &db, err);
 *
 *     if (r >= 0)
 *             r = leases_get(db, id, op->arena, &lease, err);
 *
 * A write may be repeated, so it is a function: store_write() runs it in a transaction of its own
 * and returns when that is durable; several writes that wait at the same time share one commit, and
 * a function that fails undoes only its own changes. A write function may run on another thread
 * while its caller waits, so it touches nothing but its argument, the caller's arena and the
 * database. It must not wait for anything.
 *
 * A function is run once more when the database asks for it: two transactions were in each other's
 * way, or the server was lost. So it reads nothing from its argument that it has written there
 * itself; where it has to, db_keep() puts the memory back. It has no effect but on the database,
 * and what it wrote through its argument counts only when store_write() returned 0 or more. The
 * test build runs each function twice with BERTH_TEST_REPEAT_WRITES=1.
 *
 * Any thread. */
#pragma once

#include "rt/op.h"
#include "store/db.h"

struct store;

typedef int (*store_fn)(struct db *db, void *arg, struct err *err);

/* What a back end provides; store.c picks one by the URL's scheme. */
struct store_ops {
        void (*close)(struct store *s);
        int (*read_begin)(const struct op *op, struct store *s, struct db **ret, struct err *err);
        void (*read_end)(struct store *s, struct db *db);
        int (*write)(const struct op *op, struct store *s, store_fn fn, void *arg, struct err *err);
        bool (*healthy)(struct store *s);
        bool (*is_checked)(struct store *s);
        bool (*is_damaged)(struct store *s);
        int (*scrub)(const struct op *op, struct store *s, struct err *err);
};

/* The listener that hears what transactions announced (db_announce()). Called right after the
 * commit, by the thread that made it and before the writers go on: it must not wait. take_payload's
 * reference is taken. */
typedef void (*store_listener)(void *ctx, const char *company_id, const char *type,
                               json_t *take_payload);

struct store {
        const struct store_ops *ops;
        store_listener listener;
        void *listener_ctx;
};

/* Whether the URL names a database on a server; otherwise it is a path (SQLite). */
bool store_is_on_server(const char *url);
/* Open and bring the tables up to date. ERR_VERSION: written by a newer Berth; ERR_CORRUPT: not a
 * database or damaged; ERR_LOCKED: another daemon uses it; ERR_BUSY: the server cannot be reached.
 */
int store_open(const char *url, struct store **ret, struct err *err);
void store_close(struct store *s);

/* Begin to read. *ret is valid on this thread until store_read_end(). */
int store_read_begin(const struct op *op, struct store *s, struct db **ret, struct err *err);
void store_read_end(struct db **db); /* for CLEAN(); empties *db */
int store_write(const struct op *op, struct store *s, store_fn fn, void *arg, struct err *err);

/* Once, before other threads write. NULL: there is no listener any more; then no thread may write
 * any more either. */
void store_listen(struct store *s, store_listener fn, void *ctx);

/* Whether the last use of the database worked, and no damage has been met. Never blocks. */
bool store_healthy(struct store *s);

/* Whether the whole file was looked at when it was opened; a large one is not. */
bool store_is_checked(struct store *s);
/* Whether the back end said, in answer to anything, that the file is damaged. */
bool store_is_damaged(struct store *s);
/* Read the whole database and look for damage, beside everything else that goes on: ERR_CORRUPT
 * with what was found first. Takes long. Damage is known from then on until a check finds none. */
int store_scrub(const struct op *op, struct store *s, struct err *err);
