/* Queries and statements, passed to the back end of the connection. */
#include "store/db.h"

int db_query(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
             struct stmt **ret, struct err *err)
{
        return db->ops->query(db, NULL, sql, args, n_args, ret, err);
}

int db_exec(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
            struct err *err)
{
        return db_run(db, NULL, sql, args, n_args, err);
}

int db_run(struct db *db, const struct row_type *type, const char *sql, const struct db_arg *args,
           size_t n_args, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db->ops->query(db, type, sql, args, n_args, &s, err);

        if (r < 0)
                return r;
        do
                r = stmt_step(s, err);
        while (r > 0);
        return r < 0 ? r : (int)db->ops->changes(db);
}

int db_number(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
              int64_t *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, sql, args, n_args, &s, err);

        if (r < 0)
                return r;
        r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "no row");
        *ret = stmt_number(s, 0);
        return 0;
}

int db_text(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
            struct arena *arena, const char **ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, sql, args, n_args, &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        *ret = r > 0 ? stmt_text(s, 0, arena) : NULL;
        return r;
}

int db_texts(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
             struct arena *arena, int (*fn)(void *ctx, const char *text), void *ctx,
             struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, sql, args, n_args, &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0)
                r = fn(ctx, stmt_text(s, 0, arena));
        return r;
}

int db_counts(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
              struct arena *arena, int (*fn)(void *ctx, const char *text, int64_t n), void *ctx,
              struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, sql, args, n_args, &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0)
                r = fn(ctx, stmt_text(s, 0, arena), stmt_number(s, 1));
        return r;
}

int db_script(struct db *db, const char *sql, struct err *err)
{
        return db->ops->script(db, sql, err);
}

int stmt_step(struct stmt *s, struct err *err)
{
        return s->ops->step(s, err);
}

bool stmt_is_null(struct stmt *s, int column)
{
        return s->ops->is_null(s, column);
}

const char *stmt_text(struct stmt *s, int column, struct arena *arena)
{
        size_t len;
        const char *text = s->ops->text(s, column, &len);

        return text ? arena_strndup(arena, text, len) : NULL;
}

int64_t stmt_number(struct stmt *s, int column)
{
        return s->ops->number(s, column);
}

void stmt_end(struct stmt **s)
{
        if (*s)
                (*s)->ops->end(*s);
        *s = NULL;
}
