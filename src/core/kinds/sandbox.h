/* What the kinds of the driver `sandbox` have in common: those that are built in (berth, fake) and
 * those of plugins. Operation threads, except for what is pure. */
#pragma once

#include "core/kinds/kind.h"

/* The plan for a normal configuration, which becomes the place's as it stands. */
int sandbox_plan(struct op *op, struct runtime *rt, const struct kind *kind, const json_t *config,
                 const struct lease_request *req, struct lease_plan *ret, struct err *err);
/* Whether a lease takes up places that other leases left, and leaves its place to others: an ad-hoc
 * lease does neither. */
bool sandbox_reuses(const json_t *config, const struct lease_request *req);

/* Members of struct kind. */
bool sandbox_matches(const char *recorded, const char *wanted);
void sandbox_describe(const struct place *place, const struct provider_lease *opened, bool resumed,
                      json_t *metadata);
bool sandbox_reaches_host(const json_t *config);
int sandbox_realize(struct op *op, struct runtime *rt, const struct environment *env,
                    const struct lease *lease, json_t *workspace, json_t **ret, struct err *err);
extern const struct kind_realization sandbox_realization;

/* Whether the configuration recorded for a place or lease serves this one (the reuse rule): same
 * provider, reuseLease true, and every other member of the configuration equal. */
bool sandbox_config_matches(const json_t *recorded, const json_t *config);

/* The built-in kind that has a provider: ERR_UNPROCESSABLE
 * `Sandbox provider "x" is not registered as a built-in provider.` */
int sandbox_builtin(const struct runtime *rt, const char *provider, const struct kind **ret,
                    struct err *err);
/* The provider configuration that can still be read from a lease's metadata. Strict knows built-in
 * providers only and returns NULL for others; loose keeps every member of the others. New
 * references. */
json_t *sandbox_config_from_metadata_strict(const json_t *metadata);
json_t *sandbox_config_from_metadata_loose(const struct runtime *rt, const json_t *metadata);
