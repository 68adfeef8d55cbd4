/* Rows of `company_secrets` and `company_secret_versions`. Material is what a vault provider made
 * of a value (secret/vault.h): never the value. */
#pragma once

#include "store/db.h"

#define SECRET_ACTIVE   "active"
#define SECRET_DISABLED "disabled"
#define SECRET_ARCHIVED "archived"
#define SECRET_DELETED  "deleted"

#define SECRET_MANAGED  "paperclip_managed"
#define SECRET_EXTERNAL "external_reference"

#define VERSION_CURRENT   "current"
#define VERSION_PREVIOUS  "previous"
#define VERSION_DISABLED  "disabled"
#define VERSION_DESTROYED "destroyed"
#define VERSION_FAILED    "failed"

struct secret {
        const char *id, *company_id, *key, *name, *provider, *status, *managed_mode;
        const char *external_ref, *provider_config_id, *provider_metadata; /* may be NULL */
        int64_t latest_version;
        const char *description;
        int64_t last_resolved_at, last_rotated_at, deleted_at; /* 0: never */
        const char *created_by_agent_id, *created_by_user_id;
        int64_t created_at, updated_at;
        const char *original_key, *original_name; /* NULL: it still has them */
        const char *reserved_by, *owner_environment_id;
        int64_t reference_count; /* read only */
};

extern const struct row_type secret_table;

struct secret_version {
        const char *id, *secret_id;
        int64_t version;
        const char *material, *value_mark, *version_ref, *status, *fingerprint;
        const char *created_by_agent_id, *created_by_user_id, *reserved_by;
        int64_t revoked_at, created_at;
};

extern const struct row_type secret_version_table;

typedef int (*secret_fn)(void *ctx, const struct secret *row);
typedef int (*secret_version_fn)(void *ctx, const struct secret_version *row);

/* ERR_CONFLICT: name or key is taken. */
ROW_BASICS(secrets, struct secret, secret_table) /* secrets_insert(), secrets_get() */
/* 1 and *ret, or 0: one that is not deleted. */
int secrets_find_name(struct db *db, const char *company_id, const char *name, struct arena *arena,
                      struct secret *ret, struct err *err);
int secrets_find_key(struct db *db, const char *company_id, const char *key, struct arena *arena,
                     struct secret *ret, struct err *err);
int secrets_find_reference(struct db *db, const char *company_id, const char *provider,
                           const char *config_id, const char *external_ref, struct arena *arena,
                           struct secret *ret, struct err *err);
/* Newest first, without deleted ones and without those that are only reserved. */
/* With those whose removal has begun. */
int secrets_of_company(struct db *db, const char *company_id, struct arena *arena, secret_fn fn,
                       void *ctx, struct err *err);
int secrets_list(struct db *db, const char *company_id, struct arena *arena, secret_fn fn,
                 void *ctx, struct err *err);
/* Made for an environment, or reserved by another instance than this one. */
int secrets_owned(struct db *db, const char *environment_id, struct arena *arena,
                  struct secret **ret, struct err *err);
int secrets_abandoned(struct db *db, const char *instance, struct arena *arena, secret_fn fn,
                      void *ctx, struct err *err);
/* Writes every column but id, company, creator and last_resolved_at, if the row is still as it was
 * at `seen_updated_at`; returns 0 when it is not. */
int secrets_update(struct db *db, const struct secret *row, int64_t seen_updated_at,
                   struct err *err);
int secrets_touch_resolved(struct db *db, const char *id, int64_t now_us, struct err *err);
int secrets_delete(struct db *db, const char *id, struct err *err);
/* Whether anything is sealed in this database. */
int secrets_any_sealed(struct db *db, const char *provider, bool *ret, struct err *err);

int secret_versions_insert(struct db *db, const struct secret_version *row, struct err *err);
/* ERR_NOT_FOUND "Secret version not found". */
int secret_versions_get(struct db *db, const char *secret_id, int64_t version, struct arena *arena,
                        struct secret_version *ret, struct err *err);
/* Newest first. */
int secret_versions_list(struct db *db, const char *secret_id, struct arena *arena,
                         secret_version_fn fn, void *ctx, struct err *err);
int secret_versions_abandoned(struct db *db, const char *instance, struct arena *arena,
                              secret_version_fn fn, void *ctx, struct err *err);
/* The highest number in use, whatever its status; 0 for none. */
int secret_versions_max(struct db *db, const char *secret_id, int64_t *ret, struct err *err);
/* Material, references, status and reservation. */
int secret_versions_update(struct db *db, const struct secret_version *row, struct err *err);
/* The current version becomes a previous one; the others stay what they are. */
int secret_versions_demote(struct db *db, const char *secret_id, struct err *err);
int secret_versions_delete(struct db *db, const char *id, struct err *err);

/* One version to be sealed anew, with what it belongs to. */
struct sealed_version {
        const char *id, *company_id, *secret_id, *secret_name, *material;
        int64_t version;
};
typedef int (*sealed_version_fn)(void *ctx, const struct sealed_version *row);

/* In order of id, after `after`, whatever its status. */
int secret_versions_of_provider(struct db *db, const char *provider, const char *after,
                                int64_t limit, struct arena *arena, sealed_version_fn fn, void *ctx,
                                struct err *err);
/* Replace the material if it is still `seen`; returns 0 when it is not. */
int secret_versions_reseal(struct db *db, const char *id, const char *seen, const char *material,
                           const char *mark, struct err *err);
