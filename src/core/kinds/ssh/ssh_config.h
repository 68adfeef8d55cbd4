/* The configuration of an ssh environment, and from there to a target: its secrets are resolved
 * here, for one login each, and kept nowhere. Operation threads. */
#pragma once

#include "core/kinds/kind.h"
#include "core/secrets/secret.h"
#include "ssh/target.h"

#define SSH_MODE_PER_RUN  "per_run"
#define SSH_MODE_IN_PLACE "in_place"

extern const struct kind kind_ssh;

/* Members of struct kind. */
int ssh_config_normalize(const struct kind *kind, json_t *config, enum config_form form,
                         json_t **ret, struct err *err);
/* Whether the actor may have the daemon use its operator's own keys. */
int ssh_config_may(const struct op *op, const struct runtime *rt, const json_t *config,
                   struct err *err);

/* Of the stored form, or of the submitted one with a key in it. Texts are the document's. */
void ssh_config_read(const json_t *config, struct ssh_target *ret);

/* With the key from its secret. *ret_resolved holds everything that *ret points to, the key in
 * clear included: a new reference, to be dropped as soon as the login is over. */
int ssh_config_resolve(struct op *op, struct runtime *rt, const char *company_id,
                       const char *environment_id, json_t *config,
                       const struct secret_context *context, struct ssh_target *ret,
                       json_t **ret_resolved, struct err *err);
