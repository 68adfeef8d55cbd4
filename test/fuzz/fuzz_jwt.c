/* Nobody without the key makes a token that is taken; what is taken has ids and a time. The input
 * is a token, and claims that are signed. */
#include <sodium.h>

#include "codec/jwt.h"

#define VARIANT sodium_base64_VARIANT_URLSAFE_NO_PADDING

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct jwt_key key = { "key", 3, "paperclip", "paperclip-api" };

static void put(struct buf *out, const void *bytes, size_t len)
{
        size_t room = sodium_base64_encoded_len(len, VARIANT);
        char *at = buf_reserve(out, room);

        sodium_bin2base64(at, room, bytes, len, VARIANT);
        buf_grew(out, room - 1);
}

static void check_signed(const uint8_t *data, size_t size)
{
        static const char header[] = "{\"alg\":\"HS256\"}";
        CLEAN(buf_done) struct buf token = BUF_INIT;
        unsigned char sum[crypto_auth_hmacsha256_BYTES];
        crypto_auth_hmacsha256_state state;
        struct jwt_claims got;

        put(&token, header, sizeof(header) - 1);
        buf_putc(&token, '.');
        put(&token, data, size);
        (void)crypto_auth_hmacsha256_init(&state, key.bytes, key.len);
        (void)crypto_auth_hmacsha256_update(&state, (unsigned char *)token.data, token.len);
        (void)crypto_auth_hmacsha256_final(&state, sum);
        buf_putc(&token, '.');
        put(&token, sum, sizeof(sum));
        if (jwt_verify(token.data, &key, 1000, &got, NULL) < 0)
                return;
        if (!uuid_is_valid(got.sub) || !uuid_is_valid(got.company_id) ||
            !uuid_is_valid(got.run_id) || got.exp <= 1000 || got.iat < 0 || !got.adapter_type[0])
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(cleanup_free) char *token = xstrndup((const char *)data, size);
        struct jwt_claims got;

        if (sodium_init() < 0)
                abort();
        if (jwt_verify(token, &key, 1000, &got, NULL) >= 0)
                abort();
        check_signed(data, size);
        return 0;
}
