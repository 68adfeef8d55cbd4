/* Where the values of secrets are kept: sealed in our own database, or in a vault elsewhere.
 *
 * A vault provider turns a value into *material*, which is what is stored with a version of a
 * secret, and material back into the value. It writes no rows; core/secrets/secret.h does, and
 * calls it between the commits that record intent and outcome. All calls are for operation threads
 * and may block until the operation's deadline.
 *
 * Errors are classified once, here: the code of struct err decides, the text is safe for the
 * caller, and `details` carries {"code": "..."} with one of the words of vault_fail(). The vault's
 * own words go to the log, never to a caller. */
#pragma once

#include "codec/json.h"
#include "rt/op.h"
#include "secret/value.h"

#define VAULT_LOCAL "local_encrypted"
#define VAULT_AWS   "aws_secrets_manager"
#define VAULT_GCP   "gcp_secret_manager"
#define VAULT_HASHI "vault"

enum vault_failure {
        VAULT_CONFLICT,        /* conflict, 409 */
        VAULT_NOT_FOUND,       /* not_found, 404 */
        VAULT_ACCESS_DENIED,   /* access_denied, 403 */
        VAULT_THROTTLED,       /* throttled, 429 */
        VAULT_INVALID_REQUEST, /* invalid_request, 422 */
        VAULT_UNAVAILABLE,     /* provider_unavailable, 503 */
        VAULT_ERROR,           /* provider_error, 502 */
};

/* Which vault: a row of company_secret_provider_configs, or the process-wide settings. */
struct vault_config {
        const char *id; /* NULL: none was selected */
        const char *provider;
        const char *status;
        const json_t *config; /* NULL without a vault */
};

/* The secret that is being kept. `secret_key` and `secret_name` are the original ones, also for a
 * secret that was renamed when it was deleted. */
struct vault_subject {
        const char *company_id;
        const char *secret_id;
        const char *secret_key;
        const char *secret_name;
        int64_t version;
};

/* The data that is stored with a version. Strings are in the operation's arena. */
struct vault_material {
        const char *material; /* JSON object */
        const char *external_ref;
        const char *version_ref;
        const char *value_mark;  /* keyed hash of the value, or the fingerprint of a reference */
        const char *fingerprint; /* lower-case hex */
};

struct vault_page {
        const char *query; /* NULL: all */
        const char *next_token;
        int64_t page_size; /* 1..100 */
};

struct vault_health {
        const char *status; /* "ok", "warn", "error" */
        const char *message;
        json_t *details;  /* object; owned by the caller's arena */
        json_t *warnings; /* array of strings, may be NULL; as the details */
        json_t *guidance; /* array of strings on back-ups, may be NULL; as the details */
};

enum vault_removal { VAULT_DELETE, VAULT_ARCHIVE };

struct vault_provider {
        const char *key;
        const char *label;
        bool keeps_values;     /* managed secrets */
        bool keeps_references; /* external references */
        bool coming_soon;
        bool is_inside; /* the material is all there is: nothing exists outside our database */

        /* Whether it works without a vault, from the process's settings. */
        bool (*is_configured)(void);
        int (*create)(struct op *op, const struct vault_config *config,
                      const struct vault_subject *subject, const struct secret_value *value,
                      struct vault_material *ret, struct err *err);
        /* A further version of what `current` names. */
        int (*create_version)(struct op *op, const struct vault_config *config,
                              const struct vault_subject *subject,
                              const struct vault_material *current,
                              const struct secret_value *value, struct vault_material *ret,
                              struct err *err);
        /* `material` has become the current version here; make it so there as well. Not needed for
         * resolving, so a failure is worth a log line and nothing else. NULL: nothing to do. */
        int (*promote)(struct op *op, const struct vault_config *config,
                       const struct vault_subject *subject, const struct vault_material *material,
                       struct err *err);
        /* Check a reference to something that exists there already; never reads its value. */
        int (*link)(struct op *op, const struct vault_config *config,
                    const struct vault_subject *subject, const char *external_ref,
                    const char *version_ref, struct vault_material *ret, struct err *err);
        int (*resolve)(struct op *op, const struct vault_config *config,
                       const struct vault_subject *subject, const struct vault_material *material,
                       struct secret_value *ret, struct err *err);
        /* `material->material` is NULL when the answer to create() never came: the secret may be
         * there or not. Removing what is not there is VAULT_NOT_FOUND or success. */
        int (*remove)(struct op *op, const struct vault_config *config,
                      const struct vault_subject *subject, const struct vault_material *material,
                      enum vault_removal mode, struct err *err);
        /* A new reference: {"secrets": [{externalRef, name, providerVersionRef, providerMetadata}],
         * "nextToken"}; NULL: cannot list. */
        int (*list)(struct op *op, const struct vault_config *config, const struct vault_page *page,
                    json_t **ret, struct err *err);
        int (*health)(struct op *op, const struct vault_config *config, struct vault_health *ret,
                      struct err *err);
        /* Asked inside the transaction that stores it; NULL: always. */
        bool (*may_store)(const struct vault_material *material);
};

extern const struct vault_provider vault_local, vault_aws, vault_gcp, vault_hashi;

/* NULL when there is no such provider. */
const struct vault_provider *vault_lookup(const char *key);
/* In the test build another one may stand in for it (vault_fake.c). */
const struct vault_provider *vault_stand_in(const struct vault_provider *real);

/* The error of a failed call: code, HTTP meaning and {"code"} by kind; `text` is safe to show. */
int vault_fail(struct err *err, enum vault_failure kind, const char *text);
/* The kind of an error that vault_fail() made; -1 for any other. */
int vault_failure_of(const struct err *err);

/* SHA-256 in lower-case hex, in the arena. */
const char *vault_hash(struct arena *arena, const void *data, size_t len);
