/* Routes by which the command line signs in, of the session, of board keys, and of the members of a
 * company. */
#include "api/api.h"
#include "api/encode.h"
#include "base/clock.h"
#include "codec/body.h"
#include "core/access/cli_auth.h"

#define BOARD_KEY_LIFE_US (30 * 86400 * US_PER_S)

/* -- Signing in ------------------------------------------------------------------------------- */

/* Where a browser finds us: the configured address, else the one the caller used. */
static const char *base_url(struct call *c)
{
        const char *url = c->rt->settings.public_url;

        if (!url)
                return arena_printf(&c->arena, "http://%s", c->host ? c->host : "localhost:3100");
        size_t n = strlen(url);
        while (n > 0 && url[n - 1] == '/')
                n--;
        return arena_strndup(&c->arena, url, n);
}

static int post_challenge(struct call *c, struct err *err)
{
        static const char *const access[] = { "board", "instance_admin_required", NULL };
        static const struct body_member members[] = {
                BODY_TEXT(struct cli_challenge, command, "command", .flags = CHECK_REQUIRED,
                          .min = 1, .max = 240),
                BODY_TEXT(struct cli_challenge, client_name, "clientName", .flags = CHECK_NULLABLE,
                          .max = 120),
                BODY_WORD(struct cli_challenge, requested_access, "requestedAccess", access),
                BODY_UUID(struct cli_challenge, requested_company_id, "requestedCompanyId",
                          .flags = CHECK_NULLABLE),
        };
        static const struct body_type type = BODY_TYPE(members);
        struct cli_challenge challenge = { .requested_access = "board" };
        struct body body = body_decode(&type, c->body, true, c->op->arena, &challenge);
        struct cli_tokens tokens;
        const char *path;
        struct jw *w = call_json(c);
        int r = cli_auth_create(c->op, c->rt, &body, c->client ? c->client : "channel", &challenge,
                                &tokens, err);

        if (r >= 0) {
                path = arena_printf(c->op->arena, "/cli-auth/%s?token=%s", challenge.id,
                                    tokens.secret);
                jw_object(w);
                jw_kstring(w, "id", challenge.id);
                jw_kstring(w, "token", tokens.secret);
                jw_kstring(w, "boardApiToken", tokens.board);
                jw_kstring(w, "approvalPath", path);
                jw_kstring(w, "approvalUrl", arena_printf(c->op->arena, "%s%s", base_url(c), path));
                jw_kstring(w, "pollPath",
                           arena_printf(c->op->arena, "/cli-auth/challenges/%s", challenge.id));
                jw_ktime(w, "expiresAt", challenge.expires_at);
                jw_kint(w, "suggestedPollIntervalMs", 1000);
                jw_object_end(w);
        }
        explicit_bzero(&tokens, sizeof(tokens));
        return r;
}

static int get_challenge(struct call *c, struct err *err)
{
        struct cli_challenge challenge;
        struct jw *w = call_json(c);
        int r = cli_auth_show(c->op, c->rt, c->params[0], call_query(c, "token"), &challenge, err);

        if (r < 0)
                return r;
        jw_object(w);
        jw_kstring(w, "id", challenge.id);
        jw_kstring(w, "status", cli_auth_status(&challenge));
        jw_kstring(w, "command", challenge.command);
        jw_kstring(w, "clientName", challenge.client_name);
        jw_kstring(w, "requestedAccess", challenge.requested_access);
        jw_kstring(w, "requestedCompanyId", challenge.requested_company_id);
        jw_ktime(w, "approvedAt", challenge.approved_at);
        jw_ktime(w, "cancelledAt", challenge.cancelled_at);
        jw_ktime(w, "expiresAt", challenge.expires_at);
        jw_object_end(w);
        return 0;
}

/* {token}: the secret of a challenge. */
static struct body read_secret(struct call *c, const char **ret)
{
        struct secret {
                const char *token;
        } secret = { 0 };
        static const struct body_member members[] = {
                BODY_TEXT(struct secret, token, "token", .flags = CHECK_REQUIRED, .min = 16,
                          .max = 256),
        };
        static const struct body_type type = BODY_TYPE(members);
        struct body body = body_decode(&type, c->body, true, c->op->arena, &secret);

        *ret = secret.token;
        return body;
}

static int approve_challenge(struct call *c, struct err *err)
{
        struct cli_challenge challenge;
        const char *token, *user;
        struct body body = read_secret(c, &token);
        struct jw *w = call_json(c);
        int r = cli_auth_approve(c->op, c->rt, c->params[0], &body, token, &challenge, err);

        if (r < 0)
                return r;
        user = challenge.approved_by_user_id;
        jw_object(w);
        jw_kbool(w, "approved", challenge.board_api_key_id != NULL);
        jw_kstring(w, "status", cli_auth_status(&challenge));
        jw_kstring(w, "userId", user ? user : c->actor.user_id);
        jw_kstring(w, "keyId", challenge.board_api_key_id);
        jw_ktime(w, "expiresAt", challenge.expires_at);
        jw_object_end(w);
        return 0;
}

static int cancel_challenge(struct call *c, struct err *err)
{
        struct cli_challenge challenge;
        const char *token;
        struct body body = read_secret(c, &token);
        struct jw *w = call_json(c);
        int r = body_check(&body, err);

        if (r >= 0)
                r = cli_auth_cancel(c->op, c->rt, c->params[0], token, &challenge, err);
        if (r < 0)
                return r;
        jw_object(w);
        jw_kstring(w, "status", cli_auth_status(&challenge));
        jw_kbool(w, "cancelled", challenge.cancelled_at != 0);
        jw_object_end(w);
        return 0;
}

/* -- The caller ------------------------------------------------------------------------------- */

static int show_company_id(void *ctx, const struct membership *m)
{
        if (streq(m->status, "active"))
                jw_string(ctx, m->company_id);
        return 0;
}

static int show_membership(void *ctx, const struct membership *m)
{
        jw_object(ctx);
        jw_kstring(ctx, "companyId", m->company_id);
        jw_kstring(ctx, "membershipRole", m->role);
        jw_kstring(ctx, "status", m->status);
        jw_object_end(ctx);
        return 0;
}

static int get_me(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct arena *a = c->op->arena;
        struct jw *w = call_json(c);
        struct user user;

        if (c->actor.type != ACTOR_BOARD)
                return err_set(err, ERR_UNAUTHORIZED, "Board authentication required");
        int r = store_read_begin(c->op, c->rt->store, &db, err);
        if (r >= 0)
                r = users_get(db, c->actor.user_id, a, &user, err);
        if (r < 0)
                return r;
        jw_object(w);
        jw_key(w, "user");
        jw_object(w);
        jw_kstring(w, "id", user.id);
        jw_kstring(w, "name", user.name);
        jw_kstring(w, "email", user.email);
        jw_object_end(w);
        jw_kstring(w, "userId", user.id);
        jw_kbool(w, "isInstanceAdmin", c->actor.is_instance_admin);
        jw_key(w, "companyIds");
        jw_array(w);
        r = memberships_of_user(db, user.id, a, show_company_id, w, err);
        jw_array_end(w);
        jw_key(w, "memberships");
        jw_array(w);
        if (r >= 0)
                r = memberships_of_user(db, user.id, a, show_membership, w, err);
        jw_array_end(w);
        jw_kstring(w, "source", actor_source_name(c->actor.source));
        jw_kstring(w, "keyId", c->actor.key_id);
        jw_object_end(w);
        return r;
}

static int get_session(struct call *c, struct err *err)
{
        if (c->actor.type != ACTOR_BOARD)
                return err_set(err, ERR_UNAUTHORIZED, "Board authentication required");
        struct jw *w = call_json(c);
        jw_object(w);
        jw_key(w, "session");
        jw_object(w);
        jw_kstring(w, "id", c->actor.key_id ? c->actor.key_id : "local");
        jw_kstring(w, "userId", c->actor.user_id);
        jw_object_end(w);
        jw_key(w, "user");
        jw_object(w);
        jw_kstring(w, "id", c->actor.user_id);
        jw_knull(w, "email");
        jw_kstring(w, "name",
                   streq(c->actor.user_id, LOCAL_BOARD_USER) ? "Board" : c->actor.user_id);
        jw_knull(w, "image");
        jw_object_end(w);
        jw_object_end(w);
        return 0;
}

/* -- Board keys ------------------------------------------------------------------------------- */

/* [{permissionKey, scope?}], into the struct member_grants that the list is a part of. */
static void decode_grants(struct check *c, const struct body_member *m, void *into,
                          struct arena *arena)
{
        struct member_grants *grants = (void *)((char *)into + m->offset);
        json_t *grant;
        size_t i;

        grants->at = arena_alloc(arena, (json_array_size(grants->list) + 1) * sizeof(*grants->at));
        json_array_foreach(grants->list, i, grant)
        {
                struct check n;
                const char *key;
                json_t *scope;

                check_nested_item(&n, c, m->name, i, grant);
                key = check_enum(&n, "permissionKey", CHECK_REQUIRED, member_permissions);
                scope = check_record(&n, "scope", CHECK_NULLABLE);
                check_unknown(&n, (const char *[]){ "permissionKey", "scope", NULL });
                grants->at[grants->n++] =
                        (struct member_grant){ arena_strdup(arena, key),
                                               scope ? json_to_arena(arena, scope) : NULL };
        }
}

static void encode_board_key(struct jw *w, const struct board_key *k, const char *token)
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

static int show_board_key(void *ctx, const struct board_key *k)
{
        encode_board_key(ctx, k, NULL);
        return 0;
}

static int list_board_keys(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const char *user = c->actor.is_instance_admin ? NULL : c->actor.user_id;
        int r = access_board(&c->actor, err);

        if (r >= 0)
                r = store_read_begin(c->op, c->rt->store, &db, err);
        return r < 0 ? r
                     : call_list_end(c, board_keys_list(db, user, c->op->arena, show_board_key,
                                                        call_list(c), err));
}

static int create_board_key(struct call *c, struct err *err)
{
        static const char *const roles[] = { "owner", "admin", "operator", "viewer", NULL };
        static const struct body_member members[] = {
                BODY_TEXT(struct board_key_request, name, "name", .min = 1, .max = 120),
                BODY_TRIMMED(struct board_key_request, user, "user", .min = 1, .max = 120),
                BODY_FLAG(struct board_key_request, admin, "instanceAdmin"),
                BODY_UUID(struct board_key_request, company_id, "requestedCompanyId",
                          .flags = CHECK_NULLABLE),
                BODY_WORD(struct board_key_request, role, "membershipRole", roles),
                BODY_LIST(struct board_key_request, grants.list, "grants", .more = decode_grants),
                BODY_TIME(struct board_key_request, expires_at, "expiresAt",
                          .flags = CHECK_NULLABLE),
        };
        static const struct body_type type = BODY_TYPE(members, .is_strict = true);
        struct board_key_request req = { .expires_at = clock_wall_us() + BOARD_KEY_LIFE_US };
        struct body body = body_decode(&type, c->body, true, c->op->arena, &req);
        char token[TOKEN_MAX];
        struct board_key key;
        int r = access_board(&c->actor, err);

        if (r >= 0)
                r = body_check(&body, err);
        if (r >= 0)
                r = auth_create_board_key(c->op, c->rt, &req, &key, token, err);
        if (r >= 0)
                encode_board_key(call_json(c), &key, token);
        explicit_bzero(token, sizeof(token));
        return r;
}

/* Revoke the key that this very request used. */
static int revoke_current(struct call *c, struct err *err)
{
        struct jw *w = call_json(c);

        if (c->actor.source != SOURCE_BOARD_KEY)
                return err_set(err, ERR_INVALID, "Current board API key context is required");
        int r = auth_revoke_board_key(c->op, c->rt, c->actor.key_id, err);
        if (r < 0)
                return r;
        jw_object(w);
        jw_kbool(w, "revoked", true);
        jw_kstring(w, "keyId", c->actor.key_id);
        jw_object_end(w);
        return 0;
}

/* -- Members of a company --------------------------------------------------------------------- */

struct members {
        struct call *c;
        struct db *db;
        struct err *err;
};

static int show_grant(void *ctx, const char *key, const char *scope)
{
        jw_object(ctx);
        jw_kstring(ctx, "permissionKey", key);
        jw_kraw(ctx, "scope", scope);
        jw_object_end(ctx);
        return 0;
}

static int show_member(void *ctx, const struct membership *m)
{
        struct members *all = ctx;
        struct jw *w = &all->c->json;

        jw_object(w);
        jw_kstring(w, "id", m->id);
        jw_kstring(w, "companyId", m->company_id);
        jw_kstring(w, "principalType", m->principal_type);
        jw_kstring(w, "principalId", m->principal_id);
        jw_kstring(w, "membershipRole", m->role);
        jw_kstring(w, "status", m->status);
        jw_knull(w, "user"); /* Berth keeps no profiles */
        jw_key(w, "grants");
        jw_array(w);
        int r = grants_list(all->db, m->company_id, m->principal_type, m->principal_id,
                            all->c->op->arena, show_grant, w, all->err);
        jw_array_end(w);
        jw_ktime(w, "createdAt", m->created_at);
        jw_ktime(w, "updatedAt", m->updated_at);
        jw_object_end(w);
        return r;
}

/* What the caller may do about members. Berth has no invitations: they are never to be approved. */
static int show_access(struct call *c, struct db *db, struct jw *w, struct err *err)
{
        struct membership own = { 0 };
        bool manages;
        int r = access_has(db, &c->actor, c->params[0], PERM_USERS_PERMISSIONS, &manages, err);

        if (r >= 0)
                r = memberships_get(db, c->params[0], "user", c->actor.user_id, c->op->arena, &own,
                                    err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                r = 0;
        }
        if (r < 0)
                return r;
        jw_key(w, "access");
        jw_object(w);
        jw_kstring(w, "currentUserRole", own.role);
        jw_kbool(w, "canManageMembers", manages);
        jw_kbool(w, "canInviteUsers", false);
        jw_kbool(w, "canApproveJoinRequests", false);
        jw_object_end(w);
        return 0;
}

static int list_members(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct members all = { .c = c, .err = err };
        struct jw *w;
        int r = access_board(&c->actor, err);

        if (r >= 0)
                r = call_read(c, c->params[0], &db, err);
        if (r < 0)
                return r;
        all.db = db;
        w = call_json(c);
        jw_object(w);
        jw_key(w, "members");
        jw_array(w);
        r = memberships_of_company(db, c->params[0], c->op->arena, show_member, &all, err);
        jw_array_end(w);
        if (r >= 0)
                r = show_access(c, db, w, err);
        jw_object_end(w);
        return MIN(r, 0);
}

static int patch_permissions(struct call *c, struct err *err)
{
        static const struct body_member members[] = {
                BODY_LIST(struct member_grants, list, "grants", .flags = CHECK_REQUIRED,
                          .more = decode_grants),
        };
        static const struct body_type type = BODY_TYPE(members, .is_strict = true);
        CLEAN(store_read_end) struct db *db = NULL;
        struct member_grants grants = { 0 };
        struct body body = body_decode(&type, c->body, true, c->op->arena, &grants);
        struct membership m;
        int r = call_uuid(c, 1, "Member not found", err);

        if (r >= 0)
                r = member_set_permissions(c->op, c->rt, c->params[0], c->params[1], &body, &grants,
                                           &m, err);
        if (r >= 0)
                r = store_read_begin(c->op, c->rt->store, &db, err);
        if (r < 0)
                return r;
        (void)call_json(c);
        return show_member(&(struct members){ c, db, err }, &m);
}

const struct route routes_access[] = {
        { "POST", "/api/cli-auth/challenges", .fn = post_challenge, .status = 201,
          .flags = ROUTE_OPEN },
        { "GET", "/api/cli-auth/challenges/:id", .fn = get_challenge, .flags = ROUTE_OPEN },
        { "POST", "/api/cli-auth/challenges/:id/approve", .fn = approve_challenge,
          .flags = ROUTE_OPEN },
        { "POST", "/api/cli-auth/challenges/:id/cancel", .fn = cancel_challenge,
          .flags = ROUTE_OPEN },
        { "GET", "/api/cli-auth/me", .fn = get_me },
        { "POST", "/api/cli-auth/revoke-current", .fn = revoke_current, .flags = ROUTE_WHEN_FULL },
        { "GET", "/api/auth/get-session", .fn = get_session },
        { "GET", "/api/board-api-keys", .fn = list_board_keys },
        { "POST", "/api/board-api-keys", .fn = create_board_key, .status = 201,
          .flags = ROUTE_BODY_FREE },
        { "DELETE", "/api/board-api-keys/:id", .end_of = auth_revoke_board_key },
        { "GET", "/api/companies/:id/members", .fn = list_members },
        { "PATCH", "/api/companies/:id/members/:member/permissions", .fn = patch_permissions },
        { 0 },
};
