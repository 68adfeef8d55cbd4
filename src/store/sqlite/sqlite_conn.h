/* One SQLite connection with its prepared statements, as a struct db. One thread at a time. */
#ifndef BERTH_STORE_SQLITE_CONN_H
#define BERTH_STORE_SQLITE_CONN_H

#include <sqlite3.h>

#include "store/db.h"

struct sqlite_conn;

/* Opens (and creates) the file with write-ahead log, full durability and foreign keys. */
int sqlite_conn_open(const char *path, bool writer, struct sqlite_conn **ret, struct err *err);
void sqlite_conn_close(struct sqlite_conn *c);
struct db *sqlite_conn_db(struct sqlite_conn *c);

/* BEGIN, COMMIT and the like; never cached by address. */
int sqlite_conn_run(struct sqlite_conn *c, const char *sql, struct err *err);

/* False when SQLite ended the transaction by itself, as it may when the disk is full. */
bool sqlite_conn_in_transaction(struct sqlite_conn *c);

/* Turn SQLite's result code into one of ours, with a text that says what to do. */
int sqlite_error(sqlite3 *handle, int code, struct err *err);

#endif
