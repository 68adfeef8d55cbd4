#include "test.h"

#include <sodium.h>

#include "codec/json.h"
#include "codec/jwt.h"

#define NOW 1700000000
#define KEY "a secret of the operator"

static const struct jwt_key key = {
        .bytes = KEY, .len = sizeof(KEY) - 1, .issuer = "paperclip", .audience = "paperclip-api"
};

static const struct jwt_claims claims = {
        .sub = "a0000000-0000-4000-8000-000000000001",
        .company_id = "c0000000-0000-4000-8000-000000000001",
        .run_id = "d0000000-0000-4000-8000-000000000001",
        .adapter_type = "codex_local",
        .iat = NOW,
        .exp = NOW + 60,
};

static int setup(void **state)
{
        (void)state;
        return sodium_init() < 0;
}

static void encode(struct buf *out, const void *bytes, size_t len)
{
        char text[4096];

        sodium_bin2base64(text, sizeof(text), bytes, len, sodium_base64_VARIANT_URLSAFE_NO_PADDING);
        buf_puts(out, text);
}

/* Any header and claims, properly signed. */
static char *forge(const char *header, const char *body)
{
        struct buf out = BUF_INIT;
        unsigned char sum[crypto_auth_hmacsha256_BYTES];
        crypto_auth_hmacsha256_state state;

        encode(&out, header, strlen(header));
        buf_putc(&out, '.');
        encode(&out, body, strlen(body));
        crypto_auth_hmacsha256_init(&state, key.bytes, key.len);
        crypto_auth_hmacsha256_update(&state, (unsigned char *)out.data, out.len);
        crypto_auth_hmacsha256_final(&state, sum);
        buf_putc(&out, '.');
        encode(&out, sum, sizeof(sum));
        return buf_take(&out);
}

static void refused(const char *token)
{
        CLEAN(err_done) struct err err = { 0 };
        struct jwt_claims got;

        if (jwt_verify(token, &key, NOW, &got, &err) != ERR_UNAUTHORIZED)
                fail_msg("taken: %s", token);
        assert_string_equal(err.msg, "Unauthorized");
}

static void refuse_forged(const char *header, const char *body)
{
        CLEAN(cleanup_free) char *token = forge(header, body);

        refused(token);
}

#define HEADER "{\"alg\":\"HS256\",\"typ\":\"JWT\"}"
#define IDS                                                                                        \
        "\"sub\":\"a0000000-0000-4000-8000-000000000001\","                                        \
        "\"company_id\":\"c0000000-0000-4000-8000-000000000001\","                                 \
        "\"run_id\":\"d0000000-0000-4000-8000-000000000001\""
#define TIMES "\"iat\":1700000000,\"exp\":1700000060"
#define BODY  "{" IDS ",\"adapter_type\":\"x\"," TIMES

/* http-api 8.88: the round trip */
static void test_round_trip(void **state)
{
        CLEAN(buf_done) struct buf token = BUF_INIT;
        struct jwt_claims got;

        (void)state;
        assert_int_equal(jwt_sign(&claims, &key, &token, NULL), 0);
        assert_true(jwt_is_shaped(buf_str(&token)));
        assert_int_equal(jwt_verify(buf_str(&token), &key, NOW, &got, NULL), 0);
        assert_memory_equal(&got, &claims, sizeof(got));
}

/* What Paperclip's library makes, member for member. */
static void test_foreign(void **state)
{
        CLEAN(cleanup_free)
        char *token = forge(HEADER, BODY ",\"iss\":\"paperclip\",\"aud\":\"paperclip-api\"}");
        CLEAN(cleanup_free) char *bare = forge("{\"alg\":\"HS256\"}", BODY "}");
        struct jwt_claims got;

        (void)state;
        assert_int_equal(jwt_verify(token, &key, NOW, &got, NULL), 0);
        assert_string_equal(got.adapter_type, "x");
        assert_int_equal(jwt_verify(bare, &key, NOW, &got, NULL), 0);
}

/* http-api 8.88: expired; wrong issuer or audience */
static void test_refused_claims(void **state)
{
        CLEAN(buf_done) struct buf token = BUF_INIT;
        struct jwt_claims got;

        (void)state;
        assert_int_equal(jwt_sign(&claims, &key, &token, NULL), 0);
        assert_int_equal(jwt_verify(buf_str(&token), &key, claims.exp - 1, &got, NULL), 0);
        assert_int_equal(jwt_verify(buf_str(&token), &key, claims.exp, &got, NULL),
                         ERR_UNAUTHORIZED);
        refuse_forged(HEADER, BODY ",\"iss\":\"other\"}");
        refuse_forged(HEADER, BODY ",\"iss\":1}");
        refuse_forged(HEADER, BODY ",\"aud\":\"other\"}");
        refuse_forged(HEADER, BODY ",\"aud\":[\"paperclip-api\"]}");
        refuse_forged(HEADER, "{" IDS "," TIMES "}");
        refuse_forged(HEADER, "{" IDS ",\"adapter_type\":\"\"," TIMES "}");
        refuse_forged(HEADER, "{" IDS ",\"adapter_type\":\"x\",\"iat\":1}");
        refuse_forged(HEADER, "{" IDS ",\"adapter_type\":\"x\",\"iat\":1,\"exp\":\"9999999999\"}");
        refuse_forged(HEADER, "{" IDS ",\"adapter_type\":\"x\",\"iat\":1,\"exp\":1e300}");
        refuse_forged(HEADER, "{" IDS ",\"adapter_type\":\"x\",\"iat\":-1,\"exp\":1700000060}");
        refuse_forged(HEADER, "{\"adapter_type\":\"x\"," TIMES "}");
        refuse_forged(HEADER, "[]");
        refuse_forged(HEADER, "");
}

/* The algorithm is not the token's to choose. */
static void test_refused_headers(void **state)
{
        static const char *const headers[] = {
                "{\"alg\":\"none\",\"typ\":\"JWT\"}",
                "{\"alg\":\"HS384\",\"typ\":\"JWT\"}",
                "{\"alg\":\"hs256\",\"typ\":\"JWT\"}",
                "{\"alg\":\"RS256\",\"typ\":\"JWT\"}",
                "{\"alg\":[\"HS256\"],\"typ\":\"JWT\"}",
                "{\"typ\":\"JWT\"}",
                "{\"alg\":\"HS256\",\"typ\":\"JWE\"}",
                "{\"alg\":\"HS256\",\"crit\":[\"exp\"],\"exp\":1}",
                "{}",
                "\"HS256\"",
                "",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(headers); i++)
                refuse_forged(headers[i], BODY "}");
}

/* Every single character of a token counts. */
static void test_tampering(void **state)
{
        CLEAN(buf_done) struct buf token = BUF_INIT;

        (void)state;
        assert_int_equal(jwt_sign(&claims, &key, &token, NULL), 0);
        for (size_t i = 0; i < token.len; i++) {
                char was = token.data[i];

                token.data[i] = was == 'A' ? 'B' : 'A';
                refused(token.data);
                token.data[i] = was;
        }
        for (size_t len = 0; len < token.len; len++) {
                CLEAN(cleanup_free) char *cut = xstrndup(token.data, len);

                refused(cut);
        }
        buf_putc(&token, 'A');
        refused(token.data);
}

static void test_other_keys(void **state)
{
        CLEAN(buf_done) struct buf token = BUF_INIT;
        struct jwt_key other = key;
        struct jwt_claims got;

        (void)state;
        assert_int_equal(jwt_sign(&claims, &key, &token, NULL), 0);
        other.len--;
        assert_int_equal(jwt_verify(token.data, &other, NOW, &got, NULL), ERR_UNAUTHORIZED);
}

static void test_shapes(void **state)
{
        char large[JWT_MAX + 2];

        (void)state;
        assert_true(jwt_is_shaped("a.b.c"));
        assert_false(jwt_is_shaped("pcp_0123456789"));
        assert_false(jwt_is_shaped("a.b"));
        assert_false(jwt_is_shaped("a.b.c.d"));
        assert_false(jwt_is_shaped("a..c"));
        assert_false(jwt_is_shaped("a.b.c="));
        assert_false(jwt_is_shaped(""));
        memset(large, 'a', sizeof(large) - 1);
        large[sizeof(large) - 1] = '\0';
        large[1] = large[3] = '.';
        assert_false(jwt_is_shaped(large));
        large[JWT_MAX] = '\0';
        assert_true(jwt_is_shaped(large));
        refused(large);
}

static void test_too_long(void **state)
{
        CLEAN(buf_done) struct buf token = BUF_INIT;
        char issuer[JWT_MAX];
        struct jwt_key long_key = key;

        (void)state;
        memset(issuer, 'i', sizeof(issuer) - 1);
        issuer[sizeof(issuer) - 1] = '\0';
        long_key.issuer = issuer;
        assert_int_equal(jwt_sign(&claims, &long_key, &token, NULL), ERR_INVALID);
        assert_int_equal(token.len, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_round_trip),     cmocka_unit_test(test_foreign),
                cmocka_unit_test(test_refused_claims), cmocka_unit_test(test_refused_headers),
                cmocka_unit_test(test_tampering),      cmocka_unit_test(test_other_keys),
                cmocka_unit_test(test_shapes),         cmocka_unit_test(test_too_long),
        };

        return cmocka_run_group_tests(tests, setup, NULL);
}
