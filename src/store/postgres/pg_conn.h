/* One connection to PostgreSQL with its prepared statements, as a struct db. One thread at a time.
 *
 * Commands whose answer nobody needs (BEGIN, SAVEPOINT …) are kept back and travel with the next
 * statement, so a statement is one round trip whatever stands before it. A result is read whole
 * before the next statement is sent.
 *
 * PostgreSQL gives a transaction up at its first error, SQLite does not. A write function may go on
 * after a refused insert, so `careful` puts each writing statement into a savepoint of its own; it
 * costs, and the store turns it on only for a function that showed that it needs it. */
#pragma once

#include "rt/op.h"
#include "store/db.h"

struct pg_conn;

/* What a connection has met since pg_conn_begin(). */
struct pg_state {
        bool is_lost;       /* the server, or the way to it */
        bool must_repeat;   /* two transactions were in each other's way: run the whole once more */
        bool is_given_up;   /* by the server, at an error */
        bool needs_care;    /* the function went on after the error */
        bool has_written;   /* some row */
        bool commit_is_out; /* COMMIT was sent and its answer has not come */
};

/* Connect, and set the session up. ERR_BUSY: the server cannot be reached now; ERR_IO: the database
 * is not what it has to be. `name` is the application's. Blocking, for a limited time. */
int pg_conn_open(const char *url, const char *name, struct pg_conn **ret, struct err *err);
void pg_conn_close(struct pg_conn *c);
struct db *pg_conn_db(struct pg_conn *c);
struct pg_conn *pg_conn_of(struct db *db);
struct pg_state *pg_conn_state(struct pg_conn *c);
/* False: the server has closed it meanwhile. Never blocks. */
bool pg_conn_is_alive(struct pg_conn *c);

/* How long the answers of the transaction are waited for. NULL: the store's own limit. */
void pg_conn_limit(struct pg_conn *c, const struct op *op);
void pg_conn_careful(struct pg_conn *c, bool careful);

/* `sql` is a literal: sent with the next statement. Begin empties the state. */
void pg_conn_begin(struct pg_conn *c, const char *sql);
void pg_conn_keep_back(struct pg_conn *c, const char *sql);
/* Commit: `mark_sql` with `mark`, a number, travels along. 0, or why it failed or may have failed
 * (state.commit_is_out). */
int pg_conn_commit(struct pg_conn *c, const char *mark_sql, int64_t mark, struct err *err);
/* End the transaction without waiting for the answer. */
void pg_conn_roll_back(struct pg_conn *c);

/* ERR_INVALID: libpq cannot read the URL. */
int pg_url_check(const char *url, struct err *err);
