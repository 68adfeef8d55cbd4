/* Which capabilities of a plugin's driver count for a lease. */
#include "core/kinds/plugin/plugin_capabilities.h"

#include "core/plugins/plugin_registry.h"

#define METHODS_MAX 3

/* The methods that each capability needs, and whether it counts when the manifest does not mention
 * it. */
static const struct {
        const char *name;
        const char *methods[METHODS_MAX];
        bool by_default;
} table[N_CAPABILITIES] = {
        [CAPABILITY_REUSABLE_LEASES] = { "reusableLeases",
                                         { "environmentResumeLease", "environmentReleaseLease",
                                           "environmentDestroyLease" },
                                         false },
        [CAPABILITY_NATIVE_SYNC_IN] = { "nativeSyncIn", { "environmentSyncIn" }, true },
        [CAPABILITY_NATIVE_SYNC_OUT] = { "nativeSyncOut", { "environmentSyncOut" }, true },
        [CAPABILITY_PERSISTENT_SESSIONS] = { "persistentProcessSessions",
                                             { "environmentExecute" },
                                             true },
        [CAPABILITY_INDEPENDENT_CONTROL] = { "independentControlCommands",
                                             { "environmentExecute" },
                                             true },
        [CAPABILITY_INCREMENTAL_OUTPUT] = { "incrementalSessionOutput",
                                            { "environmentExecute" },
                                            false },
        [CAPABILITY_CONCURRENT_SYNC] = { "concurrentSyncOperations",
                                         { "environmentSyncIn", "environmentSyncOut" },
                                         false },
        [CAPABILITY_DUPLEX_STREAM] = { "duplexCommandStream", { "duplexChannelOpen" }, false },
};

static bool is_verified(const struct plugin_capability_facts *f, enum plugin_capability c)
{
        for (size_t i = 0; i < METHODS_MAX && table[c].methods[i]; i++)
                if (!f->supports(f->ctx, table[c].methods[i]))
                        return false;
        return true;
}

/* The nested declaration wins over the older one for reuse. */
static bool is_declared(const struct plugin_capability_facts *f, enum plugin_capability c)
{
        const json_t *said =
                json_object_get(json_get_object(f->driver, "sandboxCapabilities"), table[c].name);

        if (!said && c == CAPABILITY_REUSABLE_LEASES)
                said = json_object_get(f->driver, "supportsReusableLeases");
        return said ? json_is_true(said) : table[c].by_default;
}

static bool rules_out_sync(const json_t *metadata)
{
        const char *backend = json_get_string(metadata, "backend");

        return (backend && streq(backend, "job")) ||
               json_is_true(json_object_get(metadata, "nativeFileSyncUnsupported"));
}

static bool is_narrowed(const struct plugin_capability_facts *f, enum plugin_capability c)
{
        switch (c) {
        case CAPABILITY_REUSABLE_LEASES:
                return !f->lease_policy || !streq(f->lease_policy, POLICY_REUSE_ENVIRONMENT);
        case CAPABILITY_NATIVE_SYNC_IN:
        case CAPABILITY_NATIVE_SYNC_OUT:
        case CAPABILITY_CONCURRENT_SYNC:
                return rules_out_sync(f->lease_metadata);
        case CAPABILITY_PERSISTENT_SESSIONS:
        case CAPABILITY_INCREMENTAL_OUTPUT:
        case CAPABILITY_DUPLEX_STREAM:
                return !f->config_is_resolved;
        default:
                return false;
        }
}

struct plugin_capabilities plugin_capabilities_effective(const struct plugin_capability_facts *f)
{
        struct plugin_capabilities all = { 0 };

        for (int i = 0; i < N_CAPABILITIES && f->is_same_plugin; i++) {
                enum plugin_capability c = (enum plugin_capability)i;

                all.has[i] = is_verified(f, c) && is_declared(f, c) && !is_narrowed(f, c);
        }
        return all;
}

json_t *plugin_capabilities_to_json(const struct plugin_capabilities *c)
{
        json_t *v = json_object();

        for (int i = 0; i < N_CAPABILITIES; i++)
                json_object_set_new(v, table[i].name, json_boolean(c->has[i]));
        return v;
}

struct plugin_capabilities plugin_capabilities_from_json(const json_t *v)
{
        struct plugin_capabilities c = { 0 };

        for (int i = 0; i < N_CAPABILITIES; i++)
                c.has[i] = json_is_true(json_object_get(v, table[i].name));
        return c;
}

/* Of a lease */

struct asked {
        struct plugin_host *host;
        const char *plugin_id;
};

static bool host_supports(void *ctx, const char *method)
{
        const struct asked *a = ctx;

        return plugin_host_supports(a->host, a->plugin_id, method);
}

struct plugin_capabilities plugin_lease_capabilities(struct runtime *rt,
                                                     const struct plugin_lease *lease)
{
        struct asked asked = { plugin_registry_host(rt->plugins), lease->target.plugin_id };
        const char *made_by = json_get_string(lease->metadata, "pluginId");

        return plugin_capabilities_effective(&(struct plugin_capability_facts){
                .supports = host_supports,
                .ctx = &asked,
                .driver = lease->target.driver,
                .lease_policy = lease->lease->policy,
                .lease_metadata = plugin_lease_said(lease),
                .config_is_resolved = true, /* every call resolves it, or fails */
                .is_same_plugin = made_by && streq(made_by, lease->target.plugin_id),
        });
}
