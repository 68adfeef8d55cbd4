/* Decides which actor a request comes from, by its token or by the kernel's word about the user. */
#include "core/access/auth.h"
#include "core/access/run_policy.h"

#include <sodium.h>
#include <stdio.h>
#include <strings.h>

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/run_token.h"

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

struct lookup {
        struct op *op;
        const char *digest;
        struct actor *actor;
};

static int board_actor(struct db *db, struct lookup *q, struct err *err)
{
        struct board_key key;
        struct user user;
        int r = board_keys_by_token(db, q->digest, clock_wall_us(), q->op->arena, &key, err);

        if (r >= 0)
                r = users_get(db, key.user_id, q->op->arena, &user, err);
        if (r < 0)
                return r;
        *q->actor = (struct actor){
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

static int agent_actor(struct db *db, struct lookup *q, struct err *err)
{
        struct agent_key key;
        int r = agent_keys_by_token(db, q->digest, q->op->arena, &key, err);

        if (r >= 0)
                r = be_agent(db, q->op, key.agent_id, q->actor, err);
        if (r < 0)
                return r;
        q->actor->source = SOURCE_AGENT_KEY;
        q->actor->key_id = key.id;
        return 0;
}

/* Runs */

struct run_lookup {
        struct op *op;
        const char *company_id, *agent_id, *run_id;
        struct actor *actor;
};

static int look_up_run(struct db *db, void *arg, struct err *err)
{
        struct run_lookup *q = arg;
        struct run run;
        int r = be_agent(db, q->op, q->agent_id, q->actor, err);

        if (r >= 0)
                r = runs_get(db, q->run_id, q->op->arena, &run, err);
        if (r < 0)
                return r;
        if (!streq(q->actor->company_id, q->company_id) || !streq(run.agent_id, q->agent_id))
                return err_set(err, ERR_UNAUTHORIZED, "Unauthorized");
        if (!streq(run.status, RUN_RUNNING))
                return err_set(err, ERR_UNAUTHORIZED, "Run has ended and cannot authenticate");
        q->actor->source = SOURCE_AGENT_JWT;
        q->actor->run_id = run.id;
        return 0;
}

int auth_run_actor(struct op *op, struct runtime *rt, const char *company_id, const char *agent_id,
                   const char *run_id, struct actor *ret, struct err *err)
{
        struct run_lookup q = { op, company_id, agent_id, run_id, ret };
        int r = store_read(op, rt->store, look_up_run, &q, err);

        return r == ERR_NOT_FOUND ? err_set(err, ERR_UNAUTHORIZED, "Unauthorized") : r;
}

static int token_actor(struct op *op, struct runtime *rt, const char *token, struct actor *ret,
                       struct err *err)
{
        struct jwt_claims claims;
        int r = run_token_verify(rt, token, &claims, err);

        return r < 0 ? r
                     : auth_run_actor(op, rt, claims.company_id, claims.sub, claims.run_id, ret,
                                      err);
}

static int check_run_of_agent(struct db *db, void *arg, struct err *err)
{
        const struct run_lookup *q = arg;
        struct run run;
        int r = runs_get(db, q->run_id, q->op->arena, &run, err);

        if (r == ERR_NOT_FOUND)
                return 0; /* an unknown run belongs to no other agent */
        if (r >= 0 && !streq(run.agent_id, q->agent_id))
                return err_set(err, ERR_FORBIDDEN,
                               "X-Paperclip-Run-Id names a run of another agent");
        return r;
}

int auth_check_run(struct op *op, struct runtime *rt, const struct actor *actor, const char *run_id,
                   struct err *err)
{
        struct run_lookup q = { .op = op, .agent_id = actor->agent_id, .run_id = run_id };
        int r;

        if (actor->type != ACTOR_AGENT)
                return 0;
        if (!actor->run_id)
                return store_read(op, rt->store, check_run_of_agent, &q, err);
        if (streq(actor->run_id, run_id))
                return 0;
        r = err_set(err, ERR_UNPROCESSABLE,
                    "X-Paperclip-Run-Id does not match signed agent JWT run_id");
        err_details(err, xstrdup("{\"code\":\"agent_jwt_run_id_mismatch\"}"));
        return r;
}

/* Keys */

static int look_up(struct db *db, void *arg, struct err *err)
{
        int r = board_actor(db, arg, err);

        return r == ERR_NOT_FOUND ? agent_actor(db, arg, err) : r;
}

int auth_actor(struct op *op, struct runtime *rt, const char *authorization, bool is_operator,
               struct actor *ret, struct err *err)
{
        char digest[SHA256_HEX_LEN + 1];
        struct lookup q = { op, digest, ret };
        int r;

        if (auth_actor_quick(authorization, is_operator, ret))
                return 0;
        if (strncasecmp(authorization, "Bearer ", 7) != 0)
                return err_set(err, ERR_UNAUTHORIZED, "Unauthorized");
        if (rt->run_keys && jwt_is_shaped(authorization + 7))
                return token_actor(op, rt, authorization + 7, ret, err);
        auth_hash_token(authorization + 7, digest);
        r = store_read(op, rt->store, look_up, &q, err);
        return r == ERR_NOT_FOUND ? err_set(err, ERR_UNAUTHORIZED, "Unauthorized") : r;
}

/* The built-in operator */

static int ensure_operator(struct db *db, void *arg, struct err *err)
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

static int operator_exists(struct db *db, void *arg, struct err *err)
{
        struct op *op = arg;
        struct user u;

        return users_get(db, LOCAL_BOARD_USER, op->arena, &u, err);
}

int auth_ensure_operator(struct op *op, struct runtime *rt, struct err *err)
{
        int r = store_read(op, rt->store, operator_exists, op, err);

        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        return store_write(op, rt->store, ensure_operator, NULL, err);
}

/* The caller's own identity */

struct me {
        struct op *op;
        struct jw *w;
        bool companies;
};

static int show_membership(void *ctx, const struct membership *m)
{
        struct me *q = ctx;

        if (q->companies) {
                if (streq(m->status, "active"))
                        jw_string(q->w, m->company_id);
                return 0;
        }
        jw_object(q->w);
        jw_kstring(q->w, "companyId", m->company_id);
        jw_kstring(q->w, "membershipRole", m->role);
        jw_kstring(q->w, "status", m->status);
        jw_object_end(q->w);
        return 0;
}

static int write_me(struct db *db, void *arg, struct err *err)
{
        struct me *q = arg;
        const struct actor *a = q->op->actor;
        struct user user;
        int r = users_get(db, a->user_id, q->op->arena, &user, err);

        if (r < 0)
                return r;
        jw_object(q->w);
        jw_key(q->w, "user");
        jw_object(q->w);
        jw_kstring(q->w, "id", user.id);
        jw_kstring(q->w, "name", user.name);
        jw_kstring(q->w, "email", user.email);
        jw_object_end(q->w);
        jw_kstring(q->w, "userId", user.id);
        jw_kbool(q->w, "isInstanceAdmin", a->is_instance_admin);
        jw_key(q->w, "companyIds");
        jw_array(q->w);
        q->companies = true;
        r = memberships_of_user(db, user.id, q->op->arena, show_membership, q, err);
        jw_array_end(q->w);
        jw_key(q->w, "memberships");
        jw_array(q->w);
        q->companies = false;
        if (r >= 0)
                r = memberships_of_user(db, user.id, q->op->arena, show_membership, q, err);
        jw_array_end(q->w);
        jw_kstring(q->w, "source", actor_source_name(a->source));
        jw_kstring(q->w, "keyId", a->key_id);
        jw_object_end(q->w);
        return r;
}

int auth_me(struct op *op, struct runtime *rt, struct buf *ret_json, struct err *err)
{
        struct jw w;
        struct me q = { op, &w, false };

        if (op->actor->type != ACTOR_BOARD)
                return err_set(err, ERR_UNAUTHORIZED, "Board authentication required");
        jw_init(&w, ret_json);
        return store_read(op, rt->store, write_me, &q, err);
}
