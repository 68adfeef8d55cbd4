/* SQL for `company_secret_bindings` and `secret_access_events`. */
#include "store/secret_bindings.h"

#include "store/row.h"

static const struct column secret_binding_columns[] = {
        TEXT(struct secret_binding, id, "id"),
        TEXT(struct secret_binding, company_id, "companyId"),
        TEXT(struct secret_binding, secret_id, "secretId"),
        TEXT(struct secret_binding, target_type, "targetType"),
        TEXT(struct secret_binding, target_id, "targetId"),
        TEXT(struct secret_binding, config_path, "configPath"),
        TEXT(struct secret_binding, version_selector, "versionSelector"),
        FLAG(struct secret_binding, required, "required"),
        TEXT(struct secret_binding, label, "label"),
        TIME(struct secret_binding, created_at, "createdAt"),
        TIME(struct secret_binding, updated_at, "updatedAt"),
};
const struct row_type secret_binding_table =
        ROW_TYPE("company_secret_bindings", struct secret_binding, secret_binding_columns, NULL);

static const struct column secret_event_columns[] = {
        TEXT(struct secret_event, id, "id"),
        TEXT(struct secret_event, company_id, "companyId"),
        TEXT(struct secret_event, secret_id, "secretId"),
        NUMBER_OR_NULL(struct secret_event, version, "version"),
        TEXT(struct secret_event, provider, "provider"),
        TEXT(struct secret_event, actor_type, "actorType"),
        TEXT(struct secret_event, actor_id, "actorId"),
        TEXT(struct secret_event, consumer_type, "consumerType"),
        TEXT(struct secret_event, consumer_id, "consumerId"),
        TEXT(struct secret_event, config_path, "configPath"),
        TEXT(struct secret_event, issue_id, "issueId"),
        TEXT(struct secret_event, heartbeat_run_id, "heartbeatRunId"),
        TEXT(struct secret_event, plugin_id, "pluginId"),
        TEXT(struct secret_event, outcome, "outcome"),
        TEXT(struct secret_event, error_code, "errorCode"),
        TIME(struct secret_event, created_at, "createdAt"),
};
const struct row_type secret_event_table =
        ROW_TYPE("secret_access_events", struct secret_event, secret_event_columns, NULL);

int secret_bindings_insert(struct db *db, const struct secret_binding *row, struct err *err)
{
        return row_insert(db, &secret_binding_table, row, err);
}

int secret_bindings_find(struct db *db, const char *company_id, const char *secret_id,
                         const char *target_type, const char *target_id, const char *config_path,
                         struct arena *arena, struct secret_binding *ret, struct err *err)
{
        return row_find(db, &secret_binding_table,
                        "SELECT * FROM company_secret_bindings WHERE company_id = ?1 "
                        "AND target_type = ?2 AND target_id = ?3 AND config_path = ?4 "
                        "AND secret_id = ?5",
                        DB_ARGS(DB_T(company_id), DB_T(target_type), DB_T(target_id),
                                DB_T(config_path), DB_T(secret_id)),
                        arena, ret, err);
}

int secret_bindings_of_secret(struct db *db, const char *secret_id, struct arena *arena,
                              secret_binding_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &secret_binding_table,
                        "SELECT * FROM company_secret_bindings WHERE secret_id = ?1 "
                        "ORDER BY created_at, id",
                        DB_ARGS(DB_T(secret_id)), arena, fn, ctx, err);
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

int secret_events_insert(struct db *db, const struct secret_event *row, struct err *err)
{
        return row_insert(db, &secret_event_table, row, err);
}

int secret_events_list(struct db *db, const char *secret_id, struct arena *arena,
                       secret_event_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &secret_event_table,
                        "SELECT * FROM secret_access_events WHERE secret_id = ?1 "
                        "ORDER BY created_at DESC, id DESC",
                        DB_ARGS(DB_T(secret_id)), arena, fn, ctx, err);
}

int secret_events_company(struct db *db, const char *secret_id, struct arena *arena,
                          const char **ret, struct err *err)
{
        return db_text(db,
                       "SELECT company_id FROM secret_access_events WHERE secret_id = ?1 LIMIT 1",
                       DB_ARGS(DB_T(secret_id)), arena, ret, err);
}
