#include "store/vault_configs.h"

#define COLUMNS                                                                                    \
        "id, company_id, provider, display_name, status, is_default, config, health_status, "      \
        "health_message, health_details, health_checked_at, disabled_at, created_by_agent_id, "    \
        "created_by_user_id, created_at, updated_at"

static void load(struct stmt *s, struct arena *a, struct vault_row *v)
{
        *v = (struct vault_row){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .provider = stmt_text(s, 2, a),
                .display_name = stmt_text(s, 3, a),
                .status = stmt_text(s, 4, a),
                .is_default = stmt_number(s, 5) != 0,
                .config = stmt_text(s, 6, a),
                .health_status = stmt_text(s, 7, a),
                .health_message = stmt_text(s, 8, a),
                .health_details = stmt_text(s, 9, a),
                .health_checked_at = stmt_number(s, 10),
                .disabled_at = stmt_number(s, 11),
                .created_by_agent_id = stmt_text(s, 12, a),
                .created_by_user_id = stmt_text(s, 13, a),
                .created_at = stmt_number(s, 14),
                .updated_at = stmt_number(s, 15),
        };
}

int vault_configs_insert(struct db *db, const struct vault_row *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO company_secret_provider_configs (" COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, "
                       "?15, ?16)",
                       DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->provider),
                               DB_T(row->display_name), DB_T(row->status), DB_I(row->is_default),
                               DB_T(row->config), DB_T(row->health_status),
                               DB_T(row->health_message), DB_T(row->health_details),
                               DB_TIME(row->health_checked_at), DB_TIME(row->disabled_at),
                               DB_T(row->created_by_agent_id), DB_T(row->created_by_user_id),
                               DB_I(row->created_at), DB_I(row->updated_at)),
                       err);
}

int vault_configs_get(struct db *db, const char *id, struct arena *arena, struct vault_row *ret,
                      struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM company_secret_provider_configs WHERE id = ?1",
                         DB_ARGS(DB_T(id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Provider vault not found");
        load(s, arena, ret);
        return 0;
}

int vault_configs_list(struct db *db, const char *company_id, struct arena *arena, vault_row_fn fn,
                       void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM company_secret_provider_configs "
                         "WHERE company_id = ?1 ORDER BY created_at, id",
                         DB_ARGS(DB_T(company_id)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct vault_row row;

                load(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

int vault_configs_update(struct db *db, const struct vault_row *row, int64_t seen_updated_at,
                         struct err *err)
{
        return db_exec(db,
                       "UPDATE company_secret_provider_configs SET display_name = ?2, status = ?3, "
                       "is_default = ?4, config = ?5, health_status = ?6, health_message = ?7, "
                       "health_details = ?8, health_checked_at = ?9, disabled_at = ?10, "
                       "updated_at = ?11 WHERE id = ?1 AND updated_at = ?12",
                       DB_ARGS(DB_T(row->id), DB_T(row->display_name), DB_T(row->status),
                               DB_I(row->is_default), DB_T(row->config), DB_T(row->health_status),
                               DB_T(row->health_message), DB_T(row->health_details),
                               DB_TIME(row->health_checked_at), DB_TIME(row->disabled_at),
                               DB_I(row->updated_at), DB_I(seen_updated_at)),
                       err);
}

int vault_configs_clear_default(struct db *db, const char *company_id, const char *provider,
                                const char *except, int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE company_secret_provider_configs SET is_default = 0, updated_at = ?4 "
                       "WHERE company_id = ?1 AND provider = ?2 AND id <> ?3 AND is_default = 1",
                       DB_ARGS(DB_T(company_id), DB_T(provider), DB_T(except), DB_I(now_us)), err);
}
