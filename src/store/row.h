/* A row is described once: a table of columns says where each is in the row's struct, how it is
 * stored and what it is called in JSON. Loading, inserting and updating follow from it here, and
 * encoding in api/encode.c.
 *
 *     static const struct column columns[] = {
 *             TEXT(struct project, id, "id", FIXED),
 *             DOCUMENT(struct project, env, "env"),
 *             TIME(struct project, updated_at, "updatedAt"),
 *     };
 *     const struct row_type project_table = ROW_TYPE("projects", struct project, columns,
 *                                                   "Project not found");
 *
 *     row_get(db, &project_table, "SELECT * FROM projects WHERE id = ?1", DB_ARGS(DB_T(id)), …)
 *     row_exec(db, &project_table, "UPDATE projects SET * WHERE id = ?1", row, DB_ARGS(…), err)
 *
 * A text of SQL is a literal as everywhere (db.h), with a star for the columns of the type:
 *
 *     SELECT * FROM t …           the columns, in the order of the table
 *     INSERT INTO t (*) …         the columns that are not READ_ONLY, and their values
 *     UPDATE t SET *, a = ?1 …    those of the type's group; further assignments may follow
 *     INSERT                      the whole of row_insert()
 *     SELECT                      the whole of row_by_id()
 *
 * Only the first star of a text counts. Parameters ?1, ?2 … are the arguments of the call; the
 * values of the row follow them. row_sql() is where all this becomes SQL, once for each connection
 * and statement. */
#pragma once

#include "store/db.h"

enum column_type {
        COLUMN_TEXT,           /* const char *; NULL is NULL */
        COLUMN_DOCUMENT,       /* the same; the text is JSON */
        COLUMN_NUMBER,         /* int64_t */
        COLUMN_NUMBER_OR_NULL, /* int64_t; 0 is NULL */
        COLUMN_CODE,           /* int64_t; below 0 is NULL, and -1 when loaded */
        COLUMN_TIME,           /* int64_t, microseconds */
        COLUMN_TIME_OR_NULL,   /* the same; 0 is NULL */
        COLUMN_FLAG,           /* bool; stored as 0 or 1 */
};

/* Which statements write a column. A type may have groups of its own, from OWN_GROUP on. */
enum column_group {
        CHANGES = 0,   /* inserted and updated */
        FIXED = 1,     /* inserted; `SET *` leaves it */
        READ_ONLY = 2, /* neither: the database knows it */
        OWN_GROUP = 3,
};

struct column {
        const char *sql; /* the column, or what is selected in its place; NULL: as the member */
        const char *member;
        const char *json; /* NULL: not shown */
        uint8_t group;
        uint8_t type;
        uint16_t offset;
};

struct row_type {
        const char *table;
        const struct column *columns;
        uint16_t n_columns, size;
        const char *missing; /* said when row_get() finds none */
        uint8_t group;       /* that `UPDATE … SET *` writes */
};

/* Further arguments: the JSON name, the group, .sql. A member of another type does not compile. */
#define COLUMN(row, name, kind, c_type, ...)                                                       \
        {                                                                                          \
                .type = (kind),                                                                    \
                .offset = offsetof(row, name) + 0 * sizeof((c_type *){ &((row *)0)->name }),       \
                .member = #name, __VA_ARGS__                                                       \
        }
#define TEXT(row, name, ...)     COLUMN(row, name, COLUMN_TEXT, const char *, __VA_ARGS__)
#define DOCUMENT(row, name, ...) COLUMN(row, name, COLUMN_DOCUMENT, const char *, __VA_ARGS__)
#define NUMBER(row, name, ...)   COLUMN(row, name, COLUMN_NUMBER, int64_t, __VA_ARGS__)
#define NUMBER_OR_NULL(row, name, ...)                                                             \
        COLUMN(row, name, COLUMN_NUMBER_OR_NULL, int64_t, __VA_ARGS__)
#define CODE(row, name, ...)         COLUMN(row, name, COLUMN_CODE, int64_t, __VA_ARGS__)
#define TIME(row, name, ...)         COLUMN(row, name, COLUMN_TIME, int64_t, __VA_ARGS__)
#define TIME_OR_NULL(row, name, ...) COLUMN(row, name, COLUMN_TIME_OR_NULL, int64_t, __VA_ARGS__)
#define FLAG(row, name, ...)         COLUMN(row, name, COLUMN_FLAG, bool, __VA_ARGS__)

#define ROW_TYPE(table_name, row, list, missing_text, ...)                                         \
        {                                                                                          \
                .table = (table_name), .columns = (list), .n_columns = ARRAY_LEN(list),            \
                .size = sizeof(row), .missing = (missing_text), __VA_ARGS__                        \
        }

/* -- Reading ---------------------------------------------------------------------------------- */

/* The first row of a query: 1, or 0 when there is none. */
int row_find(struct db *db, const struct row_type *type, const char *sql, const struct db_arg *args,
             size_t n_args, struct arena *arena, void *ret, struct err *err);
/* The same, where ERR_NOT_FOUND with the type's text stands for none. Returns 0. */
int row_get(struct db *db, const struct row_type *type, const char *sql, const struct db_arg *args,
            size_t n_args, struct arena *arena, void *ret, struct err *err);
/* The same, where a second row is ERR_CONFLICT with the text `several`. */
int row_only(struct db *db, const struct row_type *type, const char *sql, const struct db_arg *args,
             size_t n_args, const char *several, struct arena *arena, void *ret, struct err *err);

/* All rows of a query, as an array of the type's struct in the arena: how many. `ret` is the
 * address of a pointer to that struct. */
int row_all(struct db *db, const struct row_type *type, const char *sql, const struct db_arg *args,
            size_t n_args, struct arena *arena, void *ret, struct err *err);

/* Start a query; then its rows one by one, as stmt_step(). */
int row_query(struct db *db, const struct row_type *type, const char *sql,
              const struct db_arg *args, size_t n_args, struct stmt **ret, struct err *err);
int row_next(struct stmt *s, const struct row_type *type, struct arena *arena, void *ret,
             struct err *err);

/* Call fn(ctx, row) for the rows of a query until it returns an error. A macro, because `fn` takes
 * a pointer to the type's own struct; `args` is DB_ARGS(), DB_NO_ARGS or DB_ARRAY(). */
#define ROW_EACH(db, type, sql, args, arena, fn, ctx, err)                                         \
        __extension__({                                                                            \
                CLEAN(stmt_end) struct stmt *each_s_ = NULL;                                       \
                void *each_row_ = arena_alloc(arena, (type)->size);                                \
                int each_r_ = row_query(db, type, sql, args, &each_s_, err);                       \
                                                                                                   \
                while (each_r_ >= 0 &&                                                             \
                       (each_r_ = row_next(each_s_, type, arena, each_row_, err)) > 0)             \
                        each_r_ = (fn)(ctx, each_row_);                                            \
                each_r_;                                                                           \
        })

/* -- Writing ---------------------------------------------------------------------------------- */

/* As db_exec(), with the row's values where the text has a star. */
int row_exec(struct db *db, const struct row_type *type, const char *sql, const void *row,
             const struct db_arg *args, size_t n_args, struct err *err);

/* -- For back ends ---------------------------------------------------------------------------- */

/* The statement that a text stands for when it is run with n_args arguments, those of the row
 * included. To be freed. */
char *row_sql(const struct row_type *type, const char *text, size_t n_args);
