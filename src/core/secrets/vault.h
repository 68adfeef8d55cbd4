/* The vaults of a company: where secrets may be kept besides our own database, which one is the
 * default, whether it works; and linking to secrets that a vault holds already. Configurations name
 * places and never hold credentials.
 *
 * Operation threads; board callers. Results live in the operation's arena. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"
#include "secret/vault.h"
#include "store/vault_configs.h"

/* secret_may() says whether the caller may. */
struct vault_spec {
        const char *provider, *display_name, *status;
        bool is_default;
        const char *config; /* as vault_check_config() made it */
};
int vault_create(struct op *op, struct runtime *rt, const char *company_id,
                 const struct vault_spec *spec, struct vault_row *ret, struct err *err);
int vault_get(struct op *op, struct runtime *rt, const char *id, struct vault_row *ret,
              struct err *err);
int vault_list(struct op *op, struct runtime *rt, const char *company_id, vault_row_fn fn,
               void *ctx, struct err *err);
/* NULL: stays as it is. */
struct vault_change {
        const char *display_name, *status;
        bool has_default, is_default;
        json_t *config; /* checked here: the provider is known with the row only */
};
int vault_update(struct op *op, struct runtime *rt, const char *id,
                 const struct vault_change *change, struct vault_row *ret, struct err *err);
/* The row stays; nothing can use it any more. */
int vault_disable(struct op *op, struct runtime *rt, const char *id, struct vault_row *ret,
                  struct err *err);
int vault_set_default(struct op *op, struct runtime *rt, const char *id, struct vault_row *ret,
                      struct err *err);

/* Asks the provider, and keeps the result in the row. */
struct vault_checkup {
        const char *provider, *status, *message, *code;
        const char *details; /* JSON: {code, message, guidance?} */
        int64_t checked_at;
};
int vault_check_health(struct op *op, struct runtime *rt, const char *id, struct vault_checkup *ret,
                       struct err *err);

/* Linking to secrets that a vault holds already. No value is read. */

/* An instance admin, or an owner where the operator lets owners do it. */
int vault_may_import(struct op *op, struct runtime *rt, const char *company_id, struct err *err);

struct vault_import {
        const char *ref, *name, *key; /* key NULL: none can be made of the name */
        const char *version_ref, *description;

        /* for a preview: as the vault says */
        const char *remote_name;
        const char *metadata; /* JSON, reduced to a few harmless members */

        /* found: what stands in the way. NULL: nothing */
        const char *same_reference, *same_name, *same_key; /* ids of secrets */
        const char *refusal;                               /* by the provider */
        /* done */
        const char *status, *reason, *secret_id;
};
struct vault_imports {
        const char *config_id, *provider;
        struct vault_import *list;
        size_t n;
        const char *next_token; /* of a preview */
};

int vault_import_preview(struct op *op, struct runtime *rt, const char *company_id,
                         const char *config_id, const struct vault_page *page,
                         struct vault_imports *ret, struct err *err);
/* Link those of the list, which has ref, name, version_ref and description: each gets its result.
 */
int vault_import_commit(struct op *op, struct runtime *rt, const char *company_id,
                        struct vault_imports *list, struct err *err);
/* The name of a secret that nobody named: the last part of its reference. */
const char *vault_name_of(const char *ref);

extern const char *const vault_statuses[]; /* NULL at the end */
/* What a vault without a status gets; and why it may not have this one: NULL when it may. */
const char *vault_first_status(const char *provider);
const char *vault_check_status(const char *provider, const char *status, bool is_default,
                               struct arena *arena);

/* A vault's configuration for its provider, checked and in one form: *ret is a new reference. Adds
 * issues to `c`, at `key`. */
struct check;
void vault_check_config(struct check *c, const char *key, const char *provider, json_t *config,
                        json_t **ret);
/* The checks of a configuration that need no provider: no credentials, and an address that is only
 * an origin. */
void vault_check_any_config(struct check *c, const char *key, json_t *config);
