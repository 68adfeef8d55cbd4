#include "store/projects.h"

#define COLUMNS                                                                                    \
        "id, company_id, name, url_key, description, status, env, execution_workspace_policy, "    \
        "created_at, updated_at"

static int each(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
                struct arena *a, project_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, sql, args, n_args, &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct project row = {
                        .id = stmt_text(s, 0, a),
                        .company_id = stmt_text(s, 1, a),
                        .name = stmt_text(s, 2, a),
                        .url_key = stmt_text(s, 3, a),
                        .description = stmt_text(s, 4, a),
                        .status = stmt_text(s, 5, a),
                        .env = stmt_text(s, 6, a),
                        .execution_workspace_policy = stmt_text(s, 7, a),
                        .created_at = stmt_number(s, 8),
                        .updated_at = stmt_number(s, 9),
                };

                r = fn(ctx, &row);
        }
        return r;
}

int projects_insert(struct db *db, const struct project *p, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO projects (" COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                       DB_ARGS(DB_T(p->id), DB_T(p->company_id), DB_T(p->name), DB_T(p->url_key),
                               DB_T(p->description), DB_T(p->status), DB_T(p->env),
                               DB_T(p->execution_workspace_policy), DB_I(p->created_at),
                               DB_I(p->updated_at)),
                       err);
}

struct found {
        struct project *row;
        int n;
};

static int note(void *ctx, const struct project *row)
{
        struct found *f = ctx;

        *f->row = *row;
        f->n++;
        return 0;
}

static int only(struct found *f, int r, struct err *err)
{
        if (r < 0)
                return r;
        if (f->n == 0)
                return err_set(err, ERR_NOT_FOUND, "Project not found");
        if (f->n > 1)
                return err_set(err, ERR_CONFLICT,
                               "Project shortname is ambiguous in this company. Use the project "
                               "ID.");
        return 0;
}

int projects_get(struct db *db, const char *id, struct arena *arena, struct project *ret,
                 struct err *err)
{
        struct found f = { ret, 0 };

        return only(&f,
                    each(db, "SELECT " COLUMNS " FROM projects WHERE id = ?1", DB_ARGS(DB_T(id)),
                         arena, note, &f, err),
                    err);
}

int projects_find(struct db *db, const char *company_id, const char *url_key, struct arena *arena,
                  struct project *ret, struct err *err)
{
        struct found f = { ret, 0 };

        return only(&f,
                    each(db,
                         "SELECT " COLUMNS " FROM projects WHERE company_id = ?1 AND url_key = ?2",
                         DB_ARGS(DB_T(company_id), DB_T(url_key)), arena, note, &f, err),
                    err);
}

int projects_list(struct db *db, const char *company_id, struct arena *arena, project_fn fn,
                  void *ctx, struct err *err)
{
        return each(db,
                    "SELECT " COLUMNS " FROM projects WHERE company_id = ?1 "
                    "ORDER BY created_at, id",
                    DB_ARGS(DB_T(company_id)), arena, fn, ctx, err);
}

int projects_update(struct db *db, const struct project *p, struct err *err)
{
        return db_exec(db,
                       "UPDATE projects SET name = ?2, url_key = ?3, description = ?4, "
                       "status = ?5, env = ?6, execution_workspace_policy = ?7, updated_at = ?8 "
                       "WHERE id = ?1",
                       DB_ARGS(DB_T(p->id), DB_T(p->name), DB_T(p->url_key), DB_T(p->description),
                               DB_T(p->status), DB_T(p->env), DB_T(p->execution_workspace_policy),
                               DB_I(p->updated_at)),
                       err);
}
