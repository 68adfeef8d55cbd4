/* SQL for users, memberships, grants, board keys and sign-in challenges. */
#include "store/identity.h"

#include "store/row.h"

static const struct column user_columns[] = {
        TEXT(struct user, id),         TEXT(struct user, name),
        TEXT(struct user, email),      FLAG(struct user, is_instance_admin),
        TIME(struct user, created_at), TIME(struct user, updated_at),
};
const struct row_type user_table = ROW_TYPE("users", struct user, user_columns, "User not found");

static const struct column membership_columns[] = {
        TEXT(struct membership, id, "id"),
        TEXT(struct membership, company_id, "companyId"),
        TEXT(struct membership, principal_type, "principalType"),
        TEXT(struct membership, principal_id, "principalId"),
        TEXT(struct membership, status, "status"),
        TEXT(struct membership, role, "membershipRole", .sql = "membership_role"),
        TIME(struct membership, created_at, "createdAt"),
        TIME(struct membership, updated_at, "updatedAt"),
};
const struct row_type membership_table =
        ROW_TYPE("company_memberships", struct membership, membership_columns, "Member not found");

static const struct column board_key_columns[] = {
        TEXT(struct board_key, id),
        TEXT(struct board_key, user_id),
        TEXT(struct board_key, name),
        TEXT(struct board_key, token_sha256),
        TIME_OR_NULL(struct board_key, last_used_at),
        TIME_OR_NULL(struct board_key, expires_at),
        TIME_OR_NULL(struct board_key, revoked_at),
        TIME(struct board_key, created_at),
};
const struct row_type board_key_table =
        ROW_TYPE("board_api_keys", struct board_key, board_key_columns, "Key not found");

static const struct column cli_challenge_columns[] = {
        TEXT(struct cli_challenge, id),
        TEXT(struct cli_challenge, secret_sha256),
        TEXT(struct cli_challenge, board_token_sha256),
        TEXT(struct cli_challenge, command),
        TEXT(struct cli_challenge, client_name),
        TEXT(struct cli_challenge, requested_access),
        TEXT(struct cli_challenge, requested_company_id),
        TEXT(struct cli_challenge, board_api_key_id),
        TEXT(struct cli_challenge, approved_by_user_id),
        TIME_OR_NULL(struct cli_challenge, approved_at),
        TIME_OR_NULL(struct cli_challenge, cancelled_at),
        TIME(struct cli_challenge, expires_at),
        TIME(struct cli_challenge, created_at),
};
const struct row_type cli_challenge_table =
        ROW_TYPE("cli_auth_challenges", struct cli_challenge, cli_challenge_columns,
                 "CLI auth challenge not found");

/* Users */

int users_put(struct db *db, const struct user *row, struct err *err)
{
        return row_exec(db, &user_table,
                        "INSERT INTO users (*) ON CONFLICT (id) DO UPDATE SET "
                        "name = excluded.name, is_instance_admin = excluded.is_instance_admin, "
                        "updated_at = excluded.updated_at",
                        row, DB_NO_ARGS, err);
}

int users_get(struct db *db, const char *id, struct arena *arena, struct user *ret, struct err *err)
{
        return row_get(db, &user_table, "SELECT * FROM users WHERE id = ?1", DB_ARGS(DB_T(id)),
                       arena, ret, err);
}

int users_find_by_name(struct db *db, const char *name, struct arena *arena, struct user *ret,
                       struct err *err)
{
        return row_get(db, &user_table, "SELECT * FROM users WHERE name = ?1 ORDER BY created_at",
                       DB_ARGS(DB_T(name)), arena, ret, err);
}

int memberships_put(struct db *db, const struct membership *row, struct err *err)
{
        return row_exec(db, &membership_table,
                        "INSERT INTO company_memberships (*) "
                        "ON CONFLICT (company_id, principal_type, principal_id) DO UPDATE SET "
                        "membership_role = excluded.membership_role, status = excluded.status, "
                        "updated_at = excluded.updated_at",
                        row, DB_NO_ARGS, err);
}

int memberships_get(struct db *db, const char *company_id, const char *type, const char *principal,
                    struct arena *arena, struct membership *ret, struct err *err)
{
        return row_get(db, &membership_table,
                       "SELECT * FROM company_memberships WHERE company_id = ?1 "
                       "AND principal_type = ?2 AND principal_id = ?3",
                       DB_ARGS(DB_T(company_id), DB_T(type), DB_T(principal)), arena, ret, err);
}

int memberships_by_id(struct db *db, const char *company_id, const char *id, struct arena *arena,
                      struct membership *ret, struct err *err)
{
        return row_get(db, &membership_table,
                       "SELECT * FROM company_memberships WHERE company_id = ?1 "
                       "AND id = ?2",
                       DB_ARGS(DB_T(company_id), DB_T(id)), arena, ret, err);
}

int memberships_of_user(struct db *db, const char *user_id, struct arena *arena, membership_fn fn,
                        void *ctx, struct err *err)
{
        return ROW_EACH(db, &membership_table,
                        "SELECT * FROM company_memberships "
                        "WHERE principal_type = 'user' AND principal_id = ?1 "
                        "ORDER BY created_at, id",
                        DB_ARGS(DB_T(user_id)), arena, fn, ctx, err);
}

int memberships_of_company(struct db *db, const char *company_id, struct arena *arena,
                           membership_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &membership_table,
                        "SELECT * FROM company_memberships "
                        "WHERE company_id = ?1 ORDER BY created_at, id",
                        DB_ARGS(DB_T(company_id)), arena, fn, ctx, err);
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

int board_keys_insert(struct db *db, const struct board_key *row, struct err *err)
{
        return row_insert(db, &board_key_table, row, err);
}

int board_keys_list(struct db *db, const char *user_id, struct arena *arena, board_key_fn fn,
                    void *ctx, struct err *err)
{
        return ROW_EACH(db, &board_key_table,
                        "SELECT * FROM board_api_keys "
                        "WHERE CAST(?1 AS TEXT) IS NULL OR user_id = ?1 ORDER BY created_at, id",
                        DB_ARGS(DB_T(user_id)), arena, fn, ctx, err);
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
        return row_get(db, &board_key_table,
                       "SELECT * FROM board_api_keys WHERE token_sha256 = ?1 "
                       "AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)",
                       DB_ARGS(DB_T(token_sha256), DB_I(now_us)), arena, ret, err);
}

/* Challenges */

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
