/* A secret that is being made: shared by the files of core/secrets/secret.h, and by code that makes
 * a secret together with a row of its own (environments).
 *
 *     secret_draft_make()      checks; reserves and asks the vault when the value lives outside
 *     store_write(...)         secret_draft_commit() beside the caller's own rows
 *     secret_draft_abandon()   when that failed
 *
 * The value is borrowed from make to commit. */
#pragma once

#include "core/secrets/secret.h"
#include "store/vault_configs.h"

/* In reserved_by: no operation works on it any more, the sweeper may take it up. */
#define SECRET_ABANDONED "abandoned"

/* The provider of a secret and, when one was selected, the vault. */
struct vault_choice {
        const struct vault_provider *provider;
        struct vault_config config;
};

struct secret_draft {
        struct runtime *rt;
        struct secret secret;
        struct secret_version version;
        struct vault_choice vault;
        struct vault_subject subject;
        struct vault_material material;
        const struct secret_value *value;
        bool is_reserved;
};

/* The provider that rt knows by this key; 422 for an unknown one. */
int vault_provider_find(const struct runtime *rt, const char *key,
                        const struct vault_provider **ret, struct err *err);
/* Choose a vault: checks that it is the company's, of the provider, and usable. config_id may be
 * NULL. Inside a store function. */
int vault_choose(struct db *db, const struct runtime *rt, struct arena *arena,
                 const char *company_id, const char *provider, const char *config_id,
                 struct vault_choice *ret, struct err *err);

/* The row of a vault for a caller who may see or change it. */
int vault_load(struct db *db, const struct op *op, const char *id, bool write,
               struct vault_row *ret, struct err *err);

/* As in Paperclip: lower case, runs of other characters to '-', at most 120. NULL when nothing is
 * left. */
const char *secret_normalize_key(struct arena *arena, const char *text);

int secret_draft_make(struct op *op, struct runtime *rt, const char *company_id,
                      const struct secret_spec *spec, const struct secret_value *value,
                      struct secret_draft *ret, struct err *err);
int secret_draft_commit(struct db *db, const struct op *op, struct secret_draft *draft,
                        struct err *err);
/* Undo what make did outside; the sweeper does what cannot be undone now. */
void secret_draft_abandon(struct op *op, struct secret_draft *draft);

/* Removing a secret in two steps: mark() inside the caller's transaction, which is enough for a
 * value in our own database, then finish() outside it. */
struct secret_removal {
        struct secret secret;
        bool is_done; /* gone with the transaction */
};
int secret_removal_mark(struct db *db, const struct op *op, const struct runtime *rt,
                        const struct secret *secret, struct secret_removal *ret, struct err *err);
int secret_removal_finish(struct op *op, struct runtime *rt, const struct secret *secret,
                          struct err *err);

/* Continue an interrupted change of the master key; does nothing when there is none. */
int secret_rekey_finish(struct op *op, struct runtime *rt, struct err *err);

/* The vault's name for the secret. */
struct vault_subject secret_subject(const struct secret *secret, int64_t version);
struct vault_material secret_material(const struct secret *secret,
                                      const struct secret_version *version);

/* Check that the caller may manage secrets of the company. */
int secret_guard(struct db *db, const struct op *op, const char *company_id, bool write,
                 struct err *err);
/* ERR_FORBIDDEN when the caller may not link to existing secrets of a vault outside. They are read
 * with the credentials of this server, which do not distinguish companies: secrets that another
 * company keeps or has linked there are among them. */
int secret_may_link(const struct runtime *rt, const struct op *op, struct err *err);
/* The row of a secret for such a caller; ERR_NOT_FOUND for a deleted one unless `deleted_too`. */
int secret_load(struct db *db, const struct op *op, const char *id, bool write, bool deleted_too,
                struct secret *ret, struct err *err);
/* Write the row; ERR_CONFLICT when it changed meanwhile. */
int secret_store(struct db *db, struct secret *secret, struct err *err);
void secret_name_creator(const struct op *op, const char **ret_agent, const char **ret_user);
