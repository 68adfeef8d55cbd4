/* The vaults of a company: where secrets may be kept besides our own database, which one is the
 * default, whether it works; and linking to secrets that a vault holds already. Configurations name
 * places and never hold credentials.
 *
 * Operation threads; board callers. Bodies are the API's JSON. */
#ifndef BERTH_CORE_VAULT_H
#define BERTH_CORE_VAULT_H

#include "codec/json.h"
#include "core/access/access.h"
#include "secret/vault.h"
#include "store/vault_configs.h"

int vault_create(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                 struct vault_row *ret, struct err *err);
int vault_get(struct op *op, struct runtime *rt, const char *id, struct vault_row *ret,
              struct err *err);
int vault_list(struct op *op, struct runtime *rt, const char *company_id, vault_row_fn fn,
               void *ctx, struct err *err);
int vault_update(struct op *op, struct runtime *rt, const char *id, json_t *body,
                 struct vault_row *ret, struct err *err);
/* The row stays; nothing can use it any more. */
int vault_disable(struct op *op, struct runtime *rt, const char *id, struct vault_row *ret,
                  struct err *err);
int vault_set_default(struct op *op, struct runtime *rt, const char *id, struct vault_row *ret,
                      struct err *err);
/* Asks the provider, keeps the result in the row and writes the API's document. */
int vault_check_health(struct op *op, struct runtime *rt, const char *id, struct buf *ret_json,
                       struct err *err);

/* The providers, and the state of each without a vault. */
int vault_write_providers(struct op *op, struct runtime *rt, const char *company_id,
                          struct buf *ret_json, struct err *err);
int vault_write_health(struct op *op, struct runtime *rt, const char *company_id,
                       struct buf *ret_json, struct err *err);

/* Linking to secrets that a vault holds already. No value is read. */
int vault_import_preview(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                         struct buf *ret_json, struct err *err);
int vault_import_commit(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                        struct buf *ret_json, struct err *err);

/* A vault's configuration for its provider, checked and in one form: *ret is a new reference. Adds
 * issues to `c`, at `key`. */
struct check;
void vault_check_config(struct check *c, const char *key, const char *provider, json_t *config,
                        json_t **ret);
/* The checks of a configuration that need no provider: no credentials, and an address that is only
 * an origin. */
void vault_check_any_config(struct check *c, const char *key, json_t *config);

#endif
