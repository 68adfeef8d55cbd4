/* Google's Secret Manager and HashiCorp's Vault: references can be kept, values not yet. */
#include <sodium.h>

#include "secret/vault.h"

static bool is_configured(void)
{
        return false;
}

static int refuse_value(const char *key, struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE,
                       "%s provider is not configured for Paperclip-managed values", key);
}

static int refuse_resolve(const char *key, struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE, "%s provider is not configured in this deployment",
                       key);
}

/* A reference is no secret: a plain hash names it. */
static const char *fingerprint(struct arena *arena, const char *key, const char *ref,
                               const char *version)
{
        char *text = arena_printf(arena, "%s:%s:%s", key, ref, version ? version : "");
        unsigned char hash[crypto_hash_sha256_BYTES];
        char *hex = arena_alloc(arena, 2 * sizeof(hash) + 1);

        crypto_hash_sha256(hash, (const unsigned char *)text, strlen(text));
        return sodium_bin2hex(hex, 2 * sizeof(hash) + 1, hash, sizeof(hash));
}

static int link_reference(struct op *op, const char *key, const char *ref, const char *version,
                          struct vault_material *ret, struct err *err)
{
        json_t *doc = json_pack("{s:s, s:s, s:s, s:o}", "scheme", "external_reference_v1",
                                "provider", key, "externalRef", ref, "providerVersionRef",
                                json_string_or_null(version));

        *ret = (struct vault_material){
                .material = json_to_arena(op->arena, doc),
                .external_ref = arena_strdup(op->arena, ref),
                .version_ref = arena_strdup(op->arena, version),
                .fingerprint = fingerprint(op->arena, key, ref, version),
        };
        ret->value_mark = ret->fingerprint;
        json_decref(doc);
        return 0;
}

static int describe_health(struct op *op, const char *key, struct vault_health *ret)
{
        *ret = (struct vault_health){
                .status = "warn",
                .message = arena_printf(op->arena,
                                        "%s provider is not configured in this deployment", key),
                .details = vault_keep(op, json_object()),
        };
        return 0;
}

static int leave_alone(struct op *op, const struct vault_config *config,
                       const struct vault_subject *subject, const struct vault_material *material,
                       enum vault_removal mode, struct err *err)
{
        return 0; /* the secret that it refers to is not ours */
}

#define SOON(name, key_)                                                                           \
        static int name##_create(struct op *op, const struct vault_config *config,                 \
                                 const struct vault_subject *subject,                              \
                                 const struct secret_value *value, struct vault_material *ret,     \
                                 struct err *err)                                                  \
        {                                                                                          \
                return refuse_value(key_, err);                                                    \
        }                                                                                          \
        static int name##_version(                                                                 \
                struct op *op, const struct vault_config *config,                                  \
                const struct vault_subject *subject, const struct vault_material *current,         \
                const struct secret_value *value, struct vault_material *ret, struct err *err)     \
        {                                                                                          \
                return refuse_value(key_, err);                                                    \
        }                                                                                          \
        static int name##_link(struct op *op, const struct vault_config *config,                   \
                               const struct vault_subject *subject, const char *external_ref,      \
                               const char *version_ref, struct vault_material *ret,                \
                               struct err *err)                                                    \
        {                                                                                          \
                return link_reference(op, key_, external_ref, version_ref, ret, err);              \
        }                                                                                          \
        static int name##_resolve(struct op *op, const struct vault_config *config,                \
                                  const struct vault_subject *subject,                             \
                                  const struct vault_material *material, struct secret_value *ret, \
                                  struct err *err)                                                 \
        {                                                                                          \
                return refuse_resolve(key_, err);                                                  \
        }                                                                                          \
        static int name##_health(struct op *op, const struct vault_config *config,                 \
                                 struct vault_health *ret, struct err *err)                        \
        {                                                                                          \
                return describe_health(op, key_, ret);                                             \
        }

SOON(gcp, VAULT_GCP)
SOON(hashi, VAULT_HASHI)

const struct vault_provider vault_gcp = {
        .key = VAULT_GCP,
        .label = "GCP Secret Manager",
        .keeps_references = true,
        .coming_soon = true,
        .is_configured = is_configured,
        .create = gcp_create,
        .create_version = gcp_version,
        .link = gcp_link,
        .resolve = gcp_resolve,
        .remove = leave_alone,
        .health = gcp_health,
};

const struct vault_provider vault_hashi = {
        .key = VAULT_HASHI,
        .label = "HashiCorp Vault",
        .keeps_references = true,
        .coming_soon = true,
        .is_configured = is_configured,
        .create = hashi_create,
        .create_version = hashi_version,
        .link = hashi_link,
        .resolve = hashi_resolve,
        .remove = leave_alone,
        .health = hashi_health,
};
