/* Board keys: made by an administrator for a user, or by a user for itself. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/access/auth.h"
#include "core/access/member.h"
#include "store/companies.h"

#define KEY_LIFE_DAYS 30

static const char *const roles[] = { "owner", "admin", "operator", "viewer", NULL };

struct key_request {
        struct op *op;
        json_t *body;
        struct buf *out;
        /* from the body */
        const char *name, *user, *company_id, *role;
        bool admin;
        int64_t expires_at;
        json_t *grants;
};

static int check_body(struct key_request *q, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct arena *a = q->op->arena;
        const char *expires;

        check_init(&c, q->body);
        q->name = arena_strdup(a, check_string(&c, "name", CHECK_OPTIONAL, 1, 120));
        q->user = arena_strtrim(a, check_string(&c, "user", CHECK_OPTIONAL, 1, 120));
        q->admin = check_bool(&c, "instanceAdmin", CHECK_OPTIONAL, false);
        q->company_id = arena_strdup(a, check_uuid(&c, "requestedCompanyId", CHECK_NULLABLE));
        q->role = arena_strdup(a, check_enum(&c, "membershipRole", CHECK_OPTIONAL, roles));
        q->grants = member_check_grants(&c, "grants", CHECK_OPTIONAL);
        expires = check_string(&c, "expiresAt", CHECK_NULLABLE, 0, 0);
        q->expires_at = clock_wall_us() + KEY_LIFE_DAYS * 86400 * US_PER_S;
        if (expires && !clock_parse_iso(expires, &q->expires_at))
                check_invalid_string(&c, "expiresAt", "datetime", "Invalid datetime");
        else if (!expires && check_has(&c, "expiresAt"))
                q->expires_at = 0;
        check_unknown(&c, (const char *[]){ "name", "user", "instanceAdmin", "requestedCompanyId",
                                            "membershipRole", "grants", "expiresAt", NULL });
        return check_end(&c, err);
}

/* The user that the key is for: the caller, or a named user that an administrator may create. */
static int find_user(struct db *db, struct key_request *q, struct user *ret, struct err *err)
{
        int r;

        if (!q->user)
                return users_get(db, q->op->actor->user_id, q->op->arena, ret, err);
        r = users_find_by_name(db, q->user, q->op->arena, ret, err);
        if (r >= 0 && (!q->admin || ret->is_instance_admin))
                return r;
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        if (r == ERR_NOT_FOUND)
                *ret = (struct user){
                        .id = arena_strdup(q->op->arena, uuid_new().s),
                        .name = q->user,
                        .created_at = clock_now_us(),
                };
        ret->is_instance_admin = q->admin;
        ret->updated_at = clock_now_us();
        return users_put(db, ret, err);
}

static int join_company(struct db *db, struct key_request *q, const struct user *user,
                        struct err *err)
{
        struct uuid id = uuid_new();
        int64_t now = clock_now_us();
        struct membership m = {
                .id = id.s,
                .company_id = q->company_id,
                .principal_type = "user",
                .principal_id = user->id,
                .role = q->role ? q->role : "operator",
                .status = "active",
                .created_at = now,
                .updated_at = now,
        };
        struct company ignored;
        struct membership present;
        int r = companies_get(db, q->company_id, q->op->arena, &ignored, err);

        if (r < 0)
                return r;
        /* A further key for a member does not change the member's role. */
        r = memberships_get(db, q->company_id, "user", user->id, q->op->arena, &present, err);
        if (r == ERR_NOT_FOUND || (r >= 0 && q->role)) {
                err_clear(err);
                r = memberships_put(db, &m, err);
        }
        return r < 0 ? r : member_put_grants(db, q->company_id, "user", user->id, q->grants, err);
}

static void write_key(struct jw *w, const struct board_key *k, const char *token)
{
        jw_object(w);
        jw_kstring(w, "id", k->id);
        jw_kstring(w, "name", k->name);
        jw_kstring(w, "userId", k->user_id);
        if (token)
                jw_kstring(w, "token", token);
        jw_ktime(w, "createdAt", k->created_at);
        jw_ktime(w, "expiresAt", k->expires_at);
        jw_ktime(w, "lastUsedAt", k->last_used_at);
        jw_ktime(w, "revokedAt", k->revoked_at);
        jw_object_end(w);
}

static int create_key(struct db *db, void *arg, struct err *err)
{
        struct key_request *q = arg;
        char token[TOKEN_MAX], digest[SHA256_HEX_LEN + 1];
        struct uuid id = uuid_new();
        struct board_key key = { .id = id.s, .token_sha256 = digest };
        struct user user;
        struct jw w;
        int r = find_user(db, q, &user, err);

        if (r >= 0 && q->company_id)
                r = join_company(db, q, &user, err);
        if (r < 0)
                return r;
        auth_new_token(BOARD_TOKEN_PREFIX, token);
        auth_hash_token(token, digest);
        key.user_id = user.id;
        key.name = q->name ? q->name : "default";
        key.expires_at = q->expires_at;
        key.created_at = clock_now_us();
        r = board_keys_insert(db, &key, err);
        if (r >= 0) {
                jw_init(&w, q->out);
                write_key(&w, &key, token);
        }
        explicit_bzero(token, sizeof(token));
        return r;
}

int auth_create_board_key(struct op *op, struct runtime *rt, json_t *body, struct buf *ret_json,
                          struct err *err)
{
        struct key_request q = { .op = op, .body = body, .out = ret_json };
        int r = access_board(op->actor, err);

        if (r >= 0)
                r = check_body(&q, err);
        if (r >= 0 && (q.user || q.admin || q.role || q.grants || q.company_id))
                r = access_admin(op->actor, "Instance admin access required", err);
        if (r >= 0 && q.company_id == NULL && (q.role || q.grants))
                r = err_set(err, ERR_UNPROCESSABLE,
                            "membershipRole and grants belong to a company: give "
                            "requestedCompanyId too");
        if (r < 0)
                return r;
        FAULT("key.create.before");
        r = store_write(op, rt->store, create_key, &q, err);
        FAULT("key.create.after");
        return r;
}

struct key_list {
        struct op *op;
        struct jw *w;
};

static int show_key(void *ctx, const struct board_key *k)
{
        write_key(((struct key_list *)ctx)->w, k, NULL);
        return 0;
}

static int list_keys(struct db *db, void *arg, struct err *err)
{
        struct key_list *q = arg;
        const struct actor *a = q->op->actor;

        return board_keys_list(db, a->is_instance_admin ? NULL : a->user_id, q->op->arena, show_key,
                               q, err);
}

int auth_list_board_keys(struct op *op, struct runtime *rt, struct buf *ret_json, struct err *err)
{
        struct jw w;
        struct key_list q = { op, &w };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        jw_init(&w, ret_json);
        jw_array(&w);
        r = store_read(op, rt->store, list_keys, &q, err);
        jw_array_end(&w);
        return r;
}

struct revocation {
        struct op *op;
        const char *id;
};

static int revoke_key(struct db *db, void *arg, struct err *err)
{
        struct revocation *q = arg;
        const struct actor *a = q->op->actor;
        int r = board_keys_revoke(db, q->id, a->is_instance_admin ? NULL : a->user_id,
                                  clock_now_us(), err);

        return r == 0 ? err_set(err, ERR_NOT_FOUND, "Key not found") : r;
}

int auth_revoke_board_key(struct op *op, struct runtime *rt, const char *id, struct err *err)
{
        struct revocation q = { op, id };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        FAULT("key.revoke.before");
        r = store_write(op, rt->store, revoke_key, &q, err);
        FAULT("key.revoke.after");
        return r;
}
