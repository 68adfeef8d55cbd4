/* Operator sign-in for the CLI. Every client may open a challenge; a signed-in person approves it,
 * and its board token works from then on. Challenges live ten minutes. Operation threads. */
#pragma once

#include "core/access/auth.h"

struct cli_tokens {
        char secret[TOKEN_MAX]; /* shows that a caller may see and answer the challenge */
        char board[TOKEN_MAX];  /* the key, once it is approved */
};

/* pending, approved, cancelled or expired */
const char *cli_auth_status(const struct cli_challenge *challenge);

/* Open *challenge, which has what the client asked for: `body` is the request, `client` the client
 * that it is counted for (http_request_client()). The caller wipes the tokens. */
int cli_auth_create(struct op *op, struct runtime *rt, const struct body *body, const char *client,
                    struct cli_challenge *challenge, struct cli_tokens *ret, struct err *err);
/* A wrong token is 404, as if there were no such challenge; so with the others. */
int cli_auth_show(struct op *op, struct runtime *rt, const char *id, const char *token,
                  struct cli_challenge *ret, struct err *err);
/* ret->expires_at: of the key, when there is one. */
int cli_auth_approve(struct op *op, struct runtime *rt, const char *id, const struct body *body,
                     const char *token, struct cli_challenge *ret, struct err *err);
int cli_auth_cancel(struct op *op, struct runtime *rt, const char *id, const char *token,
                    struct cli_challenge *ret, struct err *err);
