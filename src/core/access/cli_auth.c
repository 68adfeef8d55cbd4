/* Decides about sign-in challenges of the CLI: opening, approving, cancelling, and their limits. */
#include "core/access/cli_auth.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/access/auth.h"

#define CHALLENGE_LIFE_US (600 * US_PER_S)
#define KEY_LIFE_US       (30 * 86400 * US_PER_S)
/* Every client may open challenges; more than this at once is an attempt to fill the disk. One
 * client may have only a part of them, so that a client that opens too many shuts out only itself.
 */
#define CHALLENGES_OPEN_MAX   1000
#define CHALLENGES_CLIENT_MAX 100

struct request {
        struct op *op;
        const char *id, *token;
        struct cli_challenge *challenge;
        struct cli_tokens *tokens;
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

        pthread_mutex_lock(&opened.lock);
        for (size_t i = 0; i < opened.n;) {
                if (opened.at[i].expires_at <= now) {
                        opened.at[i] = opened.at[--opened.n];
                        continue;
                }
                own += streq(opened.at[i++].client, client);
        }
        bool room = own < CHALLENGES_CLIENT_MAX && opened.n < CHALLENGES_OPEN_MAX;
        if (room) {
                struct opened *o = &opened.at[opened.n++];

                (void)snprintf(o->id, sizeof(o->id), "%s", id);
                (void)snprintf(o->client, sizeof(o->client), "%s", client);
                o->expires_at = now + CHALLENGE_LIFE_US;
        }
        pthread_mutex_unlock(&opened.lock);
        return room;
}

const char *cli_auth_status(const struct cli_challenge *c)
{
        if (c->cancelled_at)
                return "cancelled";
        if (c->approved_at)
                return "approved";
        return c->expires_at <= clock_wall_us() ? "expired" : "pending";
}

static int challenge_insert(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        char secret_digest[SHA256_HEX_LEN + 1], token_digest[SHA256_HEX_LEN + 1];
        struct cli_challenge *c = q->challenge;
        int64_t open, now = clock_now_us();
        int r = challenges_prune(db, now - CHALLENGE_LIFE_US, err);

        if (r >= 0)
                r = challenges_count_open(db, now, &open, err);
        if (r < 0)
                return r;
        if (open >= CHALLENGES_OPEN_MAX)
                return err_set(err, ERR_BUSY,
                               "Too many sign-in requests are open; try again later.");
        auth_new_token(CHALLENGE_TOKEN_PREFIX, q->tokens->secret);
        auth_new_token(BOARD_TOKEN_PREFIX, q->tokens->board);
        auth_hash_token(q->tokens->secret, secret_digest);
        auth_hash_token(q->tokens->board, token_digest);
        c->secret_sha256 = arena_strdup(q->op->arena, secret_digest);
        c->board_token_sha256 = arena_strdup(q->op->arena, token_digest);
        c->created_at = now;
        c->expires_at = now + CHALLENGE_LIFE_US;
        return challenges_insert(db, c, err);
}

int cli_auth_create(struct op *op, struct runtime *rt, const struct body *body, const char *client,
                    struct cli_challenge *challenge, struct cli_tokens *ret, struct err *err)
{
        struct request q = { .op = op, .challenge = challenge, .tokens = ret };

        challenge->id = arena_strdup(op->arena, uuid_new().s);
        if (!opened_add(challenge->id, client, clock_now_us()))
                return err_set(err, ERR_BUSY,
                               "Too many sign-in requests from here are open; answer or cancel "
                               "them, or try again in ten minutes.");
        FAULT("cli_auth.create.before");
        int r = body_check(body, err);
        if (r >= 0)
                r = store_write(op, rt->store, challenge_insert, &q, err);
        FAULT("cli_auth.create.after");
        if (r < 0)
                opened_forget(challenge->id);
        return r;
}

/* The challenge, for a caller that knows its secret. */
static int challenge_load(struct db *db, const struct request *q, struct err *err)
{
        char digest[SHA256_HEX_LEN + 1];
        int r = challenges_get(db, q->id, q->op->arena, q->challenge, err);

        if (r < 0)
                return r;
        auth_hash_token(q->token ? q->token : "", digest);
        if (sodium_memcmp(digest, q->challenge->secret_sha256, SHA256_HEX_LEN) != 0)
                return err_set(err, ERR_NOT_FOUND, "CLI auth challenge not found");
        return 0;
}

int cli_auth_show(struct op *op, struct runtime *rt, const char *id, const char *token,
                  struct cli_challenge *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct request q = { .op = op, .id = id, .token = token, .challenge = ret };
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : challenge_load(db, &q, err);
}

/* Approving and cancelling */

struct approval {
        struct op *op;
        struct db *db;
        const struct cli_challenge *c;
        struct err *err;
};

static int audit_new_key(void *ctx, const struct membership *m)
{
        struct approval *p = ctx;

        return audit(p->db, p->op, m->company_id, "board_api_key.created", "board_api_key",
                     p->c->board_api_key_id,
                     json_pack("{s:s, s:o}", "command", p->c->command, "clientName",
                               json_string_or_null(p->c->client_name)),
                     p->err);
}

static int challenge_approve(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct cli_challenge *c = q->challenge;
        struct approval p = { q->op, db, c, err };
        int64_t now = clock_now_us();
        int r = challenge_load(db, q, err);

        if (r >= 0 && streq(c->requested_access, "instance_admin_required"))
                r = access_admin(q->op->actor, "Instance admin access required", err);
        /* Approved before: the user and the time stay what they were then. */
        if (r < 0 || !streq(cli_auth_status(c), "pending"))
                return r;
        struct board_key key = (struct board_key){
                .id = arena_strdup(q->op->arena, uuid_new().s),
                .user_id = q->op->actor->user_id,
                .name = c->client_name ? c->client_name : "cli",
                .token_sha256 = c->board_token_sha256,
                .expires_at = now + KEY_LIFE_US,
                .created_at = now,
        };
        r = challenges_approve(db, c->id, key.user_id, key.id, now, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "CLI auth challenge is no longer pending");
        c->board_api_key_id = key.id;
        c->approved_by_user_id = key.user_id;
        c->approved_at = now;
        if (r >= 0)
                r = board_keys_insert(db, &key, err);
        return r < 0 ? r
                     : memberships_of_user(db, key.user_id, q->op->arena, audit_new_key, &p, err);
}

int cli_auth_approve(struct op *op, struct runtime *rt, const char *id, const struct body *body,
                     const char *token, struct cli_challenge *ret, struct err *err)
{
        struct request q = { .op = op, .id = id, .token = token, .challenge = ret };

        if (op->actor->type == ACTOR_NONE)
                return err_set(err, ERR_UNAUTHORIZED, "Sign in before approving CLI access");
        int r = access_board(op->actor, err);
        if (r >= 0)
                r = body_check(body, err);
        if (r < 0)
                return r;
        FAULT("cli_auth.approve.before");
        r = store_write(op, rt->store, challenge_approve, &q, err);
        FAULT("cli_auth.approve.after");
        if (r < 0)
                return r;
        opened_forget(id);
        if (ret->board_api_key_id)
                ret->expires_at = ret->approved_at + KEY_LIFE_US;
        return r;
}

static int challenge_cancel(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int64_t now = clock_now_us();
        int r = challenge_load(db, q, err);

        if (r >= 0)
                r = challenges_cancel(db, q->id, now, err);
        if (r > 0)
                q->challenge->cancelled_at = now;
        return r;
}

int cli_auth_cancel(struct op *op, struct runtime *rt, const char *id, const char *token,
                    struct cli_challenge *ret, struct err *err)
{
        struct request q = { .op = op, .id = id, .token = token, .challenge = ret };
        int r = store_write(op, rt->store, challenge_cancel, &q, err);

        if (r >= 0)
                opened_forget(id);
        return r;
}
