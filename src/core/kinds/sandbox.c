/* What the kinds of the driver `sandbox` have in common. */
#include "core/kinds/sandbox.h"

#include "core/kinds/realization.h"

bool sandbox_reuses(const json_t *config, const struct lease_request *req)
{
        return json_is_true(json_object_get(config, "reuseLease")) && req->run_id;
}

int sandbox_plan(struct op *op, struct runtime *rt, const struct kind *kind, const json_t *config,
                 const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        bool reuse = sandbox_reuses(config, req);
        int r = kind->check ? kind->check(rt, config, err) : 0;

        if (r < 0)
                return r;
        *ret = (struct lease_plan){
                .provider = kind->provider,
                .policy = reuse ? POLICY_REUSE_ENVIRONMENT : POLICY_EPHEMERAL,
                .config = json_to_arena(op->arena, config),
                .has_world = true,
                .reuse = reuse,
                .stock = kind->stock_size && kind->stock_size(config) > 0,
        };
        return 0;
}

/* Configurations */

bool sandbox_config_matches(const json_t *recorded, const json_t *config)
{
        const char *have = json_get_string(recorded, "provider");
        const char *want = json_get_string(config, "provider");
        const char *key;
        json_t *value;

        if (!have || !want || !streq(have, want) ||
            !json_is_true(json_object_get(recorded, "reuseLease")))
                return false;
        json_object_foreach((json_t *)config, key, value)
        {
                json_t *other = json_object_get(recorded, key);

                if (streq(key, "provider") || streq(key, "reuseLease"))
                        continue;
                if (!other || !json_equal(other, value))
                        return false;
        }
        return true;
}

bool sandbox_matches(const char *recorded, const char *wanted)
{
        CLEAN(json_decrefp) json_t *have = NULL;
        CLEAN(json_decrefp) json_t *want = NULL;

        return json_parse(recorded, strlen(recorded), &have, NULL) >= 0 &&
               json_parse(wanted, strlen(wanted), &want, NULL) >= 0 &&
               sandbox_config_matches(have, want);
}

int sandbox_builtin(const struct runtime *rt, const char *provider, const struct kind **ret,
                    struct err *err)
{
        const struct kind *kind = kind_of_provider(rt, provider);

        if (!kind)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Sandbox provider \"%s\" is not registered as a built-in provider.",
                               provider);
        *ret = kind;
        return 0;
}

json_t *sandbox_config_from_metadata_strict(const json_t *metadata)
{
        const char *provider = json_get_string(metadata, "provider");
        const char *image = json_get_string(metadata, "image");

        if (!provider || !streq(provider, "fake") || !image)
                return NULL;
        return json_pack("{s:s, s:s, s:b}", "provider", provider, "image", image, "reuseLease",
                         json_is_true(json_object_get(metadata, "reuseLease")));
}

json_t *sandbox_config_from_metadata_loose(const struct runtime *rt, const json_t *metadata)
{
        const char *provider = json_get_string(metadata, "provider");
        const struct kind *kind;

        if (!provider)
                return NULL;
        if (sandbox_builtin(rt, provider, &kind, NULL) >= 0)
                return sandbox_config_from_metadata_strict(metadata);
        json_t *config = json_copy((json_t *)metadata);
        json_object_set_new(config, "reuseLease",
                            json_boolean(json_is_true(json_object_get(metadata, "reuseLease"))));
        return config;
}

/* Loopback, and abstract Unix sockets, are those of the machine. */
bool sandbox_reaches_host(const json_t *config)
{
        const char *network = json_get_string(config, "network");

        return network && streq(network, "host");
}

/* Leases */

void sandbox_describe(const struct place *place, const struct provider_lease *opened, bool resumed,
                      json_t *metadata)
{
        if (opened->metadata)
                json_object_update(metadata, opened->metadata);
        if (resumed)
                json_object_set_new(metadata, "resumedLease", json_true());
}

int sandbox_realize(struct op *op, struct runtime *rt, const struct environment *env,
                    const struct lease *lease, json_t *workspace, json_t **ret, struct err *err)
{
        *ret = realization_elsewhere(op, kind_find(rt, "sandbox", lease->provider), env, lease,
                                     workspace);
        return 0;
}

static json_t *sandbox_summary(const json_t *metadata, const char *local, const char *remote,
                               const char *cwd)
{
        const char *id = json_string_value(realization_sandbox_id(metadata));

        return json_sprintf("Sandbox workspace realized at %s%s%s.", remote ? remote : "/",
                            id ? " in " : "", id ? id : "");
}

const struct kind_realization sandbox_realization = {
        .strategy = "sandbox_archive_upload_download",
        .prepare = "The workspace is sent to the sandbox before the command starts.",
        .sync_back = "Changes are brought back after the command ends.",
        .summary = sandbox_summary,
};
