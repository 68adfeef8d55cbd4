#include "store/identity.h"

#define USER_COLUMNS "id, name, email, is_instance_admin, created_at, updated_at"
#define MEMBER_COLUMNS                                                                             \
        "id, company_id, principal_type, principal_id, membership_role, status, created_at, "      \
        "updated_at"
#define KEY_COLUMNS                                                                                \
        "id, user_id, name, token_sha256, last_used_at, expires_at, revoked_at, created_at"
#define CHALLENGE_COLUMNS                                                                          \
        "id, secret_sha256, board_token_sha256, command, client_name, requested_access, "          \
        "requested_company_id, board_api_key_id, approved_by_user_id, approved_at, "               \
        "cancelled_at, expires_at, created_at"

static int one_row(struct stmt *s, const char *missing, struct err *err)
{
        int r = stmt_step(s, err);

        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "%s", missing);
        return r;
}

/* Users */

int users_put(struct db *db, const struct user *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO users (" USER_COLUMNS ") VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
                       "ON CONFLICT (id) DO UPDATE SET name = excluded.name, "
                       "is_instance_admin = excluded.is_instance_admin, "
                       "updated_at = excluded.updated_at",
                       DB_ARGS(DB_T(row->id), DB_T(row->name), DB_T(row->email),
                               DB_I(row->is_instance_admin), DB_I(row->created_at),
                               DB_I(row->updated_at)),
                       err);
}

static int get_user(struct db *db, const char *sql, const char *key, struct arena *arena,
                    struct user *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, sql, DB_ARGS(DB_T(key)), &s, err);

        if (r >= 0)
                r = one_row(s, "User not found", err);
        if (r < 0)
                return r;
        *ret = (struct user){
                .id = stmt_text(s, 0, arena),
                .name = stmt_text(s, 1, arena),
                .email = stmt_text(s, 2, arena),
                .is_instance_admin = stmt_number(s, 3) != 0,
                .created_at = stmt_number(s, 4),
                .updated_at = stmt_number(s, 5),
        };
        return 0;
}

int users_get(struct db *db, const char *id, struct arena *arena, struct user *ret, struct err *err)
{
        return get_user(db, "SELECT " USER_COLUMNS " FROM users WHERE id = ?1", id, arena, ret,
                        err);
}

int users_find_by_name(struct db *db, const char *name, struct arena *arena, struct user *ret,
                       struct err *err)
{
        return get_user(db,
                        "SELECT " USER_COLUMNS " FROM users WHERE name = ?1 ORDER BY created_at",
                        name, arena, ret, err);
}

/* Memberships */

static void load_membership(struct stmt *s, struct arena *a, struct membership *m)
{
        *m = (struct membership){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .principal_type = stmt_text(s, 2, a),
                .principal_id = stmt_text(s, 3, a),
                .role = stmt_text(s, 4, a),
                .status = stmt_text(s, 5, a),
                .created_at = stmt_number(s, 6),
                .updated_at = stmt_number(s, 7),
        };
}

int memberships_put(struct db *db, const struct membership *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO company_memberships (" MEMBER_COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) "
                       "ON CONFLICT (company_id, principal_type, principal_id) DO UPDATE SET "
                       "membership_role = excluded.membership_role, status = excluded.status, "
                       "updated_at = excluded.updated_at",
                       DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->principal_type),
                               DB_T(row->principal_id), DB_T(row->role), DB_T(row->status),
                               DB_I(row->created_at), DB_I(row->updated_at)),
                       err);
}

int memberships_get(struct db *db, const char *company_id, const char *type, const char *principal,
                    struct arena *arena, struct membership *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " MEMBER_COLUMNS " FROM company_memberships WHERE company_id = ?1 "
                         "AND principal_type = ?2 AND principal_id = ?3",
                         DB_ARGS(DB_T(company_id), DB_T(type), DB_T(principal)), &s, err);

        if (r >= 0)
                r = one_row(s, "Member not found", err);
        if (r < 0)
                return r;
        load_membership(s, arena, ret);
        return 0;
}

int memberships_by_id(struct db *db, const char *company_id, const char *id, struct arena *arena,
                      struct membership *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " MEMBER_COLUMNS " FROM company_memberships WHERE company_id = ?1 "
                         "AND id = ?2",
                         DB_ARGS(DB_T(company_id), DB_T(id)), &s, err);

        if (r >= 0)
                r = one_row(s, "Member not found", err);
        if (r < 0)
                return r;
        load_membership(s, arena, ret);
        return 0;
}

static int each_membership(struct db *db, const char *sql, const char *key, struct arena *arena,
                           membership_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, sql, DB_ARGS(DB_T(key)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct membership m;

                load_membership(s, arena, &m);
                r = fn(ctx, &m);
        }
        return r;
}

int memberships_of_user(struct db *db, const char *user_id, struct arena *arena, membership_fn fn,
                        void *ctx, struct err *err)
{
        return each_membership(db,
                               "SELECT " MEMBER_COLUMNS " FROM company_memberships "
                               "WHERE principal_type = 'user' AND principal_id = ?1 "
                               "ORDER BY created_at, id",
                               user_id, arena, fn, ctx, err);
}

int memberships_of_company(struct db *db, const char *company_id, struct arena *arena,
                           membership_fn fn, void *ctx, struct err *err)
{
        return each_membership(db,
                               "SELECT " MEMBER_COLUMNS " FROM company_memberships "
                               "WHERE company_id = ?1 ORDER BY created_at, id",
                               company_id, arena, fn, ctx, err);
}

int memberships_remove(struct db *db, const char *company_id, const char *type,
                       const char *principal, struct err *err)
{
        return db_exec(
                db,
                "DELETE FROM company_memberships WHERE company_id = ?1 AND principal_type = ?2 "
                "AND principal_id = ?3",
                DB_ARGS(DB_T(company_id), DB_T(type), DB_T(principal)), err);
}

/* Grants */

int grants_put(struct db *db, const char *company_id, const char *type, const char *principal,
               const char *permission, const char *scope, int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO permission_grants (company_id, principal_type, principal_id, "
                       "permission_key, scope, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
                       "ON CONFLICT (company_id, principal_type, principal_id, permission_key) "
                       "DO UPDATE SET scope = excluded.scope",
                       DB_ARGS(DB_T(company_id), DB_T(type), DB_T(principal), DB_T(permission),
                               DB_T(scope), DB_I(now_us)),
                       err);
}

int grants_clear(struct db *db, const char *company_id, const char *type, const char *principal,
                 struct err *err)
{
        return db_exec(
                db,
                "DELETE FROM permission_grants WHERE company_id = ?1 AND principal_type = ?2 "
                "AND principal_id = ?3",
                DB_ARGS(DB_T(company_id), DB_T(type), DB_T(principal)), err);
}

int grants_remove(struct db *db, const char *company_id, const char *type, const char *principal,
                  const char *permission, struct err *err)
{
        return db_exec(
                db,
                "DELETE FROM permission_grants WHERE company_id = ?1 AND principal_type = ?2 "
                "AND principal_id = ?3 AND permission_key = ?4",
                DB_ARGS(DB_T(company_id), DB_T(type), DB_T(principal), DB_T(permission)), err);
}

int grants_list(struct db *db, const char *company_id, const char *type, const char *principal,
                struct arena *arena, grant_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(
                db,
                "SELECT permission_key, scope FROM permission_grants WHERE company_id = ?1 "
                "AND principal_type = ?2 AND principal_id = ?3 ORDER BY permission_key",
                DB_ARGS(DB_T(company_id), DB_T(type), DB_T(principal)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0)
                r = fn(ctx, stmt_text(s, 0, arena), stmt_text(s, 1, arena));
        return r;
}

int grants_has(struct db *db, const char *company_id, const char *type, const char *principal,
               const char *permission, bool *ret, struct err *err)
{
        int64_t n;
        int r = db_number(db,
                          "SELECT COUNT(*) FROM permission_grants g JOIN company_memberships m "
                          "ON m.company_id = g.company_id AND m.principal_type = g.principal_type "
                          "AND m.principal_id = g.principal_id WHERE g.company_id = ?1 "
                          "AND g.principal_type = ?2 AND g.principal_id = ?3 "
                          "AND g.permission_key = ?4 AND m.status = 'active'",
                          DB_ARGS(DB_T(company_id), DB_T(type), DB_T(principal), DB_T(permission)),
                          &n, err);

        if (r < 0)
                return r;
        *ret = n > 0;
        return 0;
}

/* Board keys */

static void load_key(struct stmt *s, struct arena *a, struct board_key *k)
{
        *k = (struct board_key){
                .id = stmt_text(s, 0, a),
                .user_id = stmt_text(s, 1, a),
                .name = stmt_text(s, 2, a),
                .token_sha256 = stmt_text(s, 3, a),
                .last_used_at = stmt_number(s, 4),
                .expires_at = stmt_number(s, 5),
                .revoked_at = stmt_number(s, 6),
                .created_at = stmt_number(s, 7),
        };
}

int board_keys_insert(struct db *db, const struct board_key *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO board_api_keys (" KEY_COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                       DB_ARGS(DB_T(row->id), DB_T(row->user_id), DB_T(row->name),
                               DB_T(row->token_sha256), DB_TIME(row->last_used_at),
                               DB_TIME(row->expires_at), DB_TIME(row->revoked_at),
                               DB_I(row->created_at)),
                       err);
}

int board_keys_list(struct db *db, const char *user_id, struct arena *arena, board_key_fn fn,
                    void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " KEY_COLUMNS " FROM board_api_keys "
                         "WHERE CAST(?1 AS TEXT) IS NULL OR user_id = ?1 ORDER BY created_at, id",
                         DB_ARGS(DB_T(user_id)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct board_key k;

                load_key(s, arena, &k);
                r = fn(ctx, &k);
        }
        return r;
}

int board_keys_revoke(struct db *db, const char *id, const char *user_id, int64_t now_us,
                      struct err *err)
{
        return db_exec(db,
                       "UPDATE board_api_keys SET revoked_at = COALESCE(revoked_at, ?3) "
                       "WHERE id = ?1 AND (CAST(?2 AS TEXT) IS NULL OR user_id = ?2)",
                       DB_ARGS(DB_T(id), DB_T(user_id), DB_I(now_us)), err);
}

int board_keys_by_token(struct db *db, const char *token_sha256, int64_t now_us,
                        struct arena *arena, struct board_key *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " KEY_COLUMNS " FROM board_api_keys WHERE token_sha256 = ?1 "
                         "AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)",
                         DB_ARGS(DB_T(token_sha256), DB_I(now_us)), &s, err);

        if (r >= 0)
                r = one_row(s, "Key not found", err);
        if (r < 0)
                return r;
        load_key(s, arena, ret);
        return 0;
}

int board_keys_count(struct db *db, int64_t now_us, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT COUNT(*) FROM board_api_keys WHERE revoked_at IS NULL "
                         "AND (expires_at IS NULL OR expires_at > ?1)",
                         DB_ARGS(DB_I(now_us)), ret, err);
}

/* Challenges */

int challenges_insert(struct db *db, const struct cli_challenge *row, struct err *err)
{
        return db_exec(
                db,
                "INSERT INTO cli_auth_challenges (" CHALLENGE_COLUMNS
                ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
                DB_ARGS(DB_T(row->id), DB_T(row->secret_sha256), DB_T(row->board_token_sha256),
                        DB_T(row->command), DB_T(row->client_name), DB_T(row->requested_access),
                        DB_T(row->requested_company_id), DB_T(row->board_api_key_id),
                        DB_T(row->approved_by_user_id), DB_TIME(row->approved_at),
                        DB_TIME(row->cancelled_at), DB_I(row->expires_at), DB_I(row->created_at)),
                err);
}

int challenges_get(struct db *db, const char *id, struct arena *arena, struct cli_challenge *ret,
                   struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT " CHALLENGE_COLUMNS " FROM cli_auth_challenges WHERE id = ?1",
                         DB_ARGS(DB_T(id)), &s, err);

        if (r >= 0)
                r = one_row(s, "CLI auth challenge not found", err);
        if (r < 0)
                return r;
        *ret = (struct cli_challenge){
                .id = stmt_text(s, 0, arena),
                .secret_sha256 = stmt_text(s, 1, arena),
                .board_token_sha256 = stmt_text(s, 2, arena),
                .command = stmt_text(s, 3, arena),
                .client_name = stmt_text(s, 4, arena),
                .requested_access = stmt_text(s, 5, arena),
                .requested_company_id = stmt_text(s, 6, arena),
                .board_api_key_id = stmt_text(s, 7, arena),
                .approved_by_user_id = stmt_text(s, 8, arena),
                .approved_at = stmt_number(s, 9),
                .cancelled_at = stmt_number(s, 10),
                .expires_at = stmt_number(s, 11),
                .created_at = stmt_number(s, 12),
        };
        return 0;
}

int challenges_approve(struct db *db, const char *id, const char *user_id, const char *key_id,
                       int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE cli_auth_challenges SET approved_at = ?4, approved_by_user_id = ?2, "
                       "board_api_key_id = ?3 WHERE id = ?1 AND approved_at IS NULL "
                       "AND cancelled_at IS NULL AND expires_at > ?4",
                       DB_ARGS(DB_T(id), DB_T(user_id), DB_T(key_id), DB_I(now_us)), err);
}

int challenges_cancel(struct db *db, const char *id, int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE cli_auth_challenges SET cancelled_at = ?2 WHERE id = ?1 "
                       "AND approved_at IS NULL AND cancelled_at IS NULL AND expires_at > ?2",
                       DB_ARGS(DB_T(id), DB_I(now_us)), err);
}

int challenges_prune(struct db *db, int64_t before_us, struct err *err)
{
        return db_exec(db, "DELETE FROM cli_auth_challenges WHERE expires_at < ?1",
                       DB_ARGS(DB_I(before_us)), err);
}

int challenges_count_open(struct db *db, int64_t now_us, int64_t *ret, struct err *err)
{
        return db_number(db, "SELECT COUNT(*) FROM cli_auth_challenges WHERE expires_at > ?1",
                         DB_ARGS(DB_I(now_us)), ret, err);
}
