/* Makes, lists and revokes the keys of agents. */
#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/access/auth.h"
#include "core/access/run_policy.h"
#include "core/agents/agent.h"

struct request {
        struct op *op;
        const char *agent_id, *key_id;
        json_t *body;
        struct jw *w;
};

static int load_agent(struct db *db, struct request *q, struct agent *ret, struct err *err)
{
        int r = agents_get(db, q->agent_id, q->op->arena, ret, err);

        return r < 0 ? r : access_manage_agents(db, q->op->actor, ret->company_id, err);
}

static int check_name(struct request *q, const char **ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *name;

        *ret = "default";
        if (!q->body)
                return 0;
        check_init(&c, q->body);
        name = check_string(&c, "name", CHECK_OPTIONAL, 1, 120);
        if (name)
                *ret = arena_strdup(q->op->arena, name);
        return check_end(&c, err);
}

static int create(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        char token[TOKEN_MAX], digest[SHA256_HEX_LEN + 1];
        struct uuid id = uuid_new();
        struct agent_key key = { .id = id.s, .token_sha256 = digest, .created_at = clock_now_us() };
        struct agent agent;
        int r = load_agent(db, q, &agent, err);

        if (r >= 0)
                r = check_name(q, &key.name, err);
        if (r < 0)
                return r;
        if (run_agent_absence(&agent))
                return err_set(err, ERR_CONFLICT, "Cannot create keys for %s agents",
                               run_agent_absence(&agent));
        auth_new_token(AGENT_TOKEN_PREFIX, token);
        auth_hash_token(token, digest);
        key.agent_id = agent.id;
        key.company_id = agent.company_id;
        r = agent_keys_insert(db, &key, err);
        if (r >= 0)
                r = audit(db, q->op, agent.company_id, "agent.key_created", "agent", agent.id,
                          json_pack("{s:s, s:s}", "keyId", key.id, "name", key.name), err);
        if (r >= 0) {
                jw_object(q->w);
                jw_kstring(q->w, "id", key.id);
                jw_kstring(q->w, "name", key.name);
                jw_kstring(q->w, "token", token);
                jw_ktime(q->w, "createdAt", key.created_at);
                jw_object_end(q->w);
        }
        explicit_bzero(token, sizeof(token));
        return r;
}

int agent_key_create(struct op *op, struct runtime *rt, const char *agent_id, json_t *body,
                     struct buf *ret_json, struct err *err)
{
        struct jw w;
        struct request q = { .op = op, .agent_id = agent_id, .body = body, .w = &w };
        int r = access_board(op->actor, err);

        jw_init(&w, ret_json);
        if (r < 0)
                return r;
        FAULT("agent_key.create.before");
        r = store_write(op, rt->store, create, &q, err);
        FAULT("agent_key.create.after");
        return r;
}

static int show(void *ctx, const struct agent_key *k)
{
        struct jw *w = ctx;

        jw_object(w);
        jw_kstring(w, "id", k->id);
        jw_kstring(w, "name", k->name);
        jw_ktime(w, "createdAt", k->created_at);
        jw_ktime(w, "revokedAt", k->revoked_at);
        jw_object_end(w);
        return 0;
}

static int list(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent agent;
        int r = load_agent(db, q, &agent, err);

        if (r < 0)
                return r;
        jw_array(q->w);
        r = agent_keys_list(db, q->agent_id, q->op->arena, show, q->w, err);
        jw_array_end(q->w);
        return r;
}

int agent_key_list(struct op *op, struct runtime *rt, const char *agent_id, struct buf *ret_json,
                   struct err *err)
{
        struct jw w;
        struct request q = { .op = op, .agent_id = agent_id, .w = &w };
        int r = access_board(op->actor, err);

        jw_init(&w, ret_json);
        return r < 0 ? r : store_read(op, rt->store, list, &q, err);
}

static int revoke_key(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent agent;
        int r = load_agent(db, q, &agent, err);

        if (r >= 0)
                r = agent_keys_revoke(db, q->agent_id, q->key_id, clock_now_us(), err);
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Key not found");
        if (r > 0)
                r = audit(db, q->op, agent.company_id, "agent.key_revoked", "agent", agent.id,
                          json_pack("{s:s}", "keyId", q->key_id), err);
        return r;
}

int agent_key_revoke(struct op *op, struct runtime *rt, const char *agent_id, const char *key_id,
                     struct err *err)
{
        struct request q = { .op = op, .agent_id = agent_id, .key_id = key_id };
        int r = access_board(op->actor, err);

        return r < 0 ? r : store_write(op, rt->store, revoke_key, &q, err);
}
