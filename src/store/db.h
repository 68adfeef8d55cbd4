/* One database connection in the hands of a transaction, the same for every back end.
 *
 * SQL is written once, in the dialect that SQLite and PostgreSQL share: numbered parameters ?1, ?2
 * … (PostgreSQL's back end turns them into $1, $2), TEXT and BIGINT only, ON CONFLICT, RETURNING,
 * partial indexes; CAST(?n AS TEXT) where a parameter may be NULL and has no other hint of its
 * type. SQL texts are string literals: a connection keeps its prepared statements by their address.
 * Whole rows are read and written by their tables of columns (row.h).
 *
 *     CLEAN(stmt_end) struct stmt *s = NULL;
 *     r = db_query(db, "SELECT name FROM environments WHERE id = ?1", DB_ARGS(DB_T(id)), &s, err);
 *     if (r < 0) return r;
 *     while ((r = stmt_step(s, err)) > 0)
 *             names[n++] = stmt_text(s, 0, arena);
 *
 * A struct db is valid on the thread that has it, between store_read_begin() and store_read_end()
 * or inside the function that store_write() calls. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "codec/json.h"

struct announcement;
struct db;
struct embedded_file;
struct kept;
struct row_type;
struct store;
struct stmt;

enum db_arg_type { DB_ARG_NULL, DB_ARG_TEXT, DB_ARG_INT };

struct db_arg {
        enum db_arg_type type;
        const char *text;
        int64_t number;
};

static inline struct db_arg DB_T(const char *text) /* NULL binds NULL */
{
        return (struct db_arg){ text ? DB_ARG_TEXT : DB_ARG_NULL, text, 0 };
}

static inline struct db_arg
DB_I(int64_t number) {
        return (struct db_arg){ DB_ARG_INT, NULL, number };
}

static inline struct db_arg
DB_TIME(int64_t us) /* 0 binds NULL */
{
        return (struct db_arg){ us ? DB_ARG_INT : DB_ARG_NULL, NULL, us };
}

#define DB_ARGS(...)                                                                               \
        (const struct db_arg[]){ __VA_ARGS__ },                                                    \
                (sizeof((const struct db_arg[]){ __VA_ARGS__ }) / sizeof(struct db_arg))
#define DB_NO_ARGS        NULL, 0
#define DB_ARRAY(args, n) args, n

/* How a back end tells what tables it has, for copying all of them (copy.h). */
struct db_catalog {
        const char *tables, *columns; /* queries for names; columns of the table ?1 */
        const char *defer, *settle;   /* scripts: references between rows are not looked at; are */
        bool has_cursors;             /* an answer is read whole */
};

/* What a back end provides. */
struct db_ops {
        /* With a type, `sql` is a text of row.h; statements are kept by both their addresses. */
        int (*query)(struct db *db, const struct row_type *type, const char *sql,
                     const struct db_arg *args, size_t n_args, struct stmt **ret, struct err *err);
        int (*step)(struct stmt *s, struct err *err);
        bool (*is_null)(struct stmt *s, int column);
        const char *(*text)(struct stmt *s, int column, size_t *ret_len);
        int64_t (*number)(struct stmt *s, int column);
        void (*end)(struct stmt *s);
        int64_t (*changes)(struct db *db);
        int (*script)(struct db *db, const char *sql, struct err *err);
        /* Migrations whose text is another here, under the same names; NULL: none. */
        const struct embedded_file *own_migrations;
        const struct db_catalog *catalog;
};

struct db {
        const struct db_ops *ops;
        struct store *reads;                                   /* the store that it reads from */
        struct announcement *first_announced, *last_announced; /* announce.h */
        struct kept *kept;                                     /* the same */
};

struct stmt {
        const struct db_ops *ops;
};

/* Start a query; parameters are borrowed until stmt_end(). */
int db_query(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
             struct stmt **ret, struct err *err);
/* Run a statement that gives no rows; returns how many rows it changed. A broken constraint is
 * ERR_CONFLICT. */
int db_exec(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
            struct err *err);
/* The same for a text of row.h. */
int db_run(struct db *db, const struct row_type *type, const char *sql, const struct db_arg *args,
           size_t n_args, struct err *err);
/* Run a query for one number; ERR_NOT_FOUND when it gives no row. */
int db_number(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
              int64_t *ret, struct err *err);
/* Run a query for one text: 1, or 0 and NULL when it gives no row. */
int db_text(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
            struct arena *arena, const char **ret, struct err *err);
/* Call fn for the rows of a query, each one text, or a text and a number, until it returns an
 * error. */
int db_texts(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
             struct arena *arena, int (*fn)(void *ctx, const char *text), void *ctx,
             struct err *err);
int db_counts(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
              struct arena *arena, int (*fn)(void *ctx, const char *text, int64_t n), void *ctx,
              struct err *err);
/* Several statements, for migrations. */
int db_script(struct db *db, const char *sql, struct err *err);

/* Insert a row by its table of columns (row.h), and get one by its `id`: ERR_NOT_FOUND with the
 * text of the type when there is none. */
int row_insert(struct db *db, const struct row_type *type, const void *row, struct err *err);
int row_by_id(struct db *db, const struct row_type *type, const char *id, struct arena *arena,
              void *ret, struct err *err);

/* Both for one table, with its own names and its own struct: things_insert() and things_get(). */
#define ROW_BASICS(things, thing, table)                                                           \
        static inline int things##_insert(struct db *db, const thing *row, struct err *err)        \
        {                                                                                          \
                return row_insert(db, &(table), row, err);                                         \
        }                                                                                          \
        static inline int things##_get(struct db *db, const char *id, struct arena *arena,         \
                                       thing *ret, struct err *err)                                \
        {                                                                                          \
                return row_by_id(db, &(table), id, arena, ret, err);                               \
        }

/* Inside store_write(): once this is committed, and only then, tell the listener of the store
 * (store_listen()) that something of `type` happened in the company. In the order of the commits.
 * `type` is a literal. take_payload is an object; its reference is taken. */
void db_announce(struct db *db, const char *company_id, const char *type, json_t *take_payload);

/* Inside store_write(), before memory of the argument is changed that the function also reads: it
 * is put back when the transaction is undone, so that the function can be run once more. `at` lives
 * as long as the caller of store_write() waits. */
void db_keep(struct db *db, void *at, size_t size);

/* 1: a row, 0: no more, or an error. */
int stmt_step(struct stmt *s, struct err *err);
bool stmt_is_null(struct stmt *s, int column);
const char *stmt_text(struct stmt *s, int column, struct arena *arena); /* a copy; NULL for NULL */
int64_t stmt_number(struct stmt *s, int column);                        /* 0 for NULL */
void stmt_end(struct stmt **s);                                         /* for CLEAN() */
