/* Operator sign-in for the CLI. Anybody may open a challenge; a signed-in person approves it, and
 * its board token works from then on. Challenges live ten minutes. Operation threads. */
#ifndef BERTH_CORE_CLI_AUTH_H
#define BERTH_CORE_CLI_AUTH_H

#include "codec/json.h"
#include "core/access/access.h"

/* base_url is what the browser should open, without a trailing slash; `client` is the client that
 * the challenge is counted for (http_request_client()). */
int cli_auth_create(struct op *op, struct runtime *rt, json_t *body, const char *base_url,
                    const char *client, struct buf *ret_json, struct err *err);
/* A wrong token is 404, as if there were no such challenge. */
int cli_auth_show(struct op *op, struct runtime *rt, const char *id, const char *token,
                  struct buf *ret_json, struct err *err);
int cli_auth_approve(struct op *op, struct runtime *rt, const char *id, json_t *body,
                     struct buf *ret_json, struct err *err);
int cli_auth_cancel(struct op *op, struct runtime *rt, const char *id, json_t *body,
                    struct buf *ret_json, struct err *err);
/* Revoke the key that this very request used. */
int cli_auth_revoke_current(struct op *op, struct runtime *rt, struct buf *ret_json,
                            struct err *err);

#endif
