/* The secrets in an environment's configuration: submitted values become secrets of the company,
 * made in the transaction that writes the environment, and the configuration holds their ids. A
 * secret made for an environment is removed with the environment, or when it is replaced, unless
 * something else has a binding to it; secrets picked from the company's are never touched.
 *
 *     env_secrets_extract()    values out, references in; asks vaults
 *     store_write(...)         env_secrets_commit() beside the environment's row
 *     env_secrets_finish()     afterwards, or env_secrets_abandon() when it failed
 *
 * Operation threads. */
#pragma once

#include "core/secrets/secret_draft.h"
#include "store/environments.h"

struct env_secrets {
        struct secret_draft *drafts; /* heap, as the others */
        struct secret_value *values;
        size_t n_drafts;
        struct secret_removal *removals;
        size_t n_removals;
};

/* `config` has the submitted form and is changed in place to the stored form. `schema` describes a
 * sandbox's configuration; NULL: no secrets in it. */
int env_secrets_extract(struct op *op, struct runtime *rt, const struct environment *env,
                        json_t *config, const json_t *schema, struct env_secrets *ret,
                        struct err *err);
/* After the row was written: make the new secrets and all bindings, and remove secrets that are not
 * needed any more. */
int env_secrets_commit(struct db *db, const struct op *op, struct runtime *rt,
                       const struct environment *env, const json_t *config, const json_t *schema,
                       struct env_secrets *s, struct err *err);
/* Before the row is deleted. */
int env_secrets_remove(struct db *db, const struct op *op, struct runtime *rt,
                       const struct environment *env, struct env_secrets *s, struct err *err);
/* Finish the work outside the store, and free all memory. */
void env_secrets_finish(struct op *op, struct runtime *rt, struct env_secrets *s);
void env_secrets_abandon(struct op *op, struct env_secrets *s);

/* Remove secrets of environments that are gone or do not use them any more, once no place of the
 * environment lives. */
int env_secrets_sweep(struct op *op, struct runtime *rt, struct err *err);
