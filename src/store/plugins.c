#include "store/plugins.h"

#define COLUMNS                                                                                    \
        "id, plugin_key, package_name, version, api_version, categories, manifest_json, status, "  \
        "install_order, package_path, last_error, install_id, package_version, checksum, "         \
        "pending, installed_at, updated_at"

static void load(struct stmt *s, struct arena *a, struct plugin *p)
{
        *p = (struct plugin){
                .id = stmt_text(s, 0, a),
                .key = stmt_text(s, 1, a),
                .package_name = stmt_text(s, 2, a),
                .version = stmt_text(s, 3, a),
                .api_version = stmt_number(s, 4),
                .categories = stmt_text(s, 5, a),
                .manifest = stmt_text(s, 6, a),
                .status = stmt_text(s, 7, a),
                .install_order = stmt_number(s, 8),
                .package_path = stmt_text(s, 9, a),
                .last_error = stmt_text(s, 10, a),
                .install_id = stmt_text(s, 11, a),
                .package_version = stmt_text(s, 12, a),
                .checksum = stmt_text(s, 13, a),
                .pending = stmt_text(s, 14, a),
                .installed_at = stmt_number(s, 15),
                .updated_at = stmt_number(s, 16),
        };
}

int plugins_insert(struct db *db, const struct plugin *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO plugins (" COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, "
                       "(SELECT COALESCE(MAX(install_order), 0) + 1 FROM plugins), "
                       "?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
                       DB_ARGS(DB_T(row->id), DB_T(row->key), DB_T(row->package_name),
                               DB_T(row->version), DB_I(row->api_version), DB_T(row->categories),
                               DB_T(row->manifest), DB_T(row->status), DB_T(row->package_path),
                               DB_T(row->last_error), DB_T(row->install_id),
                               DB_T(row->package_version), DB_T(row->checksum), DB_T(row->pending),
                               DB_I(row->installed_at), DB_I(row->updated_at)),
                       err);
}

int plugins_get(struct db *db, const char *id_or_key, struct arena *arena, struct plugin *ret,
                struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM plugins WHERE id = ?1 OR plugin_key = ?1 "
                         "ORDER BY CASE WHEN id = ?1 THEN 0 ELSE 1 END",
                         DB_ARGS(DB_T(id_or_key)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Plugin not found");
        load(s, arena, ret);
        return 0;
}

int plugins_list(struct db *db, const char *status, struct arena *arena, plugin_fn fn, void *ctx,
                 struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM plugins WHERE status = CAST(?1 AS TEXT) OR "
                         "(CAST(?1 AS TEXT) IS NULL AND status <> 'uninstalled') "
                         "ORDER BY install_order, id",
                         DB_ARGS(DB_T(status)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct plugin p;

                load(s, arena, &p);
                r = fn(ctx, &p);
        }
        return r;
}

int plugins_update(struct db *db, const struct plugin *row, int64_t seen_updated_at,
                   struct err *err)
{
        return db_exec(db,
                       "UPDATE plugins SET package_name = ?2, version = ?3, api_version = ?4, "
                       "categories = ?5, manifest_json = ?6, status = ?7, package_path = ?8, "
                       "last_error = ?9, install_id = ?10, package_version = ?11, checksum = ?12, "
                       "pending = ?13, installed_at = ?14, updated_at = ?15 "
                       "WHERE id = ?1 AND updated_at = ?16",
                       DB_ARGS(DB_T(row->id), DB_T(row->package_name), DB_T(row->version),
                               DB_I(row->api_version), DB_T(row->categories), DB_T(row->manifest),
                               DB_T(row->status), DB_T(row->package_path), DB_T(row->last_error),
                               DB_T(row->install_id), DB_T(row->package_version),
                               DB_T(row->checksum), DB_T(row->pending), DB_I(row->installed_at),
                               DB_I(row->updated_at), DB_I(seen_updated_at)),
                       err);
}

int plugins_move_last(struct db *db, const char *id, struct err *err)
{
        return db_exec(db,
                       "UPDATE plugins SET install_order = "
                       "(SELECT MAX(install_order) + 1 FROM plugins) WHERE id = ?1",
                       DB_ARGS(DB_T(id)), err);
}

int plugins_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM plugins WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

/* Fetches under way */

int plugin_installs_insert(struct db *db, const struct plugin_install *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO plugin_installs (id, package_name, owner_instance, created_at) "
                       "VALUES (?1, ?2, ?3, ?4)",
                       DB_ARGS(DB_T(row->id), DB_T(row->package_name), DB_T(row->owner_instance),
                               DB_I(row->created_at)),
                       err);
}

int plugin_installs_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM plugin_installs WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

int plugin_installs_list(struct db *db, struct arena *arena, plugin_install_fn fn, void *ctx,
                         struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT id, package_name, owner_instance, created_at FROM plugin_installs "
                         "ORDER BY created_at",
                         DB_NO_ARGS, &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct plugin_install row = {
                        .id = stmt_text(s, 0, arena),
                        .package_name = stmt_text(s, 1, arena),
                        .owner_instance = stmt_text(s, 2, arena),
                        .created_at = stmt_number(s, 3),
                };

                r = fn(ctx, &row);
        }
        return r;
}

/* Configuration */

int plugin_config_get(struct db *db, const char *plugin_id, struct arena *arena,
                      struct plugin_config *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT plugin_id, id, config_json, last_error, created_at, updated_at "
                         "FROM plugin_config WHERE plugin_id = ?1",
                         DB_ARGS(DB_T(plugin_id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Plugin has no configuration");
        *ret = (struct plugin_config){
                .plugin_id = stmt_text(s, 0, arena),
                .id = stmt_text(s, 1, arena),
                .config = stmt_text(s, 2, arena),
                .last_error = stmt_text(s, 3, arena),
                .created_at = stmt_number(s, 4),
                .updated_at = stmt_number(s, 5),
        };
        return 0;
}

int plugin_config_put(struct db *db, const struct plugin_config *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO plugin_config "
                       "(plugin_id, id, config_json, last_error, created_at, updated_at) "
                       "VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (plugin_id) DO UPDATE SET "
                       "config_json = excluded.config_json, last_error = excluded.last_error, "
                       "updated_at = excluded.updated_at",
                       DB_ARGS(DB_T(row->plugin_id), DB_T(row->id), DB_T(row->config),
                               DB_T(row->last_error), DB_I(row->created_at), DB_I(row->updated_at)),
                       err);
}
