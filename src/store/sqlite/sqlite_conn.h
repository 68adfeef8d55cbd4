/* One SQLite connection with its prepared statements, as a struct db. One thread at a time. */
#pragma once

#include <sqlite3.h>
#include <stdatomic.h>

#include "store/db.h"

struct sqlite_conn;

/* What connections have met. */
struct sqlite_health {
        _Atomic bool failing; /* the file could not be used */
        _Atomic bool damaged; /* SQLite says that the file is damaged */
};

/* Opens (and creates) the file with write-ahead log, full durability and foreign keys. `health`
 * outlives the connection; NULL: nothing is noted. */
int sqlite_conn_open(const char *path, bool writer, struct sqlite_health *health,
                     struct sqlite_conn **ret, struct err *err);
void sqlite_conn_close(struct sqlite_conn *c);
struct db *sqlite_conn_db(struct sqlite_conn *c);
struct sqlite_conn *sqlite_conn_of(struct db *db);
sqlite3 *sqlite_conn_handle(struct sqlite_conn *c);

/* BEGIN, COMMIT and the like; never cached by address. */
int sqlite_conn_run(struct sqlite_conn *c, const char *sql, struct err *err);

/* False once SQLite has given the transaction up by itself, as it does on some errors. */
bool sqlite_conn_in_transaction(struct sqlite_conn *c);

/* Turn SQLite's result code into one of ours, with a text that says what to do. */
int sqlite_error(sqlite3 *handle, int code, struct err *err);
