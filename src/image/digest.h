/* SHA-256 as the text that registries write, computed while bytes pass. One thread at a time. */
#pragma once

#include <sodium.h>

#include "image/reference.h"

struct digest {
        crypto_hash_sha256_state state;
};

static inline void digest_begin(struct digest *d)
{
        (void)crypto_hash_sha256_init(&d->state);
}

static inline void digest_add(struct digest *d, const void *bytes, size_t len)
{
        (void)crypto_hash_sha256_update(&d->state, bytes, len);
}

static inline void digest_end(struct digest *d, char ret[IMAGE_DIGEST_SIZE])
{
        uint8_t hash[crypto_hash_sha256_BYTES];

        (void)crypto_hash_sha256_final(&d->state, hash);
        memcpy(ret, "sha256:", sizeof("sha256:"));
        (void)sodium_bin2hex(ret + 7, IMAGE_DIGEST_SIZE - 7, hash, sizeof(hash));
}

static inline void digest_of(const void *bytes, size_t len, char ret[IMAGE_DIGEST_SIZE])
{
        struct digest d;

        digest_begin(&d);
        digest_add(&d, bytes, len);
        digest_end(&d, ret);
}
