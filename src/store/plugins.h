/* Rows of `plugins`, `plugin_installs` and `plugin_config`. JSON members are texts. */
#pragma once

#include "store/db.h"

struct plugin {
        const char *id, *key, *package_name, *version, *status;
        const char *categories, *manifest; /* JSON, never NULL */
        const char *package_path;          /* local packages only */
        const char *install_id;            /* packages from npm only */
        const char *package_version, *checksum;
        const char *pending; /* JSON or NULL */
        const char *last_error;
        int64_t api_version, install_order;
        int64_t installed_at, updated_at;
};

extern const struct row_type plugin_table;

typedef int (*plugin_fn)(void *ctx, const struct plugin *row);

/* The next install_order is given. A key that exists is ERR_CONFLICT. */
int plugins_insert(struct db *db, const struct plugin *row, struct err *err);
/* By id or by key. ERR_NOT_FOUND "Plugin not found". */
int plugins_get(struct db *db, const char *id_or_key, struct arena *arena, struct plugin *ret,
                struct err *err);
/* In install order. With a status only those; without, all that are not uninstalled. */
int plugins_list(struct db *db, const char *status, struct arena *arena, plugin_fn fn, void *ctx,
                 struct err *err);
/* Writes the row if it is still as it was at `seen_updated_at`; returns 0 when it is not. */
int plugins_update(struct db *db, const struct plugin *row, int64_t seen_updated_at,
                   struct err *err);
/* As if it had been inserted last. */
int plugins_move_last(struct db *db, const char *id, struct err *err);
int plugins_delete(struct db *db, const char *id, struct err *err);

/* Fetches under way. */
struct plugin_install {
        const char *id, *package_name, *owner_instance;
        int64_t created_at;
};

extern const struct row_type plugin_install_table;

typedef int (*plugin_install_fn)(void *ctx, const struct plugin_install *row);

int plugin_installs_insert(struct db *db, const struct plugin_install *row, struct err *err);
int plugin_installs_delete(struct db *db, const char *id, struct err *err);
int plugin_installs_list(struct db *db, struct arena *arena, plugin_install_fn fn, void *ctx,
                         struct err *err);

struct plugin_config {
        const char *plugin_id, *id, *config, *last_error;
        int64_t created_at, updated_at;
};

extern const struct row_type plugin_config_table;

/* ERR_NOT_FOUND while none was saved. */
int plugin_config_get(struct db *db, const char *plugin_id, struct arena *arena,
                      struct plugin_config *ret, struct err *err);
int plugin_config_put(struct db *db, const struct plugin_config *row, struct err *err);
