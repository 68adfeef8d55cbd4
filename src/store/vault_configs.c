/* SQL for `company_secret_provider_configs`. */
#include "store/vault_configs.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct vault_row, id, "id", FIXED),
        TEXT(struct vault_row, company_id, "companyId", FIXED),
        TEXT(struct vault_row, provider, "provider", FIXED),
        TEXT(struct vault_row, display_name, "displayName"),
        TEXT(struct vault_row, status, "status"),
        FLAG(struct vault_row, is_default, "isDefault"),
        DOCUMENT(struct vault_row, config, "config"),
        TEXT(struct vault_row, health_status, "healthStatus"),
        TIME_OR_NULL(struct vault_row, health_checked_at, "healthCheckedAt"),
        TEXT(struct vault_row, health_message, "healthMessage"),
        DOCUMENT(struct vault_row, health_details, "healthDetails"),
        TIME_OR_NULL(struct vault_row, disabled_at, "disabledAt"),
        TEXT(struct vault_row, created_by_agent_id, "createdByAgentId", FIXED),
        TEXT(struct vault_row, created_by_user_id, "createdByUserId", FIXED),
        TIME(struct vault_row, created_at, "createdAt", FIXED),
        TIME(struct vault_row, updated_at, "updatedAt"),
};
const struct row_type vault_table = ROW_TYPE("company_secret_provider_configs", struct vault_row,
                                             columns, "Provider vault not found");

int vault_configs_list(struct db *db, const char *company_id, struct arena *arena, vault_row_fn fn,
                       void *ctx, struct err *err)
{
        return ROW_EACH(db, &vault_table,
                        "SELECT * FROM company_secret_provider_configs "
                        "WHERE company_id = ?1 ORDER BY created_at, id",
                        DB_ARGS(DB_T(company_id)), arena, fn, ctx, err);
}

int vault_configs_update(struct db *db, const struct vault_row *row, int64_t seen_updated_at,
                         struct err *err)
{
        return row_exec(
                db, &vault_table,
                "UPDATE company_secret_provider_configs SET * WHERE id = ?1 AND updated_at = ?2",
                row, DB_ARGS(DB_T(row->id), DB_I(seen_updated_at)), err);
}

int vault_configs_clear_default(struct db *db, const char *company_id, const char *provider,
                                const char *except, int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE company_secret_provider_configs SET is_default = 0, updated_at = ?4 "
                       "WHERE company_id = ?1 AND provider = ?2 AND id <> ?3 AND is_default = 1",
                       DB_ARGS(DB_T(company_id), DB_T(provider), DB_T(except), DB_I(now_us)), err);
}
