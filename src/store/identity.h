/* People and their rights: users, memberships, grants, board keys, CLI sign-in challenges.
 * Principals of memberships and grants are ("user", user id) or ("agent", agent id). Tokens are
 * SHA-256 digests in hexadecimal. */
#pragma once

#include "store/db.h"

struct user {
        const char *id, *name, *email;
        bool is_instance_admin;
        int64_t created_at, updated_at;
};

extern const struct row_type user_table;

struct membership {
        const char *id, *company_id, *principal_type, *principal_id, *role, *status;
        int64_t created_at, updated_at;
};

extern const struct row_type membership_table;

struct board_key {
        const char *id, *user_id, *name, *token_sha256;
        int64_t last_used_at, expires_at, revoked_at, created_at;
};

extern const struct row_type board_key_table;

struct cli_challenge {
        const char *id, *secret_sha256, *board_token_sha256, *command, *client_name;
        const char *requested_access, *requested_company_id, *board_api_key_id;
        const char *approved_by_user_id;
        int64_t approved_at, cancelled_at, expires_at, created_at;
};

extern const struct row_type cli_challenge_table;

typedef int (*membership_fn)(void *ctx, const struct membership *row);
typedef int (*board_key_fn)(void *ctx, const struct board_key *row);
typedef int (*grant_fn)(void *ctx, const char *permission_key, const char *scope);

/* Insert, or set name and admin flag of the one that is there. */
int users_put(struct db *db, const struct user *row, struct err *err);
/* ERR_NOT_FOUND "User not found". */
int users_get(struct db *db, const char *id, struct arena *arena, struct user *ret,
              struct err *err);
int users_find_by_name(struct db *db, const char *name, struct arena *arena, struct user *ret,
                       struct err *err);

/* Insert, or set role and status of the one that is there. */
int memberships_put(struct db *db, const struct membership *row, struct err *err);
/* ERR_NOT_FOUND when the principal is no member. */
int memberships_get(struct db *db, const char *company_id, const char *type, const char *principal,
                    struct arena *arena, struct membership *ret, struct err *err);
int memberships_by_id(struct db *db, const char *company_id, const char *id, struct arena *arena,
                      struct membership *ret, struct err *err);
int memberships_of_user(struct db *db, const char *user_id, struct arena *arena, membership_fn fn,
                        void *ctx, struct err *err);
int memberships_of_company(struct db *db, const char *company_id, struct arena *arena,
                           membership_fn fn, void *ctx, struct err *err);

int memberships_remove(struct db *db, const char *company_id, const char *type,
                       const char *principal, struct err *err);

int grants_put(struct db *db, const char *company_id, const char *type, const char *principal,
               const char *permission, const char *scope, int64_t now_us, struct err *err);
int grants_clear(struct db *db, const char *company_id, const char *type, const char *principal,
                 struct err *err);
int grants_remove(struct db *db, const char *company_id, const char *type, const char *principal,
                  const char *permission, struct err *err);
int grants_list(struct db *db, const char *company_id, const char *type, const char *principal,
                struct arena *arena, grant_fn fn, void *ctx, struct err *err);
/* Whether the principal is an active member with that grant. */
int grants_has(struct db *db, const char *company_id, const char *type, const char *principal,
               const char *permission, bool *ret, struct err *err);

int board_keys_insert(struct db *db, const struct board_key *row, struct err *err);
int board_keys_list(struct db *db, const char *user_id, struct arena *arena, board_key_fn fn,
                    void *ctx, struct err *err);
/* 1, or 0 when there is no such key (of that user, when given). */
int board_keys_revoke(struct db *db, const char *id, const char *user_id, int64_t now_us,
                      struct err *err);
/* The key that is neither revoked nor past its time; ERR_NOT_FOUND otherwise. */
int board_keys_by_token(struct db *db, const char *token_sha256, int64_t now_us,
                        struct arena *arena, struct board_key *ret, struct err *err);

ROW_BASICS(challenges, struct cli_challenge,
           cli_challenge_table) /* challenges_insert(), challenges_get() */
/* Pending to approved, or to cancelled: 1, or 0 when it was not pending. */
int challenges_approve(struct db *db, const char *id, const char *user_id, const char *key_id,
                       int64_t now_us, struct err *err);
int challenges_cancel(struct db *db, const char *id, int64_t now_us, struct err *err);
/* Forget challenges that ended long ago, so that anonymous callers cannot grow the table for ever.
 */
int challenges_prune(struct db *db, int64_t before_us, struct err *err);
int challenges_count_open(struct db *db, int64_t now_us, int64_t *ret, struct err *err);
