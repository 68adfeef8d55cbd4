/* Run tokens on the wire: JSON Web Tokens signed with HMAC-SHA256, and nothing else of what that
 * standard allows. The algorithm is ours to choose and not the token's; a header that asks for
 * another, or for anything critical, is refused before the rest is looked at. The signature is
 * compared in constant time and before any claim is read.
 *
 * Pure. Any thread, after sodium_init(). */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/uuid.h"

#define JWT_MAX         2048 /* characters of a token */
#define JWT_ADAPTER_MAX 64

struct jwt_claims {
        char sub[UUID_LEN + 1];
        char company_id[UUID_LEN + 1];
        char run_id[UUID_LEN + 1];
        char adapter_type[JWT_ADAPTER_MAX + 1];
        int64_t iat, exp; /* seconds since 1970 */
};

struct jwt_key {
        const void *bytes;
        size_t len;
        const char *issuer, *audience;
};

/* Whether it has three parts of the right alphabet: worth asking jwt_verify(). */
bool jwt_is_shaped(const char *token);

/* Append the token. ERR_INVALID when it would be too long. */
int jwt_sign(const struct jwt_claims *claims, const struct jwt_key *key, struct buf *ret,
             struct err *err);

/* ERR_UNAUTHORIZED, without a reason that would help a guesser. `iss` and `aud` have to be the
 * key's where the token has them; ids are lower case afterwards. */
int jwt_verify(const char *token, const struct jwt_key *key, int64_t now_s, struct jwt_claims *ret,
               struct err *err);
