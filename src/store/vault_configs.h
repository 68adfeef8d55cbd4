/* Rows of `company_secret_provider_configs`: the vaults of a company. */
#pragma once

#include "store/db.h"

#define VAULT_READY    "ready"
#define VAULT_WARNING  "warning"
#define VAULT_SOON     "coming_soon"
#define VAULT_DISABLED "disabled"

struct vault_row {
        const char *id, *company_id, *provider, *display_name, *status;
        bool is_default;
        const char *config; /* JSON object */
        const char *health_status, *health_message, *health_details;
        int64_t health_checked_at, disabled_at; /* 0: never */
        const char *created_by_agent_id, *created_by_user_id;
        int64_t created_at, updated_at;
};

extern const struct row_type vault_table;

typedef int (*vault_row_fn)(void *ctx, const struct vault_row *row);

ROW_BASICS(vault_configs, struct vault_row,
           vault_table) /* vault_configs_insert(), vault_configs_get() */
/* In the order in which they were made. */
int vault_configs_list(struct db *db, const char *company_id, struct arena *arena, vault_row_fn fn,
                       void *ctx, struct err *err);
/* Everything but id, company, provider and creator, if the row is still as it was at
 * `seen_updated_at`; returns 0 when it is not. */
int vault_configs_update(struct db *db, const struct vault_row *row, int64_t seen_updated_at,
                         struct err *err);
/* No vault of this provider but `except` is the default. */
int vault_configs_clear_default(struct db *db, const char *company_id, const char *provider,
                                const char *except, int64_t now_us, struct err *err);
