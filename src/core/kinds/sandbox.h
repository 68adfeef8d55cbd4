/* Sandbox providers that are built in. The sandbox driver finds one by the `provider` member of the
 * configuration; everything not built in comes from plugins. Immutable. */
#ifndef BERTH_CORE_PROVIDER_H
#define BERTH_CORE_PROVIDER_H

#include "core/kinds/kind.h"

#define PROVIDER_FAKE  "fake"
#define PROVIDER_BERTH "berth"

struct provider {
        const char *key;
        const char *display_name;
        const char *description; /* NULL: none */
        bool supports_run_execution;
        json_t *(*schema)(void); /* of its configuration; a new reference. NULL: none */
        /* Check a configuration and fill in defaults. NULL: env_config.c knows how. */
        int (*normalize)(json_t *config, json_t **ret, struct err *err);
        /* What this daemon does not allow in a normal configuration. NULL: nothing. */
        int (*check)(const struct runtime *rt, const json_t *config, struct err *err);
        /* NULL: provider_config_matches(). */
        bool (*matches)(const json_t *recorded, const json_t *config);
        /* See the members of the same name in struct driver. */
        int (*claim)(struct db *db, struct runtime *rt, const struct place *place,
                     struct arena *arena, struct err *err);
        int (*open)(struct op *op, struct runtime *rt, const struct place *place,
                    const struct lease_request *req, struct provider_lease *ret, struct err *err);
        int (*resume)(struct op *op, struct runtime *rt, const struct place *place,
                      const struct lease_request *req, struct provider_lease *ret, struct err *err);
        int (*park)(struct op *op, struct runtime *rt, const struct place *place, struct err *err);
        int (*close)(struct op *op, struct runtime *rt, const struct place *place, struct err *err);
        int (*list)(struct op *op, struct runtime *rt, driver_found_fn fn, void *ctx,
                    struct err *err);
        enum life (*is_alive)(const struct runtime *rt, const struct place *place);
        int (*pause_lease)(struct op *op, struct runtime *rt, const struct lease *lease,
                           struct buf *ret_json, struct err *err);
        int (*resume_lease)(struct op *op, struct runtime *rt, const struct lease *lease,
                            struct buf *ret_json, struct err *err);
        bool can_destroy;
        int (*prepare_exec)(struct op *op, struct runtime *rt, const struct lease_record *record,
                            json_t *request, struct exec_request *ret, struct err *err);
        /* {ok, summary, details} of a configuration that was checked before. */
        int (*probe)(struct op *op, struct runtime *rt, const char *company_id,
                     const json_t *config, struct buf *ret_summary, json_t *details, bool *ret_ok,
                     struct err *err);
};

extern const struct provider provider_fake;
extern const struct provider provider_berth;

/* All built-in providers; NULL-terminated. */
extern const struct provider *const builtin_providers[];

/* NULL when `key` is not built in. */
const struct provider *provider_lookup(const char *key);
/* ERR_UNPROCESSABLE `Sandbox provider "x" is not registered as a built-in provider.` */
int provider_find(const char *key, const struct provider **ret, struct err *err);

/* What the daemon does not allow in a normal sandbox configuration: the provider's check. */
int provider_check(const struct runtime *rt, const json_t *config, struct err *err);

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
