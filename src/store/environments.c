/* SQL for `environments`. */
#include "store/environments.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct environment, id, "id", FIXED),
        TEXT(struct environment, company_id, "companyId", FIXED),
        TEXT(struct environment, name, "name"),
        TEXT(struct environment, description, "description"),
        TEXT(struct environment, driver, "driver"),
        TEXT(struct environment, status, "status"),
        DOCUMENT(struct environment, config, "config"),
        DOCUMENT(struct environment, metadata, "metadata"),
        TIME(struct environment, created_at, "createdAt", FIXED),
        TIME(struct environment, updated_at, "updatedAt"),
};
const struct row_type environment_table =
        ROW_TYPE("environments", struct environment, columns, "Environment not found");

int environments_insert_local(struct db *db, const struct environment *row, struct err *err)
{
        return row_exec(db, &environment_table,
                        "INSERT INTO environments (*) "
                        "ON CONFLICT (company_id, driver) WHERE driver = 'local' DO NOTHING",
                        row, DB_NO_ARGS, err);
}

int environments_get_local(struct db *db, const char *company_id, struct arena *arena,
                           struct environment *ret, struct err *err)
{
        return row_get(db, &environment_table,
                       "SELECT * FROM environments WHERE company_id = ?1 AND driver = 'local'",
                       DB_ARGS(DB_T(company_id)), arena, ret, err);
}

int environments_list(struct db *db, const char *company_id, const char *status, const char *driver,
                      struct arena *arena, struct environment **ret, struct err *err)
{
        return row_all(db, &environment_table,
                       "SELECT * FROM environments WHERE company_id = ?1 "
                       "AND (CAST(?2 AS TEXT) IS NULL OR status = ?2) "
                       "AND (CAST(?3 AS TEXT) IS NULL OR driver = ?3) "
                       "ORDER BY updated_at DESC, created_at DESC",
                       DB_ARGS(DB_T(company_id), DB_T(status), DB_T(driver)), arena, ret, err);
}

int environments_of_driver(struct db *db, const char *driver, const char *status,
                           struct arena *arena, struct environment **ret, struct err *err)
{
        return row_all(db, &environment_table,
                       "SELECT * FROM environments WHERE driver = ?1 AND status = ?2 "
                       "ORDER BY id",
                       DB_ARGS(DB_T(driver), DB_T(status)), arena, ret, err);
}

int environments_update(struct db *db, const struct environment *row, int64_t seen_updated_at,
                        struct err *err)
{
        return row_exec(db, &environment_table,
                        "UPDATE environments SET * WHERE id = ?1 AND updated_at = ?2", row,
                        DB_ARGS(DB_T(row->id), DB_I(seen_updated_at)), err);
}

int environments_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM environments WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

/* The selections of workspaces, issues and projects live inside JSON documents. Both back ends can
 * look into them, each with its own function; a quoted id is unique enough to find candidates by
 * their text, and the member itself decides: the document of a workspace also tells where it was in
 * the past. */
#define CANDIDATES(table, column, condition)                                                       \
        "SELECT id, " column " FROM " table " WHERE company_id = ?1" condition " AND " column      \
        " LIKE '%\"' || ?2 || '\"%'"
#define REPLACE(table, column) "UPDATE " table " SET " column " = ?2, updated_at = ?3 WHERE id = ?1"

enum { OF_WORKSPACES, OF_ISSUES, OF_PROJECTS, N_SELECTIONS };

static const struct {
        const char *candidates, *replace;
        const char *inside; /* the member that has the environmentId; NULL: it is at the top */
} selections[N_SELECTIONS] = {
        [OF_WORKSPACES] = { CANDIDATES("execution_workspaces", "metadata",
                                       " AND status <> 'archived'"),
                            REPLACE("execution_workspaces", "metadata"), "config" },
        [OF_ISSUES] = { CANDIDATES("issues", "execution_workspace_settings", ""),
                        REPLACE("issues", "execution_workspace_settings"), NULL },
        [OF_PROJECTS] = { CANDIDATES("projects", "execution_workspace_policy", ""),
                          REPLACE("projects", "execution_workspace_policy"), NULL },
};

struct selection {
        const char *id;
        const char *document; /* with the other environment, when there is one */
};

/* 1 with the row when its document chooses the environment, moved to `to_id` (NULL: not). */
static int read_selection(struct stmt *s, size_t kind, const struct environment *env,
                          const char *to_id, struct arena *arena, struct selection *ret,
                          struct err *err)
{
        const char *row = stmt_text(s, 0, arena), *text = stmt_text(s, 1, arena), *id;
        json_t *document = NULL, *at;
        int r = json_parse(text, strlen(text), &document, err);

        if (r < 0)
                return err_wrap(err, ERR_CORRUPT, "row %s", row);
        at = selections[kind].inside ? json_get_object(document, selections[kind].inside)
                                     : document;
        id = json_get_string(at, "environmentId");
        if (id && streq(id, env->id)) {
                if (to_id)
                        json_object_set_new(at, "environmentId", json_string(to_id));
                *ret = (struct selection){ row, json_to_arena(arena, document) };
                r = 1;
        } else {
                r = 0;
        }
        json_decref(document);
        return r;
}

static int find_selections(struct db *db, size_t kind, const struct environment *env,
                           const char *to_id, struct arena *arena, struct selection **ret,
                           int64_t *ret_n, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        struct selection *found = NULL;
        size_t n = 0, room = 0;
        int r = db_query(db, selections[kind].candidates,
                         DB_ARGS(DB_T(env->company_id), DB_T(env->id)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct selection one = { 0 };

                r = read_selection(s, kind, env, to_id, arena, &one, err);
                if (r <= 0)
                        continue;
                found = arena_more(arena, found, n, &room, sizeof(*found));
                found[n++] = one;
        }
        *ret = found;
        *ret_n = (int64_t)n;
        return r;
}

#define COUNT(table, condition) "(SELECT COUNT(*) FROM " table " WHERE " condition ")"
#define COUNT_PLACES(condition) COUNT("places", "environment_id = ?2 AND state <> 'gone'" condition)

int environments_references(struct db *db, const struct environment *env,
                            struct environment_references *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        CLEAN(arena_done) struct arena arena;
        int64_t counts[N_SELECTIONS] = { 0 };
        struct selection *ignored;
        /* clang-format off */
        static const char sql[] =
                "SELECT " COUNT("agents", "default_environment_id = ?2")
                ", " COUNT("companies", "default_environment_id = ?2")
                ", " COUNT("company_secret_bindings", "company_id = ?1 AND target_type = 'environment' AND target_id = ?2")
                ", " COUNT("environment_leases", "environment_id = ?2 AND (status = 'active' OR status = 'retained')")
                ", " COUNT_PLACES("")
                ", " COUNT_PLACES(" AND state = 'closing'")
                ", " COUNT_PLACES(" AND state = 'ready'");
        /* clang-format on */
        int r = db_query(db, sql, DB_ARGS(DB_T(env->company_id), DB_T(env->id)), &s, err);

        arena_init(&arena);
        if (r >= 0)
                r = stmt_step(s, err);
        for (size_t i = 0; r >= 0 && i < N_SELECTIONS; i++)
                r = find_selections(db, i, env, NULL, &arena, &ignored, &counts[i], err);
        if (r < 0)
                return r;
        *ret = (struct environment_references){
                .agents = stmt_number(s, 0),
                .companies = stmt_number(s, 1),
                .secret_bindings = stmt_number(s, 2),
                .active_leases = stmt_number(s, 3),
                .living_places = stmt_number(s, 4),
                .closing_places = stmt_number(s, 5),
                .idle_places = stmt_number(s, 6),
                .execution_workspaces = counts[OF_WORKSPACES],
                .issues = counts[OF_ISSUES],
                .projects = counts[OF_PROJECTS],
        };
        ret->pointing = ret->agents + ret->companies + ret->execution_workspaces + ret->issues +
                        ret->projects;
        return 0;
}

int environments_move_references(struct db *db, const struct environment *env, const char *to_id,
                                 int64_t now_us, struct err *err)
{
        static const char *const plain[] = {
                "UPDATE agents SET default_environment_id = ?2, updated_at = ?3 "
                "WHERE default_environment_id = ?1",
                "UPDATE companies SET default_environment_id = ?2, updated_at = ?3 "
                "WHERE default_environment_id = ?1",
        };
        CLEAN(arena_done) struct arena arena;
        int r = 0;

        arena_init(&arena);
        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(plain); i++)
                r = db_exec(db, plain[i], DB_ARGS(DB_T(env->id), DB_T(to_id), DB_I(now_us)), err);
        for (size_t kind = 0; r >= 0 && kind < N_SELECTIONS; kind++) {
                struct selection *rows;
                int64_t n = 0;

                r = find_selections(db, kind, env, to_id, &arena, &rows, &n, err);
                for (int64_t i = 0; r >= 0 && i < n; i++)
                        r = db_exec(db, selections[kind].replace,
                                    DB_ARGS(DB_T(rows[i].id), DB_T(rows[i].document), DB_I(now_us)),
                                    err);
        }
        return r;
}

int environments_clear_bindings(struct db *db, const struct environment *env, struct err *err)
{
        return db_exec(db,
                       "DELETE FROM company_secret_bindings WHERE company_id = ?1 "
                       "AND target_type = 'environment' AND target_id = ?2",
                       DB_ARGS(DB_T(env->company_id), DB_T(env->id)), err);
}
