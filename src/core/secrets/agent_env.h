/* The variables of an agent: the member `env` of its adapterConfig. Texts and references to secrets
 * are checked when they are saved, and the bindings follow in the same transaction.
 *
 * Only board users may add references: an agent that could name any secret of its company for
 * itself would have it. An agent may keep existing references.
 *
 * Inside store functions. */
#pragma once

#include "core/secrets/secret.h"

#define AGENT_ENV_PREFIX "env."

/* Check the variables of `config` and bring them into one form, in place. `before`: the stored
 * configuration, or NULL. */
int agent_env_check(struct db *db, struct op *op, const struct runtime *rt, const char *company_id,
                    const json_t *before, json_t *config, struct err *err);
/* After the row was written. */
int agent_env_bind(struct db *db, struct op *op, const char *company_id, const char *agent_id,
                   const json_t *config, struct err *err);
/* For a deleted or terminated agent: it may use no secret any more. */
int agent_env_unbind(struct db *db, const char *company_id, const char *agent_id, struct err *err);
