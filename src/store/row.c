/* What the columns of a table become: SQL, arguments, and the members of a struct. */
#include "store/row.h"

#include "base/buf.h"

/* More than any statement has, the values of the row and the arguments of the call together. */
#define ARGS_MAX 96

/* -- SQL -------------------------------------------------------------------------------------- */

static const char *column_sql(const struct column *c)
{
        return c->sql ? c->sql : c->member;
}

static bool is_insert(const char *text)
{
        return str_starts(text, "INSERT");
}

/* Whether the statement writes the column. */
static bool is_written(const struct row_type *type, const struct column *c, const char *text)
{
        return is_insert(text) ? c->group != READ_ONLY : c->group == type->group;
}

char *row_sql(const struct row_type *type, const char *text, size_t n_args)
{
        CLEAN(buf_done) struct buf columns = BUF_INIT, values = BUF_INIT;
        bool select = !is_insert(text) && !str_starts(text, "UPDATE");
        const char *star = strchr(text, '*');
        size_t n_own = n_args;

        for (size_t i = 0; !select && i < type->n_columns; i++)
                n_own -= is_written(type, &type->columns[i], text);
        for (size_t i = 0; i < type->n_columns; i++) {
                const struct column *c = &type->columns[i];
                const char *comma = columns.len > 0 ? ", " : "";

                if (!select && !is_written(type, c, text))
                        continue;
                buf_appendf(&columns, "%s%s", comma, column_sql(c));
                if (is_insert(text))
                        buf_appendf(&values, "%s?%zu", comma, ++n_own);
                else if (!select)
                        buf_appendf(&columns, " = ?%zu", ++n_own);
        }
        if (select && !star)
                return xasprintf("SELECT %s FROM %s WHERE id = ?1", buf_str(&columns), type->table);
        if (!is_insert(text))
                return xasprintf("%.*s%s%s", (int)(star - text), text, buf_str(&columns), star + 1);
        if (!star)
                return xasprintf("INSERT INTO %s (%s) VALUES (%s)", type->table, buf_str(&columns),
                                 buf_str(&values));
        return xasprintf("%.*s%s) VALUES (%s%s", (int)(star - text), text, buf_str(&columns),
                         buf_str(&values), star + 1);
}

/* -- Values ----------------------------------------------------------------------------------- */

static struct db_arg column_arg(const struct column *c, const void *row)
{
        const void *at = (const char *)row + c->offset;

        switch ((enum column_type)c->type) {
        case COLUMN_TEXT:
        case COLUMN_DOCUMENT:
                return DB_T(*(const char *const *)at);
        case COLUMN_FLAG:
                return DB_I(*(const bool *)at);
        case COLUMN_CODE:
                return *(const int64_t *)at < 0 ? DB_T(NULL) : DB_I(*(const int64_t *)at);
        case COLUMN_NUMBER_OR_NULL:
        case COLUMN_TIME_OR_NULL:
                return DB_TIME(*(const int64_t *)at);
        case COLUMN_NUMBER:
        case COLUMN_TIME:
                break;
        }
        return DB_I(*(const int64_t *)at);
}

static void column_load(const struct column *c, struct stmt *s, int at, struct arena *arena,
                        void *row)
{
        void *to = (char *)row + c->offset;

        switch ((enum column_type)c->type) {
        case COLUMN_TEXT:
        case COLUMN_DOCUMENT:
                *(const char **)to = stmt_text(s, at, arena);
                return;
        case COLUMN_FLAG:
                *(bool *)to = stmt_number(s, at) != 0;
                return;
        case COLUMN_CODE:
                *(int64_t *)to = stmt_is_null(s, at) ? -1 : stmt_number(s, at);
                return;
        case COLUMN_NUMBER:
        case COLUMN_NUMBER_OR_NULL:
        case COLUMN_TIME:
        case COLUMN_TIME_OR_NULL:
                *(int64_t *)to = stmt_number(s, at);
                return;
        }
}

/* -- Reading ---------------------------------------------------------------------------------- */

int row_query(struct db *db, const struct row_type *type, const char *sql,
              const struct db_arg *args, size_t n_args, struct stmt **ret, struct err *err)
{
        return db->ops->query(db, type, sql, args, n_args, ret, err);
}

static void row_load(struct stmt *s, const struct row_type *type, struct arena *arena, void *ret)
{
        memset(ret, 0, type->size);
        for (size_t i = 0; i < type->n_columns; i++)
                column_load(&type->columns[i], s, (int)i, arena, ret);
}

int row_next(struct stmt *s, const struct row_type *type, struct arena *arena, void *ret,
             struct err *err)
{
        int r = stmt_step(s, err);

        if (r > 0)
                row_load(s, type, arena, ret);
        return r;
}

int row_find(struct db *db, const struct row_type *type, const char *sql, const struct db_arg *args,
             size_t n_args, struct arena *arena, void *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = row_query(db, type, sql, args, n_args, &s, err);

        return r < 0 ? r : row_next(s, type, arena, ret, err);
}

int row_get(struct db *db, const struct row_type *type, const char *sql, const struct db_arg *args,
            size_t n_args, struct arena *arena, void *ret, struct err *err)
{
        int r = row_find(db, type, sql, args, n_args, arena, ret, err);

        return r == 0 ? err_set(err, ERR_NOT_FOUND, "%s", type->missing) : MIN(r, 0);
}

/* Of a pointer to the struct of any type. */
typedef void *__attribute__((may_alias)) any_pointer;

int row_all(struct db *db, const struct row_type *type, const char *sql, const struct db_arg *args,
            size_t n_args, struct arena *arena, void *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        char *rows = NULL;
        size_t n = 0, room = 0;
        int r = row_query(db, type, sql, args, n_args, &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                rows = arena_more(arena, rows, n, &room, type->size);
                row_load(s, type, arena, rows + n++ * type->size);
        }
        if (r < 0)
                return r;
        *(any_pointer *)ret = rows;
        return (int)n;
}

int row_only(struct db *db, const struct row_type *type, const char *sql, const struct db_arg *args,
             size_t n_args, const char *several, struct arena *arena, void *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = row_query(db, type, sql, args, n_args, &s, err);

        if (r >= 0)
                r = row_next(s, type, arena, ret, err);
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "%s", type->missing);
        if (r > 0)
                r = stmt_step(s, err);
        return r > 0 ? err_set(err, ERR_CONFLICT, "%s", several) : r;
}

int row_by_id(struct db *db, const struct row_type *type, const char *id, struct arena *arena,
              void *ret, struct err *err)
{
        return row_get(db, type, "SELECT", DB_ARGS(DB_T(id)), arena, ret, err);
}

/* -- Writing ---------------------------------------------------------------------------------- */

int row_exec(struct db *db, const struct row_type *type, const char *sql, const void *row,
             const struct db_arg *args, size_t n_args, struct err *err)
{
        struct db_arg all[ARGS_MAX];
        size_t n = 0;

        if (n_args + type->n_columns > ARGS_MAX)
                return err_set(err, ERR_INTERNAL, "too many values for a row of %s", type->table);
        while (n < n_args) {
                all[n] = args[n];
                n++;
        }
        for (size_t i = 0; i < type->n_columns; i++)
                if (is_written(type, &type->columns[i], sql))
                        all[n++] = column_arg(&type->columns[i], row);
        return db_run(db, type, sql, all, n, err);
}

int row_insert(struct db *db, const struct row_type *type, const void *row, struct err *err)
{
        return row_exec(db, type, "INSERT", row, DB_NO_ARGS, err);
}
