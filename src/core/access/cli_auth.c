/* Decides about sign-in challenges of the CLI: opening, approving, cancelling, and their limits. */
#include "core/access/cli_auth.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/access/auth.h"

#define CHALLENGE_LIFE_US (600 * US_PER_S)
#define KEY_LIFE_US       (30 * 86400 * US_PER_S)
/* Anybody may open challenges; more than this at once is an attempt to fill the disk. One client
 * may have only a part of them, so that a client that opens too many shuts out only itself. */
#define CHALLENGES_OPEN_MAX   1000
#define CHALLENGES_CLIENT_MAX 100

struct request {
        struct op *op;
        const char *id;
        const char *token;
        json_t *body;
        const char *base_url;
        struct buf *out;
};

/* The clients of the open challenges. In memory: after a restart each client begins anew, and the
 * limit of all is still the database's. */
static struct {
        pthread_mutex_t lock;
        struct opened {
                char id[UUID_LEN + 1];
                char client[80]; /* http_request_client() */
                int64_t expires_at;
        } at[CHALLENGES_OPEN_MAX];
        size_t n;
} opened = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void opened_forget(const char *id)
{
        pthread_mutex_lock(&opened.lock);
        for (size_t i = 0; i < opened.n; i++)
                if (streq(opened.at[i].id, id))
                        opened.at[i] = opened.at[--opened.n];
        pthread_mutex_unlock(&opened.lock);
}

/* Count a challenge to its client before it is written; false: that client has enough. */
static bool opened_add(const char *id, const char *client, int64_t now)
{
        size_t own = 0;
        bool room;

        pthread_mutex_lock(&opened.lock);
        for (size_t i = 0; i < opened.n;) {
                if (opened.at[i].expires_at <= now) {
                        opened.at[i] = opened.at[--opened.n];
                        continue;
                }
                own += streq(opened.at[i++].client, client);
        }
        room = own < CHALLENGES_CLIENT_MAX && opened.n < CHALLENGES_OPEN_MAX;
        if (room) {
                struct opened *o = &opened.at[opened.n++];

                (void)snprintf(o->id, sizeof(o->id), "%s", id);
                (void)snprintf(o->client, sizeof(o->client), "%s", client);
                o->expires_at = now + CHALLENGE_LIFE_US;
        }
        pthread_mutex_unlock(&opened.lock);
        return room;
}

static const char *status_of(const struct cli_challenge *c, int64_t now)
{
        if (c->cancelled_at)
                return "cancelled";
        if (c->approved_at)
                return "approved";
        return c->expires_at <= now ? "expired" : "pending";
}

/* Creating */

static int check_create(struct request *q, struct cli_challenge *c, struct err *err)
{
        static const char *const access[] = { "board", "instance_admin_required", NULL };
        CLEAN(check_done) struct check k = { 0 };
        struct arena *a = q->op->arena;
        const char *wanted;

        check_init(&k, q->body);
        c->command = arena_strdup(a, check_string(&k, "command", CHECK_REQUIRED, 1, 240));
        c->client_name = arena_strdup(a, check_string(&k, "clientName", CHECK_NULLABLE, 0, 120));
        wanted = check_enum(&k, "requestedAccess", CHECK_OPTIONAL, access);
        c->requested_access = wanted ? arena_strdup(a, wanted) : "board";
        c->requested_company_id =
                arena_strdup(a, check_uuid(&k, "requestedCompanyId", CHECK_NULLABLE));
        return check_end(&k, err);
}

static void write_created(struct request *q, const struct cli_challenge *c, const char *secret,
                          const char *board_token)
{
        const char *path = arena_printf(q->op->arena, "/cli-auth/%s?token=%s", c->id, secret);
        struct jw w;

        jw_init(&w, q->out);
        jw_object(&w);
        jw_kstring(&w, "id", c->id);
        jw_kstring(&w, "token", secret);
        jw_kstring(&w, "boardApiToken", board_token);
        jw_kstring(&w, "approvalPath", path);
        jw_kstring(&w, "approvalUrl", arena_printf(q->op->arena, "%s%s", q->base_url, path));
        jw_kstring(&w, "pollPath", arena_printf(q->op->arena, "/cli-auth/challenges/%s", c->id));
        jw_ktime(&w, "expiresAt", c->expires_at);
        jw_kint(&w, "suggestedPollIntervalMs", 1000);
        jw_object_end(&w);
}

static int create(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        char secret[TOKEN_MAX], token[TOKEN_MAX];
        char secret_digest[SHA256_HEX_LEN + 1], token_digest[SHA256_HEX_LEN + 1];
        struct cli_challenge c = { .secret_sha256 = secret_digest,
                                   .board_token_sha256 = token_digest };
        int64_t open, now = clock_now_us();
        int r = check_create(q, &c, err);

        if (r >= 0)
                r = challenges_prune(db, now - CHALLENGE_LIFE_US, err);
        if (r >= 0)
                r = challenges_count_open(db, now, &open, err);
        if (r < 0)
                return r;
        if (open >= CHALLENGES_OPEN_MAX)
                return err_set(err, ERR_BUSY,
                               "Too many sign-in requests are open; try again later.");
        auth_new_token(CHALLENGE_TOKEN_PREFIX, secret);
        auth_new_token(BOARD_TOKEN_PREFIX, token);
        auth_hash_token(secret, secret_digest);
        auth_hash_token(token, token_digest);
        c.id = q->id;
        c.created_at = now;
        c.expires_at = now + CHALLENGE_LIFE_US;
        r = challenges_insert(db, &c, err);
        if (r >= 0)
                write_created(q, &c, secret, token);
        explicit_bzero(secret, sizeof(secret));
        explicit_bzero(token, sizeof(token));
        return r;
}

int cli_auth_create(struct op *op, struct runtime *rt, json_t *body, const char *base_url,
                    const char *client, struct buf *ret_json, struct err *err)
{
        struct request q = { .op = op, .body = body, .base_url = base_url, .out = ret_json };
        int r;

        q.id = arena_strdup(op->arena, uuid_new().s);
        if (!opened_add(q.id, client, clock_now_us()))
                return err_set(err, ERR_BUSY,
                               "Too many sign-in requests from here are open; answer or cancel "
                               "them, or try again in ten minutes.");
        FAULT("cli_auth.create.before");
        r = store_write(op, rt->store, create, &q, err);
        FAULT("cli_auth.create.after");
        if (r < 0)
                opened_forget(q.id);
        return r;
}

/* Reading; also the check of the secret for everything else */

static int load(struct db *db, struct request *q, struct cli_challenge *ret, struct err *err)
{
        char digest[SHA256_HEX_LEN + 1];
        int r = challenges_get(db, q->id, q->op->arena, ret, err);

        if (r < 0)
                return r;
        auth_hash_token(q->token ? q->token : "", digest);
        if (sodium_memcmp(digest, ret->secret_sha256, SHA256_HEX_LEN) != 0)
                return err_set(err, ERR_NOT_FOUND, "CLI auth challenge not found");
        return 0;
}

static int show(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct cli_challenge c;
        struct jw w;
        int r = load(db, q, &c, err);

        if (r < 0)
                return r;
        jw_init(&w, q->out);
        jw_object(&w);
        jw_kstring(&w, "id", c.id);
        jw_kstring(&w, "status", status_of(&c, clock_wall_us()));
        jw_kstring(&w, "command", c.command);
        jw_kstring(&w, "clientName", c.client_name);
        jw_kstring(&w, "requestedAccess", c.requested_access);
        jw_kstring(&w, "requestedCompanyId", c.requested_company_id);
        jw_ktime(&w, "approvedAt", c.approved_at);
        jw_ktime(&w, "cancelledAt", c.cancelled_at);
        jw_ktime(&w, "expiresAt", c.expires_at);
        jw_object_end(&w);
        return 0;
}

int cli_auth_show(struct op *op, struct runtime *rt, const char *id, const char *token,
                  struct buf *ret_json, struct err *err)
{
        struct request q = { .op = op, .id = id, .token = token, .out = ret_json };

        return store_read(op, rt->store, show, &q, err);
}

/* Approving and cancelling */

static int check_token(struct request *q, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };

        check_init(&k, q->body);
        q->token = arena_strdup(q->op->arena, check_string(&k, "token", CHECK_REQUIRED, 16, 256));
        return check_end(&k, err);
}

struct approval {
        struct request *q;
        struct db *db;
        const struct cli_challenge *c;
        struct err *err;
};

static int audit_company(void *ctx, const struct membership *m)
{
        struct approval *p = ctx;

        return audit(p->db, p->q->op, m->company_id, "board_api_key.created", "board_api_key",
                     p->c->board_api_key_id,
                     json_pack("{s:s, s:o}", "command", p->c->command, "clientName",
                               json_string_or_null(p->c->client_name)),
                     p->err);
}

static int make_key(struct db *db, struct request *q, struct cli_challenge *c, int64_t now,
                    struct err *err)
{
        struct board_key key = {
                .id = arena_strdup(q->op->arena, uuid_new().s),
                .user_id = q->op->actor->user_id,
                .name = c->client_name ? c->client_name : "cli",
                .token_sha256 = c->board_token_sha256,
                .expires_at = now + KEY_LIFE_US,
                .created_at = now,
        };
        struct approval p = { q, db, c, err };
        int r = challenges_approve(db, c->id, key.user_id, key.id, now, err);

        if (r == 0)
                return err_set(err, ERR_CONFLICT, "CLI auth challenge is no longer pending");
        c->board_api_key_id = key.id;
        c->approved_by_user_id = key.user_id;
        c->approved_at = now;
        if (r >= 0)
                r = board_keys_insert(db, &key, err);
        if (r >= 0)
                r = memberships_of_user(db, key.user_id, q->op->arena, audit_company, &p, err);
        return r;
}

static int approve(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct cli_challenge c;
        int64_t now = clock_now_us();
        struct jw w;
        int r = load(db, q, &c, err);

        if (r < 0)
                return r;
        if (streq(c.requested_access, "instance_admin_required")) {
                r = access_admin(q->op->actor, "Instance admin access required", err);
                if (r < 0)
                        return r;
        }
        if (streq(status_of(&c, now), "pending"))
                r = make_key(db, q, &c, now, err);
        if (r < 0)
                return r;
        jw_init(&w, q->out);
        jw_object(&w);
        jw_kbool(&w, "approved", c.board_api_key_id != NULL);
        jw_kstring(&w, "status", c.board_api_key_id ? "approved" : status_of(&c, now));
        /* Approved before: the user and the time stay what they were then. */
        jw_kstring(&w, "userId",
                   c.approved_by_user_id ? c.approved_by_user_id : q->op->actor->user_id);
        jw_kstring(&w, "keyId", c.board_api_key_id);
        jw_ktime(&w, "expiresAt", c.board_api_key_id ? c.approved_at + KEY_LIFE_US : c.expires_at);
        jw_object_end(&w);
        return 0;
}

int cli_auth_approve(struct op *op, struct runtime *rt, const char *id, json_t *body,
                     struct buf *ret_json, struct err *err)
{
        struct request q = { .op = op, .id = id, .body = body, .out = ret_json };
        int r;

        if (op->actor->type == ACTOR_NONE)
                return err_set(err, ERR_UNAUTHORIZED, "Sign in before approving CLI access");
        r = access_board(op->actor, err);
        if (r >= 0)
                r = check_token(&q, err);
        if (r < 0)
                return r;
        FAULT("cli_auth.approve.before");
        r = store_write(op, rt->store, approve, &q, err);
        FAULT("cli_auth.approve.after");
        if (r >= 0)
                opened_forget(id);
        return r;
}

static int cancel(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct cli_challenge c;
        int64_t now = clock_now_us();
        struct jw w;
        int r = load(db, q, &c, err);

        if (r >= 0)
                r = challenges_cancel(db, c.id, now, err);
        if (r < 0)
                return r;
        if (r > 0)
                c.cancelled_at = now;
        jw_init(&w, q->out);
        jw_object(&w);
        jw_kstring(&w, "status", status_of(&c, now));
        jw_kbool(&w, "cancelled", c.cancelled_at != 0);
        jw_object_end(&w);
        return 0;
}

int cli_auth_cancel(struct op *op, struct runtime *rt, const char *id, json_t *body,
                    struct buf *ret_json, struct err *err)
{
        struct request q = { .op = op, .id = id, .body = body, .out = ret_json };
        int r = check_token(&q, err);

        if (r >= 0)
                r = store_write(op, rt->store, cancel, &q, err);
        if (r >= 0)
                opened_forget(id);
        return r;
}

int cli_auth_revoke_current(struct op *op, struct runtime *rt, struct buf *ret_json,
                            struct err *err)
{
        struct jw w;
        int r;

        if (op->actor->source != SOURCE_BOARD_KEY)
                return err_set(err, ERR_INVALID, "Current board API key context is required");
        r = auth_revoke_board_key(op, rt, op->actor->key_id, err);
        if (r < 0)
                return r;
        jw_init(&w, ret_json);
        jw_object(&w);
        jw_kbool(&w, "revoked", true);
        jw_kstring(&w, "keyId", op->actor->key_id);
        jw_object_end(&w);
        return 0;
}
