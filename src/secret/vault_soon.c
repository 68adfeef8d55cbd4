/* Google's Secret Manager and HashiCorp's Vault: references can be kept, values not yet. */
#include "secret/vault.h"

static bool soon_is_configured(void)
{
        return false;
}

static int soon_create(struct op *op, const struct vault_config *config,
                       const struct vault_subject *subject, const struct secret_value *value,
                       struct vault_material *ret, struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE,
                       "%s provider is not configured for Paperclip-managed values",
                       config->provider);
}

static int soon_create_version(struct op *op, const struct vault_config *config,
                               const struct vault_subject *subject,
                               const struct vault_material *current,
                               const struct secret_value *value, struct vault_material *ret,
                               struct err *err)
{
        return soon_create(op, config, subject, value, ret, err);
}

static int soon_link(struct op *op, const struct vault_config *config,
                     const struct vault_subject *subject, const char *ref, const char *version,
                     struct vault_material *ret, struct err *err)
{
        CLEAN(json_decrefp)
        json_t *doc = json_pack("{s:s, s:s, s:s, s:o}", "scheme", "external_reference_v1",
                                "provider", config->provider, "externalRef", ref,
                                "providerVersionRef", json_string_or_null(version));
        const char *text =
                arena_printf(op->arena, "%s:%s:%s", config->provider, ref, version ? version : "");
        /* A reference is no secret: a plain hash names it. */
        const char *hash = vault_hash(op->arena, text, strlen(text));

        *ret = (struct vault_material){
                .material = json_to_arena(op->arena, doc),
                .external_ref = arena_strdup(op->arena, ref),
                .version_ref = arena_strdup(op->arena, version),
                .fingerprint = hash,
                .value_mark = hash,
        };
        return 0;
}

static int soon_resolve(struct op *op, const struct vault_config *config,
                        const struct vault_subject *subject, const struct vault_material *material,
                        struct secret_value *ret, struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE, "%s provider is not configured in this deployment",
                       config->provider);
}

static int soon_remove(struct op *op, const struct vault_config *config,
                       const struct vault_subject *subject, const struct vault_material *material,
                       enum vault_removal mode, struct err *err)
{
        return 0; /* the secret that it refers to is not ours */
}

static int soon_health(struct op *op, const struct vault_config *config, struct vault_health *ret,
                       struct err *err)
{
        *ret = (struct vault_health){
                .status = "warn",
                .message =
                        arena_printf(op->arena, "%s provider is not configured in this deployment",
                                     config->provider),
                .details = json_keep(op->arena, json_object()),
        };
        return 0;
}

#define SOON(key_, label_)                                                                         \
        {                                                                                          \
                .key = (key_), .label = (label_), .keeps_references = true, .coming_soon = true,   \
                .is_configured = soon_is_configured, .create = soon_create,                        \
                .create_version = soon_create_version, .link = soon_link, .resolve = soon_resolve, \
                .remove = soon_remove, .health = soon_health,                                      \
        }

const struct vault_provider vault_gcp = SOON(VAULT_GCP, "GCP Secret Manager");
const struct vault_provider vault_hashi = SOON(VAULT_HASHI, "HashiCorp Vault");
