/* Turning credentials into an actor, and making keys.
 *
 * A run token (run_token.h) makes its bearer the agent of a run, as long as that run is running.
 *
 * A bearer token that is not known, expired or revoked is 401 in every mode: it never falls back to
 * the identity that a request without a token would have. Tokens are made here, shown once and
 * stored as SHA-256 digests. Operation threads. */
#pragma once

#include "core/access/access.h"
#include "core/access/member.h"
#include "store/agents.h"
#include "store/identity.h"

#define BOARD_TOKEN_PREFIX     "pcp_board_"
#define AGENT_TOKEN_PREFIX     "pcp_"
#define CHALLENGE_TOKEN_PREFIX "pcp_cli_auth_"
#define TOKEN_MAX              80
#define SHA256_HEX_LEN         64

/* The actor of a request. `authorization` is the header or NULL; `is_operator` says that, according
 * to the kernel, the caller is the user that runs the daemon. */
int auth_actor(struct op *op, struct runtime *rt, const char *authorization, bool is_operator,
               struct actor *ret, struct err *err);

/* Whether such a request needs no look-up: then *ret is filled without touching the store. */
bool auth_actor_quick(const char *authorization, bool is_operator, struct actor *ret);

/* Whether a user of this machine counts as the operator: root, the daemon's own user, and the users
 * that the setting names. (uid_t)-1 stands for no user. */
bool auth_is_operator(const struct settings *s, uid_t daemon_uid, uid_t uid);
/* 401 for another user of this machine; `is_known`: the kernel named the user. */
int auth_refuse_stranger(bool is_known, struct err *err);

/* The agent of a running run, as a run token names it and a callback channel stands for it. 401
 * when the run has ended, belongs to another agent, or the agent may not work. */
int auth_run_actor(struct op *op, struct runtime *rt, const char *company_id, const char *agent_id,
                   const char *run_id, struct actor *ret, struct err *err);
/* Whether the actor may name that run as its own (X-Paperclip-Run-Id): 422 where its credentials
 * name another run, 403 where the run is another agent's. */
int auth_check_run(struct op *op, struct runtime *rt, const struct actor *actor, const char *run_id,
                   struct err *err);

/* A fresh token: prefix and 48 random hexadecimal digits. */
void auth_new_token(const char *prefix, char ret[TOKEN_MAX]);
void auth_hash_token(const char *token, char ret[SHA256_HEX_LEN + 1]);

/* A key for a board user. */
struct board_key_request {
        const char *name;       /* NULL: "default" */
        const char *user;       /* the user's name; NULL: the caller */
        const char *company_id; /* that the user becomes a member of; NULL: none */
        const char *role;       /* there; NULL: as it is, or operator */
        struct member_grants grants;
        bool admin;
        int64_t expires_at; /* 0: never */
};

/* *ret_token is shown once. Administrators, and users for themselves. */
int auth_create_board_key(struct op *op, struct runtime *rt, const struct board_key_request *req,
                          struct board_key *ret, char ret_token[TOKEN_MAX], struct err *err);
int auth_revoke_board_key(struct op *op, struct runtime *rt, const char *id, struct err *err);

/* Make sure the built-in operator exists. */
int auth_ensure_operator(struct op *op, struct runtime *rt, struct err *err);
