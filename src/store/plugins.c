/* SQL for `plugins`, `plugin_installs` and `plugin_config`. */
#include "store/plugins.h"

#include "store/row.h"

static const struct column plugin_columns[] = {
        TEXT(struct plugin, id, "id", FIXED),
        TEXT(struct plugin, key, "pluginKey", FIXED, .sql = "plugin_key"),
        TEXT(struct plugin, package_name, "packageName"),
        TEXT(struct plugin, version, "version"),
        NUMBER(struct plugin, api_version, "apiVersion"),
        DOCUMENT(struct plugin, categories, "categories"),
        DOCUMENT(struct plugin, manifest, "manifestJson", .sql = "manifest_json"),
        TEXT(struct plugin, status, "status"),
        NUMBER_OR_NULL(struct plugin, install_order, "installOrder", FIXED),
        TEXT(struct plugin, package_path, "packagePath"),
        TEXT(struct plugin, last_error, "lastError"),
        TEXT(struct plugin, install_id),
        TEXT(struct plugin, package_version, "packageVersion"),
        TEXT(struct plugin, checksum, "checksum"),
        DOCUMENT(struct plugin, pending),
        TIME(struct plugin, installed_at, "installedAt"),
        TIME(struct plugin, updated_at, "updatedAt"),
};
const struct row_type plugin_table =
        ROW_TYPE("plugins", struct plugin, plugin_columns, "Plugin not found");

static const struct column plugin_install_columns[] = {
        TEXT(struct plugin_install, id),
        TEXT(struct plugin_install, package_name),
        TEXT(struct plugin_install, owner_instance),
        TIME(struct plugin_install, created_at),
};
const struct row_type plugin_install_table =
        ROW_TYPE("plugin_installs", struct plugin_install, plugin_install_columns, NULL);

static const struct column plugin_config_columns[] = {
        TEXT(struct plugin_config, plugin_id, "pluginId"),
        TEXT(struct plugin_config, id, "id"),
        DOCUMENT(struct plugin_config, config, "configJson", .sql = "config_json"),
        TEXT(struct plugin_config, last_error, "lastError"),
        TIME(struct plugin_config, created_at, "createdAt"),
        TIME(struct plugin_config, updated_at, "updatedAt"),
};
const struct row_type plugin_config_table =
        ROW_TYPE("plugin_config", struct plugin_config, plugin_config_columns,
                 "Plugin has no configuration");

int plugins_insert(struct db *db, const struct plugin *row, struct err *err)
{
        struct plugin made = *row;
        int r = db_number(db, "SELECT COALESCE(MAX(install_order), 0) + 1 FROM plugins", DB_NO_ARGS,
                          &made.install_order, err);

        return r < 0 ? r : row_insert(db, &plugin_table, &made, err);
}

int plugins_get(struct db *db, const char *id_or_key, struct arena *arena, struct plugin *ret,
                struct err *err)
{
        return row_get(db, &plugin_table,
                       "SELECT * FROM plugins WHERE id = ?1 OR plugin_key = ?1 "
                       "ORDER BY CASE WHEN id = ?1 THEN 0 ELSE 1 END",
                       DB_ARGS(DB_T(id_or_key)), arena, ret, err);
}

int plugins_list(struct db *db, const char *status, struct arena *arena, plugin_fn fn, void *ctx,
                 struct err *err)
{
        return ROW_EACH(db, &plugin_table,
                        "SELECT * FROM plugins WHERE status = CAST(?1 AS TEXT) OR "
                        "(CAST(?1 AS TEXT) IS NULL AND status <> 'uninstalled') "
                        "ORDER BY install_order, id",
                        DB_ARGS(DB_T(status)), arena, fn, ctx, err);
}

int plugins_update(struct db *db, const struct plugin *row, int64_t seen_updated_at,
                   struct err *err)
{
        return row_exec(db, &plugin_table, "UPDATE plugins SET * WHERE id = ?1 AND updated_at = ?2",
                        row, DB_ARGS(DB_T(row->id), DB_I(seen_updated_at)), err);
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
        return row_insert(db, &plugin_install_table, row, err);
}

int plugin_installs_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM plugin_installs WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

int plugin_installs_list(struct db *db, struct arena *arena, plugin_install_fn fn, void *ctx,
                         struct err *err)
{
        return ROW_EACH(db, &plugin_install_table,
                        "SELECT * FROM plugin_installs ORDER BY created_at", DB_NO_ARGS, arena, fn,
                        ctx, err);
}

/* Configuration */

int plugin_config_get(struct db *db, const char *plugin_id, struct arena *arena,
                      struct plugin_config *ret, struct err *err)
{
        return row_get(db, &plugin_config_table, "SELECT * FROM plugin_config WHERE plugin_id = ?1",
                       DB_ARGS(DB_T(plugin_id)), arena, ret, err);
}

int plugin_config_put(struct db *db, const struct plugin_config *row, struct err *err)
{
        return row_exec(db, &plugin_config_table,
                        "INSERT INTO plugin_config (*) ON CONFLICT (plugin_id) DO UPDATE SET "
                        "config_json = excluded.config_json, last_error = excluded.last_error, "
                        "updated_at = excluded.updated_at",
                        row, DB_NO_ARGS, err);
}
