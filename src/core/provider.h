/* Sandbox providers that are built in. The sandbox driver finds one by the `provider` member of the
 * configuration; everything not built in comes from plugins. Immutable. */
#ifndef BERTH_CORE_PROVIDER_H
#define BERTH_CORE_PROVIDER_H

#include "core/driver.h"

#define PROVIDER_FAKE "fake"

struct provider {
        const char *key;
        const char *display_name;
        bool supports_run_execution;
        /* See the members of the same name in struct driver. */
        int (*open)(struct op *op, struct runtime *rt, const struct place *place,
                    const struct lease_request *req, struct provider_lease *ret, struct err *err);
        int (*resume)(struct op *op, struct runtime *rt, const struct place *place,
                      const struct lease_request *req, struct provider_lease *ret, struct err *err);
        int (*park)(struct op *op, struct runtime *rt, const struct place *place, struct err *err);
        int (*close)(struct op *op, struct runtime *rt, const struct place *place, struct err *err);
        int (*list)(struct op *op, struct runtime *rt, driver_found_fn fn, void *ctx,
                    struct err *err);
        /* {ok, summary, details} of a configuration that was checked before. */
        int (*probe)(struct op *op, struct runtime *rt, const json_t *config,
                     struct buf *ret_summary, json_t *details, bool *ret_ok, struct err *err);
};

extern const struct provider provider_fake;

/* All built-in providers; NULL-terminated. */
extern const struct provider *const builtin_providers[];

/* NULL when `key` is not built in. */
const struct provider *provider_lookup(const char *key);
/* ERR_UNPROCESSABLE `Sandbox provider "x" is not registered as a built-in provider.` */
int provider_find(const char *key, const struct provider **ret, struct err *err);

/* The provider key of a sandbox configuration: trimmed `provider`, "fake" when absent or blank. The
 * result is in the arena. */
const char *provider_key_of(const json_t *config, struct arena *arena);

/* Whether what was recorded for a place or lease serves this configuration (the reuse rule): same
 * provider, reuseLease true, and every other member of the configuration equal. */
bool provider_config_matches(const json_t *recorded, const json_t *config);

/* The provider configuration that a lease's metadata still tells. Strict knows built-in providers
 * only and returns NULL for others; loose keeps every member of the others. New references. */
json_t *provider_config_from_metadata_strict(const json_t *metadata);
json_t *provider_config_from_metadata_loose(const json_t *metadata);

#endif
