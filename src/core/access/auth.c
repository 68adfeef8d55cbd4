/* Decides which actor a request comes from, by its token or by the kernel's word about the user. */
#include "core/access/auth.h"
#include "core/access/run_policy.h"

#include <sodium.h>
#include <stdio.h>
#include <strings.h>

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/run_token.h"
#include "store/companies.h"

void auth_new_token(const char *prefix, char ret[TOKEN_MAX])
{
        char digits[49];

        random_hex(digits, 24);
        snprintf(ret, TOKEN_MAX, "%s%s", prefix, digits);
        explicit_bzero(digits, sizeof(digits));
}

void auth_hash_token(const char *token, char ret[SHA256_HEX_LEN + 1])
{
        unsigned char digest[crypto_hash_sha256_BYTES];

        crypto_hash_sha256(digest, (const unsigned char *)token, strlen(token));
        sodium_bin2hex(ret, SHA256_HEX_LEN + 1, digest, sizeof(digest));
}

/* The actor */

static const struct actor local_board = {
        .type = ACTOR_BOARD,
        .source = SOURCE_LOCAL_IMPLICIT,
        .user_id = LOCAL_BOARD_USER,
        .is_instance_admin = true,
};

bool auth_actor_quick(const char *authorization, bool is_operator, struct actor *ret)
{
        if (authorization)
                return false;
        *ret = is_operator ? local_board : (struct actor){ 0 };
        return true;
}

bool auth_is_operator(const struct settings *s, uid_t daemon_uid, uid_t uid)
{
        if (uid == (uid_t)-1)
                return false;
        for (size_t i = 0; i < s->n_trusted_uids; i++)
                if (s->trusted_uids[i] == uid)
                        return true;
        return uid == 0 || uid == daemon_uid;
}

int auth_refuse_stranger(bool is_known, struct err *err)
{
        return err_set(err, ERR_UNAUTHORIZED,
                       "%s Sign in with a key: the daemon's user makes one with `berth key create "
                       "--board --user NAME`; send it as a bearer token (BERTH_API_KEY). Or have "
                       "your user named in trusted_uids, see berth.toml(5).",
                       is_known ? "This daemon trusts the user who runs it, and you are another "
                                  "one."
                                : "This daemon trusts the user who runs it, and the kernel does "
                                  "not tell which user this connection belongs to.");
}

static int board_key_actor(struct db *db, struct op *op, const char *digest, struct actor *ret,
                           struct err *err)
{
        struct board_key key;
        struct user user;
        int r = board_keys_by_token(db, digest, clock_wall_us(), op->arena, &key, err);

        if (r >= 0)
                r = users_get(db, key.user_id, op->arena, &user, err);
        if (r < 0)
                return r;
        *ret = (struct actor){
                .type = ACTOR_BOARD,
                .source = SOURCE_BOARD_KEY,
                .user_id = user.id,
                .is_instance_admin = user.is_instance_admin,
                .key_id = key.id,
        };
        return 0;
}

/* The caller still has to set how the agent signed in. */
static int be_agent(struct db *db, struct op *op, const char *agent_id, struct actor *ret,
                    struct err *err)
{
        struct agent agent;
        json_t *permissions = NULL;
        int r = agents_get(db, agent_id, op->arena, &agent, err);

        if (r < 0)
                return r;
        if (run_agent_absence(&agent))
                return err_set(err, ERR_UNAUTHORIZED, "Agent is %s and cannot authenticate",
                               run_agent_absence(&agent));
        (void)json_parse(agent.permissions, strlen(agent.permissions), &permissions, NULL);
        *ret = (struct actor){
                .type = ACTOR_AGENT,
                .agent_id = agent.id,
                .company_id = agent.company_id,
                .can_create_agents = json_is_true(json_object_get(permissions, "canCreateAgents")),
        };
        json_decref(permissions);
        return 0;
}

static int agent_key_actor(struct db *db, struct op *op, const char *digest, struct actor *ret,
                           struct err *err)
{
        struct agent_key key;
        int r = agent_keys_by_token(db, digest, op->arena, &key, err);

        if (r >= 0)
                r = be_agent(db, op, key.agent_id, ret, err);
        if (r < 0)
                return r;
        ret->source = SOURCE_AGENT_KEY;
        ret->key_id = key.id;
        return 0;
}

int auth_run_actor(struct op *op, struct runtime *rt, const char *company_id, const char *agent_id,
                   const char *run_id, struct actor *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct run run;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = be_agent(db, op, agent_id, ret, err);
        if (r >= 0)
                r = runs_get(db, run_id, op->arena, &run, err);
        if (r == ERR_NOT_FOUND)
                return err_set(err, ERR_UNAUTHORIZED, "Unauthorized");
        if (r < 0)
                return r;
        if (!streq(ret->company_id, company_id) || !streq(run.agent_id, agent_id))
                return err_set(err, ERR_UNAUTHORIZED, "Unauthorized");
        if (!streq(run.status, RUN_RUNNING))
                return err_set(err, ERR_UNAUTHORIZED, "Run has ended and cannot authenticate");
        ret->source = SOURCE_AGENT_JWT;
        ret->run_id = run.id;
        return 0;
}

int auth_check_run(struct op *op, struct runtime *rt, const struct actor *actor, const char *run_id,
                   struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct run run;
        int r;

        if (actor->type != ACTOR_AGENT || (actor->run_id && streq(actor->run_id, run_id)))
                return 0;
        if (actor->run_id) {
                r = err_set(err, ERR_UNPROCESSABLE,
                            "X-Paperclip-Run-Id does not match signed agent JWT run_id");
                err_details(err, xstrdup("{\"code\":\"agent_jwt_run_id_mismatch\"}"));
                return r;
        }
        r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = runs_get(db, run_id, op->arena, &run, err);
        if (r == ERR_NOT_FOUND)
                return 0; /* an unknown run belongs to no other agent */
        if (r >= 0 && !streq(run.agent_id, actor->agent_id))
                return err_set(err, ERR_FORBIDDEN,
                               "X-Paperclip-Run-Id names a run of another agent");
        return r;
}

int auth_actor(struct op *op, struct runtime *rt, const char *authorization, bool is_operator,
               struct actor *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        char digest[SHA256_HEX_LEN + 1];
        struct jwt_claims claims;
        int r;

        if (auth_actor_quick(authorization, is_operator, ret))
                return 0;
        if (strncasecmp(authorization, "Bearer ", 7) != 0)
                return err_set(err, ERR_UNAUTHORIZED, "Unauthorized");
        if (rt->run_keys && jwt_is_shaped(authorization + 7)) {
                r = run_token_verify(rt, authorization + 7, &claims, err);
                return r < 0 ? r
                             : auth_run_actor(op, rt, claims.company_id, claims.sub, claims.run_id,
                                              ret, err);
        }
        auth_hash_token(authorization + 7, digest);
        r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = board_key_actor(db, op, digest, ret, err);
        if (r == ERR_NOT_FOUND)
                r = agent_key_actor(db, op, digest, ret, err);
        return r == ERR_NOT_FOUND ? err_set(err, ERR_UNAUTHORIZED, "Unauthorized") : r;
}

/* The built-in operator */

static int operator_insert(struct db *db, void *arg, struct err *err)
{
        int64_t now = clock_now_us();
        struct user u = {
                .id = LOCAL_BOARD_USER,
                .name = "Board",
                .email = "local@paperclip.local",
                .is_instance_admin = true,
                .created_at = now,
                .updated_at = now,
        };

        return users_put(db, &u, err);
}

int auth_ensure_operator(struct op *op, struct runtime *rt, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct user user;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = users_get(db, LOCAL_BOARD_USER, op->arena, &user, err);
        store_read_end(&db);
        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        return store_write(op, rt->store, operator_insert, NULL, err);
}

/* -- Board keys: made by an administrator for a user, or by a user for itself ----------------- */

struct key_request {
        struct op *op;
        const struct board_key_request *asked;
        struct board_key *key;
        char *token;
};

/* The user that the key is for: the caller, or a named user that an administrator may create. */
static int key_user(struct db *db, struct op *op, const struct board_key_request *asked,
                    struct user *ret, struct err *err)
{
        if (!asked->user)
                return users_get(db, op->actor->user_id, op->arena, ret, err);
        int r = users_find_by_name(db, asked->user, op->arena, ret, err);
        if (r >= 0 && (!asked->admin || ret->is_instance_admin))
                return r;
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        if (r == ERR_NOT_FOUND)
                *ret = (struct user){
                        .id = arena_strdup(op->arena, uuid_new().s),
                        .name = asked->user,
                        .created_at = clock_now_us(),
                };
        ret->is_instance_admin = asked->admin;
        ret->updated_at = clock_now_us();
        return users_put(db, ret, err);
}

static int join_company(struct db *db, struct op *op, const struct board_key_request *asked,
                        const struct user *user, struct err *err)
{
        struct company ignored;
        struct membership present;
        int r = companies_get(db, asked->company_id, op->arena, &ignored, err);

        if (r < 0)
                return r;
        /* A further key for a member does not change the member's role. */
        r = memberships_get(db, asked->company_id, "user", user->id, op->arena, &present, err);
        if (r == ERR_NOT_FOUND || (r >= 0 && asked->role)) {
                err_clear(err);
                r = member_put(db, asked->company_id, "user", user->id,
                               asked->role ? asked->role : "operator", err);
        }
        return r < 0 ? r
                     : member_put_grants(db, asked->company_id, "user", user->id, &asked->grants,
                                         err);
}

static int board_key_insert(struct db *db, void *arg, struct err *err)
{
        struct key_request *q = arg;
        char digest[SHA256_HEX_LEN + 1];
        struct user user;
        int r = key_user(db, q->op, q->asked, &user, err);

        if (r >= 0 && q->asked->company_id)
                r = join_company(db, q->op, q->asked, &user, err);
        if (r < 0)
                return r;
        auth_new_token(BOARD_TOKEN_PREFIX, q->token);
        auth_hash_token(q->token, digest);
        *q->key = (struct board_key){
                .id = arena_strdup(q->op->arena, uuid_new().s),
                .user_id = user.id,
                .name = q->asked->name ? q->asked->name : "default",
                .token_sha256 = arena_strdup(q->op->arena, digest),
                .expires_at = q->asked->expires_at,
                .created_at = clock_now_us(),
        };
        return board_keys_insert(db, q->key, err);
}

int auth_create_board_key(struct op *op, struct runtime *rt, const struct board_key_request *req,
                          struct board_key *ret, char ret_token[TOKEN_MAX], struct err *err)
{
        struct key_request q = { op, req, ret, ret_token };
        bool membership = req->role || req->grants.list;
        int r = access_board(op->actor, err);

        if (r >= 0 && (req->user || req->admin || membership || req->company_id))
                r = access_admin(op->actor, "Instance admin access required", err);
        if (r >= 0 && !req->company_id && membership)
                r = err_set(err, ERR_UNPROCESSABLE,
                            "membershipRole and grants belong to a company: give "
                            "requestedCompanyId too");
        if (r < 0)
                return r;
        FAULT("key.create.before");
        r = store_write(op, rt->store, board_key_insert, &q, err);
        FAULT("key.create.after");
        return r;
}

struct revocation {
        struct op *op;
        const char *id;
};

static int board_key_revoke(struct db *db, void *arg, struct err *err)
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
        r = store_write(op, rt->store, board_key_revoke, &q, err);
        FAULT("key.revoke.after");
        return r;
}
