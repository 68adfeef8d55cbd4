/* What a driver of a plugin can do for a lease, beyond the ten methods that every provider has.
 *
 * A capability counts when three agree: the worker says that it has the methods for it, the
 * manifest does not say otherwise (some have to be declared), and nothing about this lease rules it
 * out. Everything else is false, so a caller can always fall back to plain execute.
 *
 * Pure, but for plugin_lease_capabilities(), which asks the host. Any thread. */
#pragma once

#include "core/kinds/plugin/plugin_place.h"

enum plugin_capability {
        CAPABILITY_REUSABLE_LEASES,
        CAPABILITY_NATIVE_SYNC_IN,
        CAPABILITY_NATIVE_SYNC_OUT,
        CAPABILITY_PERSISTENT_SESSIONS,
        CAPABILITY_INDEPENDENT_CONTROL,
        CAPABILITY_INCREMENTAL_OUTPUT,
        CAPABILITY_CONCURRENT_SYNC,
        CAPABILITY_DUPLEX_STREAM,
        N_CAPABILITIES,
};

struct plugin_capabilities {
        bool has[N_CAPABILITIES];
};

struct plugin_capability_facts {
        bool (*supports)(void *ctx, const char *method); /* what the worker advertises */
        void *ctx;
        const json_t *driver;         /* its element of the manifest; NULL: nothing is declared */
        const char *lease_policy;     /* NULL: ephemeral */
        const json_t *lease_metadata; /* what the provider said of the lease; NULL: nothing */
        bool config_is_resolved;
        bool is_same_plugin; /* the lease was made by the plugin that is asked */
};

struct plugin_capabilities plugin_capabilities_effective(const struct plugin_capability_facts *f);

/* {name: bool} of all. A new reference. */
json_t *plugin_capabilities_to_json(const struct plugin_capabilities *c);
/* A member that is missing or is not a boolean is false. */
struct plugin_capabilities plugin_capabilities_from_json(const json_t *v);

/* Of a lease that a plugin keeps. */
struct plugin_capabilities plugin_lease_capabilities(struct runtime *rt,
                                                     const struct plugin_lease *lease);
