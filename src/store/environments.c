#include "store/environments.h"

#define COLUMNS                                                                                    \
        "id, company_id, name, description, driver, status, config, metadata, created_at, "        \
        "updated_at"

static void load(struct stmt *s, struct arena *a, struct environment *e)
{
        *e = (struct environment){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .name = stmt_text(s, 2, a),
                .description = stmt_text(s, 3, a),
                .driver = stmt_text(s, 4, a),
                .status = stmt_text(s, 5, a),
                .config = stmt_text(s, 6, a),
                .metadata = stmt_text(s, 7, a),
                .created_at = stmt_number(s, 8),
                .updated_at = stmt_number(s, 9),
        };
}

static int insert(struct db *db, const char *sql, const struct environment *e, struct err *err)
{
        return db_exec(db, sql,
                       DB_ARGS(DB_T(e->id), DB_T(e->company_id), DB_T(e->name),
                               DB_T(e->description), DB_T(e->driver), DB_T(e->status),
                               DB_T(e->config), DB_T(e->metadata), DB_I(e->created_at),
                               DB_I(e->updated_at)),
                       err);
}

int environments_insert(struct db *db, const struct environment *row, struct err *err)
{
        return insert(db,
                      "INSERT INTO environments (" COLUMNS
                      ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                      row, err);
}

int environments_insert_local(struct db *db, const struct environment *row, struct err *err)
{
        return insert(db,
                      "INSERT INTO environments (" COLUMNS
                      ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) "
                      "ON CONFLICT (company_id, driver) WHERE driver = 'local' DO NOTHING",
                      row, err);
}

static int get_one(struct stmt *s, struct arena *arena, struct environment *ret, struct err *err)
{
        int r = stmt_step(s, err);

        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Environment not found");
        load(s, arena, ret);
        return 0;
}

int environments_get(struct db *db, const char *id, struct arena *arena, struct environment *ret,
                     struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT " COLUMNS " FROM environments WHERE id = ?1",
                         DB_ARGS(DB_T(id)), &s, err);

        return r < 0 ? r : get_one(s, arena, ret, err);
}

int environments_get_local(struct db *db, const char *company_id, struct arena *arena,
                           struct environment *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS
                         " FROM environments WHERE company_id = ?1 AND driver = 'local'",
                         DB_ARGS(DB_T(company_id)), &s, err);

        return r < 0 ? r : get_one(s, arena, ret, err);
}

static int each(struct stmt *s, struct arena *arena, environment_fn fn, void *ctx, struct err *err)
{
        int r = 0;

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct environment e;

                load(s, arena, &e);
                r = fn(ctx, &e);
        }
        return r;
}

int environments_list(struct db *db, const char *company_id, const char *status, const char *driver,
                      struct arena *arena, environment_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM environments WHERE company_id = ?1 "
                         "AND (CAST(?2 AS TEXT) IS NULL OR status = ?2) "
                         "AND (CAST(?3 AS TEXT) IS NULL OR driver = ?3) "
                         "ORDER BY updated_at DESC, created_at DESC",
                         DB_ARGS(DB_T(company_id), DB_T(status), DB_T(driver)), &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int environments_of_driver(struct db *db, const char *driver, const char *status,
                           struct arena *arena, environment_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM environments WHERE driver = ?1 AND status = ?2 "
                         "ORDER BY id",
                         DB_ARGS(DB_T(driver), DB_T(status)), &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int environments_update(struct db *db, const struct environment *row, int64_t seen_updated_at,
                        struct err *err)
{
        return db_exec(db,
                       "UPDATE environments SET name = ?2, description = ?3, driver = ?4, "
                       "status = ?5, config = ?6, metadata = ?7, updated_at = ?8 "
                       "WHERE id = ?1 AND updated_at = ?9",
                       DB_ARGS(DB_T(row->id), DB_T(row->name), DB_T(row->description),
                               DB_T(row->driver), DB_T(row->status), DB_T(row->config),
                               DB_T(row->metadata), DB_I(row->updated_at), DB_I(seen_updated_at)),
                       err);
}

int environments_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM environments WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

/* The selections live inside JSON documents. Both back ends can look into them, each with its own
 * function; a quoted id is unique enough to search for as text and needs neither. */
#define NAMES_ENVIRONMENT(column)  column " LIKE '%\"' || ?2 || '\"%'"
#define COUNT(table, condition)    "(SELECT COUNT(*) FROM " table " WHERE " condition ")"
#define COUNT_NAMED(table, column) COUNT(table, "company_id = ?1 AND " NAMES_ENVIRONMENT(column))
#define COUNT_PLACES(condition)    COUNT("places", "environment_id = ?2 AND state <> 'gone'" condition)

int environments_references(struct db *db, const struct environment *env,
                            struct environment_references *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        /* clang-format off */
        static const char sql[] =
                "SELECT " COUNT("agents", "default_environment_id = ?2")
                ", " COUNT_NAMED("execution_workspaces", "metadata")
                ", " COUNT_NAMED("issues", "execution_workspace_settings")
                ", " COUNT_NAMED("projects", "execution_workspace_policy")
                ", " COUNT("company_secret_bindings", "company_id = ?1 AND target_type = 'environment' AND target_id = ?2")
                ", " COUNT("environment_leases", "environment_id = ?2 AND (status = 'active' OR status = 'retained')")
                ", " COUNT_PLACES("")
                ", " COUNT_PLACES(" AND state = 'closing'")
                ", " COUNT_PLACES(" AND state = 'ready'");
        /* clang-format on */
        int r = db_query(db, sql, DB_ARGS(DB_T(env->company_id), DB_T(env->id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        *ret = (struct environment_references){
                .agents = stmt_number(s, 0),
                .execution_workspaces = stmt_number(s, 1),
                .issues = stmt_number(s, 2),
                .projects = stmt_number(s, 3),
                .secret_bindings = stmt_number(s, 4),
                .active_leases = stmt_number(s, 5),
                .living_places = stmt_number(s, 6),
                .closing_places = stmt_number(s, 7),
                .idle_places = stmt_number(s, 8),
        };
        return 0;
}

#define CLEAR_IN(table, column)                                                                    \
        "UPDATE " table " SET " column " = REPLACE(" column                                        \
        ", '\"environmentId\":\"' || ?2 || '\"',"                                                  \
        " '\"environmentId\":null') WHERE company_id = ?1 AND " NAMES_ENVIRONMENT(column)

int environments_clear_references(struct db *db, const struct environment *env, struct err *err)
{
        static const char *const statements[] = {
                CLEAR_IN("execution_workspaces", "metadata"),
                CLEAR_IN("issues", "execution_workspace_settings"),
                CLEAR_IN("projects", "execution_workspace_policy"),
        };

        for (size_t i = 0; i < ARRAY_LEN(statements); i++) {
                int r = db_exec(db, statements[i], DB_ARGS(DB_T(env->company_id), DB_T(env->id)),
                                err);

                if (r < 0)
                        return r;
        }
        return db_exec(db,
                       "DELETE FROM company_secret_bindings WHERE company_id = ?1 "
                       "AND target_type = 'environment' AND target_id = ?2",
                       DB_ARGS(DB_T(env->company_id), DB_T(env->id)), err);
}
