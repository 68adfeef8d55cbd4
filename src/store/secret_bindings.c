#include "store/secret_bindings.h"

#define COLUMNS                                                                                    \
        "id, company_id, secret_id, target_type, target_id, config_path, version_selector, "       \
        "required, label, created_at, updated_at"

static void load(struct stmt *s, struct arena *a, struct secret_binding *b)
{
        *b = (struct secret_binding){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .secret_id = stmt_text(s, 2, a),
                .target_type = stmt_text(s, 3, a),
                .target_id = stmt_text(s, 4, a),
                .config_path = stmt_text(s, 5, a),
                .version_selector = stmt_text(s, 6, a),
                .required = stmt_number(s, 7) != 0,
                .label = stmt_text(s, 8, a),
                .created_at = stmt_number(s, 9),
                .updated_at = stmt_number(s, 10),
        };
}

int secret_bindings_insert(struct db *db, const struct secret_binding *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO company_secret_bindings (" COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                       DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->secret_id),
                               DB_T(row->target_type), DB_T(row->target_id), DB_T(row->config_path),
                               DB_T(row->version_selector), DB_I(row->required), DB_T(row->label),
                               DB_I(row->created_at), DB_I(row->updated_at)),
                       err);
}

int secret_bindings_find(struct db *db, const char *company_id, const char *secret_id,
                         const char *target_type, const char *target_id, const char *config_path,
                         struct arena *arena, struct secret_binding *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM company_secret_bindings WHERE company_id = ?1 "
                         "AND target_type = ?2 AND target_id = ?3 AND config_path = ?4 "
                         "AND secret_id = ?5",
                         DB_ARGS(DB_T(company_id), DB_T(target_type), DB_T(target_id),
                                 DB_T(config_path), DB_T(secret_id)),
                         &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r > 0)
                load(s, arena, ret);
        return r;
}

int secret_bindings_of_secret(struct db *db, const char *secret_id, struct arena *arena,
                              secret_binding_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM company_secret_bindings WHERE secret_id = ?1 "
                         "ORDER BY created_at, id",
                         DB_ARGS(DB_T(secret_id)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct secret_binding row;

                load(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

int secret_bindings_count_others(struct db *db, const char *secret_id, const char *environment_id,
                                 int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT COUNT(*) FROM company_secret_bindings WHERE secret_id = ?1 "
                         "AND NOT (target_type = 'environment' AND target_id = ?2)",
                         DB_ARGS(DB_T(secret_id), DB_T(environment_id)), ret, err);
}

int secret_bindings_delete_target(struct db *db, const char *company_id, const char *target_type,
                                  const char *target_id, const char *prefix, struct err *err)
{
        return db_exec(db,
                       "DELETE FROM company_secret_bindings WHERE company_id = ?1 "
                       "AND target_type = ?2 AND target_id = ?3 AND (CAST(?4 AS TEXT) IS NULL "
                       "OR SUBSTR(config_path, 1, LENGTH(?4)) = ?4)",
                       DB_ARGS(DB_T(company_id), DB_T(target_type), DB_T(target_id), DB_T(prefix)),
                       err);
}

int secret_bindings_target(struct db *db, const struct secret_binding *row, struct arena *arena,
                           struct secret_target *ret, struct err *err)
{
        static const struct {
                const char *type, *sql;
        } targets[] = {
                { "agent", "SELECT name, url_key, status FROM agents WHERE id = ?1" },
                { "environment", "SELECT name, id, status FROM environments WHERE id = ?1" },
                { "project", "SELECT name, id, status FROM projects WHERE id = ?1" },
                { "issue", "SELECT title, identifier, status FROM issues WHERE id = ?1" },
                { "plugin", "SELECT plugin_key, plugin_key, status FROM plugins WHERE id = ?1" },
                { "run", "SELECT id, id, status FROM heartbeat_runs WHERE id = ?1" },
        };

        for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
                CLEAN(stmt_end) struct stmt *s = NULL;
                int r;

                if (!streq(targets[i].type, row->target_type))
                        continue;
                r = db_query(db, targets[i].sql, DB_ARGS(DB_T(row->target_id)), &s, err);
                if (r >= 0)
                        r = stmt_step(s, err);
                if (r > 0)
                        *ret = (struct secret_target){ stmt_text(s, 0, arena),
                                                       stmt_text(s, 1, arena),
                                                       stmt_text(s, 2, arena) };
                return r;
        }
        return 0;
}

/* Events */

#define EVENT_COLUMNS                                                                              \
        "id, company_id, secret_id, version, provider, actor_type, actor_id, consumer_type, "      \
        "consumer_id, config_path, issue_id, heartbeat_run_id, plugin_id, outcome, error_code, "   \
        "created_at"

int secret_events_insert(struct db *db, const struct secret_event *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO secret_access_events (" EVENT_COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, "
                       "?15, ?16)",
                       DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->secret_id),
                               DB_TIME(row->version), DB_T(row->provider), DB_T(row->actor_type),
                               DB_T(row->actor_id), DB_T(row->consumer_type),
                               DB_T(row->consumer_id), DB_T(row->config_path), DB_T(row->issue_id),
                               DB_T(row->heartbeat_run_id), DB_T(row->plugin_id),
                               DB_T(row->outcome), DB_T(row->error_code), DB_I(row->created_at)),
                       err);
}

int secret_events_list(struct db *db, const char *secret_id, struct arena *arena,
                       secret_event_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " EVENT_COLUMNS " FROM secret_access_events WHERE secret_id = ?1 "
                         "ORDER BY created_at DESC, id DESC",
                         DB_ARGS(DB_T(secret_id)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct secret_event row = {
                        .id = stmt_text(s, 0, arena),
                        .company_id = stmt_text(s, 1, arena),
                        .secret_id = stmt_text(s, 2, arena),
                        .version = stmt_number(s, 3),
                        .provider = stmt_text(s, 4, arena),
                        .actor_type = stmt_text(s, 5, arena),
                        .actor_id = stmt_text(s, 6, arena),
                        .consumer_type = stmt_text(s, 7, arena),
                        .consumer_id = stmt_text(s, 8, arena),
                        .config_path = stmt_text(s, 9, arena),
                        .issue_id = stmt_text(s, 10, arena),
                        .heartbeat_run_id = stmt_text(s, 11, arena),
                        .plugin_id = stmt_text(s, 12, arena),
                        .outcome = stmt_text(s, 13, arena),
                        .error_code = stmt_text(s, 14, arena),
                        .created_at = stmt_number(s, 15),
                };

                r = fn(ctx, &row);
        }
        return r;
}

int secret_events_company(struct db *db, const char *secret_id, struct arena *arena,
                          const char **ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT company_id FROM secret_access_events WHERE secret_id = ?1 LIMIT 1",
                         DB_ARGS(DB_T(secret_id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r > 0)
                *ret = stmt_text(s, 0, arena);
        return r;
}
