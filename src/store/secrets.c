#include "store/secrets.h"

#define COLUMNS                                                                                    \
        "id, company_id, key, name, provider, status, managed_mode, external_ref, "                \
        "provider_config_id, provider_metadata, latest_version, description, last_resolved_at, "   \
        "last_rotated_at, deleted_at, created_by_agent_id, created_by_user_id, created_at, "       \
        "updated_at, original_key, original_name, reserved_by, owner_environment_id"
#define SELECT                                                                                     \
        "SELECT " COLUMNS ", (SELECT COUNT(*) FROM company_secret_bindings b WHERE b.secret_id = " \
        "company_secrets.id) FROM company_secrets "

static void load(struct stmt *s, struct arena *a, struct secret *r)
{
        *r = (struct secret){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .key = stmt_text(s, 2, a),
                .name = stmt_text(s, 3, a),
                .provider = stmt_text(s, 4, a),
                .status = stmt_text(s, 5, a),
                .managed_mode = stmt_text(s, 6, a),
                .external_ref = stmt_text(s, 7, a),
                .provider_config_id = stmt_text(s, 8, a),
                .provider_metadata = stmt_text(s, 9, a),
                .latest_version = stmt_number(s, 10),
                .description = stmt_text(s, 11, a),
                .last_resolved_at = stmt_number(s, 12),
                .last_rotated_at = stmt_number(s, 13),
                .deleted_at = stmt_number(s, 14),
                .created_by_agent_id = stmt_text(s, 15, a),
                .created_by_user_id = stmt_text(s, 16, a),
                .created_at = stmt_number(s, 17),
                .updated_at = stmt_number(s, 18),
                .original_key = stmt_text(s, 19, a),
                .original_name = stmt_text(s, 20, a),
                .reserved_by = stmt_text(s, 21, a),
                .owner_environment_id = stmt_text(s, 22, a),
                .reference_count = stmt_number(s, 23),
        };
}

int secrets_insert(struct db *db, const struct secret *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO company_secrets (" COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, "
                       "?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)",
                       DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->key),
                               DB_T(row->name), DB_T(row->provider), DB_T(row->status),
                               DB_T(row->managed_mode), DB_T(row->external_ref),
                               DB_T(row->provider_config_id), DB_T(row->provider_metadata),
                               DB_I(row->latest_version), DB_T(row->description),
                               DB_TIME(row->last_resolved_at), DB_TIME(row->last_rotated_at),
                               DB_TIME(row->deleted_at), DB_T(row->created_by_agent_id),
                               DB_T(row->created_by_user_id), DB_I(row->created_at),
                               DB_I(row->updated_at), DB_T(row->original_key),
                               DB_T(row->original_name), DB_T(row->reserved_by),
                               DB_T(row->owner_environment_id)),
                       err);
}

static int find(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
                struct arena *arena, struct secret *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, sql, args, n_args, &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r > 0)
                load(s, arena, ret);
        return r;
}

static int each(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
                struct arena *arena, secret_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, sql, args, n_args, &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct secret row;

                load(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

int secrets_get(struct db *db, const char *id, struct arena *arena, struct secret *ret,
                struct err *err)
{
        int r = find(db, SELECT "WHERE id = ?1", DB_ARGS(DB_T(id)), arena, ret, err);

        return r == 0 ? err_set(err, ERR_NOT_FOUND, "Secret not found") : r < 0 ? r : 0;
}

int secrets_find_name(struct db *db, const char *company_id, const char *name, struct arena *arena,
                      struct secret *ret, struct err *err)
{
        return find(db, SELECT "WHERE company_id = ?1 AND name = ?2 AND status <> 'deleted'",
                    DB_ARGS(DB_T(company_id), DB_T(name)), arena, ret, err);
}

int secrets_find_key(struct db *db, const char *company_id, const char *key, struct arena *arena,
                     struct secret *ret, struct err *err)
{
        return find(db, SELECT "WHERE company_id = ?1 AND key = ?2 AND status <> 'deleted'",
                    DB_ARGS(DB_T(company_id), DB_T(key)), arena, ret, err);
}

int secrets_find_reference(struct db *db, const char *company_id, const char *provider,
                           const char *config_id, const char *external_ref, struct arena *arena,
                           struct secret *ret, struct err *err)
{
        return find(db,
                    SELECT "WHERE company_id = ?1 AND provider = ?2 AND provider_config_id = ?3 "
                           "AND external_ref = ?4 AND status <> 'deleted'",
                    DB_ARGS(DB_T(company_id), DB_T(provider), DB_T(config_id), DB_T(external_ref)),
                    arena, ret, err);
}

int secrets_list(struct db *db, const char *company_id, struct arena *arena, secret_fn fn,
                 void *ctx, struct err *err)
{
        return each(db,
                    SELECT "WHERE company_id = ?1 AND status <> 'deleted' AND reserved_by IS NULL "
                           "ORDER BY created_at DESC, id DESC",
                    DB_ARGS(DB_T(company_id)), arena, fn, ctx, err);
}

int secrets_owned(struct db *db, const char *environment_id, struct arena *arena, secret_fn fn,
                  void *ctx, struct err *err)
{
        return each(db, SELECT "WHERE owner_environment_id = ?1", DB_ARGS(DB_T(environment_id)),
                    arena, fn, ctx, err);
}

int secrets_abandoned(struct db *db, const char *instance, struct arena *arena, secret_fn fn,
                      void *ctx, struct err *err)
{
        return each(db, SELECT "WHERE reserved_by IS NOT NULL AND reserved_by <> ?1",
                    DB_ARGS(DB_T(instance)), arena, fn, ctx, err);
}

int secrets_update(struct db *db, const struct secret *row, int64_t seen_updated_at,
                   struct err *err)
{
        return db_exec(
                db,
                "UPDATE company_secrets SET key = ?2, name = ?3, status = ?4, external_ref = ?5, "
                "provider_config_id = ?6, provider_metadata = ?7, latest_version = ?8, "
                "description = ?9, last_rotated_at = ?10, deleted_at = ?11, updated_at = ?12, "
                "original_key = ?13, original_name = ?14, reserved_by = ?15, "
                "owner_environment_id = ?16 WHERE id = ?1 AND updated_at = ?17",
                DB_ARGS(DB_T(row->id), DB_T(row->key), DB_T(row->name), DB_T(row->status),
                        DB_T(row->external_ref), DB_T(row->provider_config_id),
                        DB_T(row->provider_metadata), DB_I(row->latest_version),
                        DB_T(row->description), DB_TIME(row->last_rotated_at),
                        DB_TIME(row->deleted_at), DB_I(row->updated_at), DB_T(row->original_key),
                        DB_T(row->original_name), DB_T(row->reserved_by),
                        DB_T(row->owner_environment_id), DB_I(seen_updated_at)),
                err);
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

#define VERSION_COLUMNS                                                                            \
        "id, secret_id, version, material, value_sha256, provider_version_ref, status, "           \
        "fingerprint_sha256, created_by_agent_id, created_by_user_id, reserved_by, revoked_at, "   \
        "created_at"

static void load_version(struct stmt *s, struct arena *a, struct secret_version *v)
{
        *v = (struct secret_version){
                .id = stmt_text(s, 0, a),
                .secret_id = stmt_text(s, 1, a),
                .version = stmt_number(s, 2),
                .material = stmt_text(s, 3, a),
                .value_mark = stmt_text(s, 4, a),
                .version_ref = stmt_text(s, 5, a),
                .status = stmt_text(s, 6, a),
                .fingerprint = stmt_text(s, 7, a),
                .created_by_agent_id = stmt_text(s, 8, a),
                .created_by_user_id = stmt_text(s, 9, a),
                .reserved_by = stmt_text(s, 10, a),
                .revoked_at = stmt_number(s, 11),
                .created_at = stmt_number(s, 12),
        };
}

int secret_versions_insert(struct db *db, const struct secret_version *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO company_secret_versions (" VERSION_COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
                       DB_ARGS(DB_T(row->id), DB_T(row->secret_id), DB_I(row->version),
                               DB_T(row->material), DB_T(row->value_mark), DB_T(row->version_ref),
                               DB_T(row->status), DB_T(row->fingerprint),
                               DB_T(row->created_by_agent_id), DB_T(row->created_by_user_id),
                               DB_T(row->reserved_by), DB_TIME(row->revoked_at),
                               DB_I(row->created_at)),
                       err);
}

int secret_versions_get(struct db *db, const char *secret_id, int64_t version, struct arena *arena,
                        struct secret_version *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " VERSION_COLUMNS " FROM company_secret_versions "
                         "WHERE secret_id = ?1 AND version = ?2",
                         DB_ARGS(DB_T(secret_id), DB_I(version)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Secret version not found");
        load_version(s, arena, ret);
        return 0;
}

static int each_version(struct stmt *s, struct arena *arena, secret_version_fn fn, void *ctx,
                        struct err *err)
{
        int r = 0;

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct secret_version row;

                load_version(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

int secret_versions_list(struct db *db, const char *secret_id, struct arena *arena,
                         secret_version_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " VERSION_COLUMNS " FROM company_secret_versions "
                         "WHERE secret_id = ?1 ORDER BY version DESC",
                         DB_ARGS(DB_T(secret_id)), &s, err);

        return r < 0 ? r : each_version(s, arena, fn, ctx, err);
}

int secret_versions_abandoned(struct db *db, const char *instance, struct arena *arena,
                              secret_version_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " VERSION_COLUMNS " FROM company_secret_versions "
                         "WHERE reserved_by IS NOT NULL AND reserved_by <> ?1",
                         DB_ARGS(DB_T(instance)), &s, err);

        return r < 0 ? r : each_version(s, arena, fn, ctx, err);
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
        return db_exec(db,
                       "UPDATE company_secret_versions SET material = ?2, value_sha256 = ?3, "
                       "provider_version_ref = ?4, status = ?5, fingerprint_sha256 = ?6, "
                       "reserved_by = ?7 WHERE id = ?1",
                       DB_ARGS(DB_T(row->id), DB_T(row->material), DB_T(row->value_mark),
                               DB_T(row->version_ref), DB_T(row->status), DB_T(row->fingerprint),
                               DB_T(row->reserved_by)),
                       err);
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
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT v.id, s.company_id, s.id, COALESCE(s.original_name, s.name), "
                         "v.material, v.version FROM company_secret_versions v "
                         "JOIN company_secrets s ON s.id = v.secret_id "
                         "WHERE s.provider = ?1 AND v.id > ?2 ORDER BY v.id LIMIT ?3",
                         DB_ARGS(DB_T(provider), DB_T(after), DB_I(limit)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct sealed_version row = {
                        .id = stmt_text(s, 0, arena),
                        .company_id = stmt_text(s, 1, arena),
                        .secret_id = stmt_text(s, 2, arena),
                        .secret_name = stmt_text(s, 3, arena),
                        .material = stmt_text(s, 4, arena),
                        .version = stmt_number(s, 5),
                };

                r = fn(ctx, &row);
        }
        return r;
}

int secret_versions_reseal(struct db *db, const char *id, const char *seen, const char *material,
                           const char *mark, struct err *err)
{
        return db_exec(db,
                       "UPDATE company_secret_versions SET material = ?3, value_sha256 = ?4, "
                       "fingerprint_sha256 = ?4 WHERE id = ?1 AND material = ?2",
                       DB_ARGS(DB_T(id), DB_T(seen), DB_T(material), DB_T(mark)), err);
}
