/* The tokens by which an agent proves which run it works for (http-api 2.2).
 *
 * A run token is a JWT (codec/jwt.h) for the API itself. It names agent, company and run, and is
 * valid only while that run is running: the check looks at the run's row (auth.h). The token of a
 * callback channel (callback.h) is a code over the run's id, so it needs no storage and is the same
 * after a restart; it is compared in one place, at the end of the channel.
 *
 * Both keys are derived from the master key of the secrets, unless the operator gave one for run
 * tokens, and stay the same until the daemon ends. A daemon without a master key makes keys for
 * itself; then tokens do not outlive it.
 *
 * Immutable after run_keys_new(); any thread. */
#pragma once

#include "codec/jwt.h"
#include "core/runtime.h"
#include "store/runs.h"

#define CHANNEL_TOKEN_BYTES 24
#define CHANNEL_TOKEN_LEN   32 /* in base64url */

/* `secret` is the operator's secret for run tokens; NULL or empty: derived. The master key is
 * loaded before. */
int run_keys_new(const struct node *node, const char *secret, struct run_keys **ret,
                 struct err *err);
void run_keys_free(struct run_keys *keys);

/* Append the token of a run. */
int run_token_mint(const struct runtime *rt, const struct run *run, const char *adapter_type,
                   struct buf *ret, struct err *err);
/* ERR_UNAUTHORIZED. The caller has to check that the run is running. */
int run_token_verify(const struct runtime *rt, const char *token, struct jwt_claims *ret,
                     struct err *err);

void run_channel_token(const struct runtime *rt, const char *run_id,
                       char ret[CHANNEL_TOKEN_LEN + 1]);
