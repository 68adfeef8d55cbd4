/* Sealing a value for the database, and opening it again.
 *
 *     {"scheme":"berth_sealed_v1","key":ID,"nonce":BASE64,"box":BASE64}
 *
 * XChaCha20-Poly1305 under a key derived from the master key whose id stands in it. Company, secret
 * and version are authenticated with it: a row that was moved to another place does not open there.
 * Paperclip's own form, AES-256-GCM under the master key itself,
 *
 *     {"scheme":"local_encrypted_v1","iv":BASE64,"tag":BASE64,"ciphertext":BASE64}
 *
 * is opened too, where the processor has the instructions that libsodium needs for it.
 *
 * Any thread. */
#pragma once

#include "base/arena.h"
#include "secret/master_key.h"
#include "secret/value.h"

#define SEAL_SCHEME      "berth_sealed_v1"
#define SEAL_SEED_SCHEME "local_encrypted_v1"
#define SEAL_MARK_LEN    64

/* What the sealed value belongs to. */
struct seal_place {
        const char *company_id, *secret_id;
        int64_t version;
};

/* *ret is in the arena. */
int seal(struct arena *arena, const struct seal_place *place, const struct secret_value *value,
         const char **ret, struct err *err);
/* ERR_INVALID: no material of ours. ERR_UNPROCESSABLE: it does not open, and why; the text says
 * "it" for the caller to say whose. */
int seal_open(const struct seal_place *place, const char *material, struct secret_value *ret,
              struct err *err);

/* A keyed hash of the value, as hexadecimal digits: equal for two versions of one secret that have
 * the same value, and of no use without the master key. */
int seal_mark(const struct seal_place *place, const struct secret_value *value,
              char ret[SEAL_MARK_LEN + 1], struct err *err);

/* The id of the key it needs, in `ret`; "" for Paperclip's form, false for anything else. */
bool seal_key_of(const char *material, char ret[MASTER_KEY_ID_LEN + 1]);
