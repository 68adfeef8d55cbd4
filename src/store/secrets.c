/* SQL for `company_secrets` and `company_secret_versions`. */
#include "store/secrets.h"

#include "store/row.h"

static const struct column secret_columns[] = {
        TEXT(struct secret, id, "id", FIXED),
        TEXT(struct secret, company_id, "companyId", FIXED),
        TEXT(struct secret, key, "key"),
        TEXT(struct secret, name, "name"),
        TEXT(struct secret, provider, "provider", FIXED),
        TEXT(struct secret, status, "status"),
        TEXT(struct secret, managed_mode, "managedMode", FIXED),
        TEXT(struct secret, external_ref, "externalRef"),
        TEXT(struct secret, provider_config_id, "providerConfigId"),
        DOCUMENT(struct secret, provider_metadata, "providerMetadata"),
        NUMBER(struct secret, latest_version, "latestVersion"),
        TEXT(struct secret, description, "description"),
        TIME_OR_NULL(struct secret, last_resolved_at, "lastResolvedAt", FIXED),
        TIME_OR_NULL(struct secret, last_rotated_at, "lastRotatedAt"),
        TIME_OR_NULL(struct secret, deleted_at, "deletedAt"),
        TEXT(struct secret, created_by_agent_id, "createdByAgentId", FIXED),
        TEXT(struct secret, created_by_user_id, "createdByUserId", FIXED),
        NUMBER(struct secret, reference_count, "referenceCount", READ_ONLY,
               .sql = "(SELECT COUNT(*) FROM company_secret_bindings b "
                      "WHERE b.secret_id = company_secrets.id)"),
        TIME(struct secret, created_at, "createdAt", FIXED),
        TIME(struct secret, updated_at, "updatedAt"),
        TEXT(struct secret, original_key),
        TEXT(struct secret, original_name),
        TEXT(struct secret, reserved_by),
        TEXT(struct secret, owner_environment_id),
};
const struct row_type secret_table =
        ROW_TYPE("company_secrets", struct secret, secret_columns, "Secret not found");

static const struct column secret_version_columns[] = {
        TEXT(struct secret_version, id, "id", FIXED),
        TEXT(struct secret_version, secret_id, "secretId", FIXED),
        NUMBER(struct secret_version, version, "version", FIXED),
        TEXT(struct secret_version, status, "status"),
        TEXT(struct secret_version, version_ref, "providerVersionRef",
             .sql = "provider_version_ref"),
        TEXT(struct secret_version, created_by_agent_id, "createdByAgentId", FIXED),
        TEXT(struct secret_version, created_by_user_id, "createdByUserId", FIXED),
        TIME_OR_NULL(struct secret_version, revoked_at, "revokedAt", FIXED),
        TIME(struct secret_version, created_at, "createdAt", FIXED),
        /* Neither material nor marks are shown: they are of no use outside. */
        TEXT(struct secret_version, material),
        TEXT(struct secret_version, value_mark, .sql = "value_sha256"),
        TEXT(struct secret_version, fingerprint, .sql = "fingerprint_sha256"),
        TEXT(struct secret_version, reserved_by),
};
const struct row_type secret_version_table =
        ROW_TYPE("company_secret_versions", struct secret_version, secret_version_columns,
                 "Secret version not found");

int secrets_find_name(struct db *db, const char *company_id, const char *name, struct arena *arena,
                      struct secret *ret, struct err *err)
{
        return row_find(db, &secret_table,
                        "SELECT * FROM company_secrets WHERE company_id = ?1 AND name = ?2 "
                        "AND status <> 'deleted'",
                        DB_ARGS(DB_T(company_id), DB_T(name)), arena, ret, err);
}

int secrets_find_key(struct db *db, const char *company_id, const char *key, struct arena *arena,
                     struct secret *ret, struct err *err)
{
        return row_find(db, &secret_table,
                        "SELECT * FROM company_secrets WHERE company_id = ?1 AND key = ?2 "
                        "AND status <> 'deleted'",
                        DB_ARGS(DB_T(company_id), DB_T(key)), arena, ret, err);
}

int secrets_find_reference(struct db *db, const char *company_id, const char *provider,
                           const char *config_id, const char *external_ref, struct arena *arena,
                           struct secret *ret, struct err *err)
{
        return row_find(
                db, &secret_table,
                "SELECT * FROM company_secrets WHERE company_id = ?1 AND provider = ?2 "
                "AND provider_config_id = ?3 "
                "AND external_ref = ?4 AND status <> 'deleted'",
                DB_ARGS(DB_T(company_id), DB_T(provider), DB_T(config_id), DB_T(external_ref)),
                arena, ret, err);
}

int secrets_list(struct db *db, const char *company_id, struct arena *arena, secret_fn fn,
                 void *ctx, struct err *err)
{
        return ROW_EACH(
                db, &secret_table,
                "SELECT * FROM company_secrets WHERE company_id = ?1 AND status <> 'deleted' "
                "AND reserved_by IS NULL "
                "ORDER BY created_at DESC, id DESC",
                DB_ARGS(DB_T(company_id)), arena, fn, ctx, err);
}

int secrets_of_company(struct db *db, const char *company_id, struct arena *arena, secret_fn fn,
                       void *ctx, struct err *err)
{
        return ROW_EACH(db, &secret_table,
                        "SELECT * FROM company_secrets WHERE company_id = ?1 "
                        "AND reserved_by IS NULL ORDER BY created_at, id",
                        DB_ARGS(DB_T(company_id)), arena, fn, ctx, err);
}

int secrets_owned(struct db *db, const char *environment_id, struct arena *arena,
                  struct secret **ret, struct err *err)
{
        return row_all(db, &secret_table,
                       "SELECT * FROM company_secrets WHERE owner_environment_id = ?1",
                       DB_ARGS(DB_T(environment_id)), arena, ret, err);
}

int secrets_abandoned(struct db *db, const char *instance, struct arena *arena, secret_fn fn,
                      void *ctx, struct err *err)
{
        return ROW_EACH(
                db, &secret_table,
                "SELECT * FROM company_secrets WHERE reserved_by IS NOT NULL AND reserved_by <> ?1",
                DB_ARGS(DB_T(instance)), arena, fn, ctx, err);
}

int secrets_update(struct db *db, const struct secret *row, int64_t seen_updated_at,
                   struct err *err)
{
        return row_exec(db, &secret_table,
                        "UPDATE company_secrets SET * WHERE id = ?1 AND updated_at = ?2", row,
                        DB_ARGS(DB_T(row->id), DB_I(seen_updated_at)), err);
}

int secrets_touch_resolved(struct db *db, const char *id, int64_t now_us, struct err *err)
{
        return db_exec(db, "UPDATE company_secrets SET last_resolved_at = ?2 WHERE id = ?1",
                       DB_ARGS(DB_T(id), DB_I(now_us)), err);
}

int secrets_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM company_secrets WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

int secrets_any_sealed(struct db *db, const char *provider, bool *ret, struct err *err)
{
        int64_t n;
        int r = db_number(db, "SELECT COUNT(*) FROM company_secrets WHERE provider = ?1",
                          DB_ARGS(DB_T(provider)), &n, err);

        if (r >= 0)
                *ret = n > 0;
        return r;
}

/* Versions */

int secret_versions_insert(struct db *db, const struct secret_version *row, struct err *err)
{
        return row_insert(db, &secret_version_table, row, err);
}

int secret_versions_get(struct db *db, const char *secret_id, int64_t version, struct arena *arena,
                        struct secret_version *ret, struct err *err)
{
        return row_get(db, &secret_version_table,
                       "SELECT * FROM company_secret_versions "
                       "WHERE secret_id = ?1 AND version = ?2",
                       DB_ARGS(DB_T(secret_id), DB_I(version)), arena, ret, err);
}

int secret_versions_list(struct db *db, const char *secret_id, struct arena *arena,
                         secret_version_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &secret_version_table,
                        "SELECT * FROM company_secret_versions "
                        "WHERE secret_id = ?1 ORDER BY version DESC",
                        DB_ARGS(DB_T(secret_id)), arena, fn, ctx, err);
}

int secret_versions_abandoned(struct db *db, const char *instance, struct arena *arena,
                              secret_version_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &secret_version_table,
                        "SELECT * FROM company_secret_versions "
                        "WHERE reserved_by IS NOT NULL AND reserved_by <> ?1",
                        DB_ARGS(DB_T(instance)), arena, fn, ctx, err);
}

int secret_versions_max(struct db *db, const char *secret_id, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT COALESCE(MAX(version), 0) FROM company_secret_versions "
                         "WHERE secret_id = ?1",
                         DB_ARGS(DB_T(secret_id)), ret, err);
}

int secret_versions_update(struct db *db, const struct secret_version *row, struct err *err)
{
        return row_exec(db, &secret_version_table,
                        "UPDATE company_secret_versions SET * WHERE id = ?1", row,
                        DB_ARGS(DB_T(row->id)), err);
}

int secret_versions_demote(struct db *db, const char *secret_id, struct err *err)
{
        return db_exec(db,
                       "UPDATE company_secret_versions SET status = 'previous' "
                       "WHERE secret_id = ?1 AND status = 'current'",
                       DB_ARGS(DB_T(secret_id)), err);
}

int secret_versions_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM company_secret_versions WHERE id = ?1", DB_ARGS(DB_T(id)),
                       err);
}

int secret_versions_of_provider(struct db *db, const char *provider, const char *after,
                                int64_t limit, struct arena *arena, sealed_version_fn fn, void *ctx,
                                struct err *err)
{
        static const struct column columns[] = {
                TEXT(struct sealed_version, id, .sql = "v.id"),
                TEXT(struct sealed_version, company_id, .sql = "s.company_id"),
                TEXT(struct sealed_version, secret_id, .sql = "s.id"),
                TEXT(struct sealed_version, secret_name,
                     .sql = "COALESCE(s.original_name, s.name)"),
                TEXT(struct sealed_version, material, .sql = "v.material"),
                NUMBER(struct sealed_version, version, .sql = "v.version"),
        };
        static const struct row_type sealed_table =
                ROW_TYPE(NULL, struct sealed_version, columns, NULL);

        return ROW_EACH(db, &sealed_table,
                        "SELECT * FROM company_secret_versions v "
                        "JOIN company_secrets s ON s.id = v.secret_id "
                        "WHERE s.provider = ?1 AND v.id > ?2 ORDER BY v.id LIMIT ?3",
                        DB_ARGS(DB_T(provider), DB_T(after), DB_I(limit)), arena, fn, ctx, err);
}

int secret_versions_reseal(struct db *db, const char *id, const char *seen, const char *material,
                           const char *mark, struct err *err)
{
        return db_exec(db,
                       "UPDATE company_secret_versions SET material = ?3, value_sha256 = ?4, "
                       "fingerprint_sha256 = ?4 WHERE id = ?1 AND material = ?2",
                       DB_ARGS(DB_T(id), DB_T(seen), DB_T(material), DB_T(mark)), err);
}
