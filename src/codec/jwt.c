/* Signs run tokens, and decides which ones are valid. */
#include "codec/jwt.h"

#include <sodium.h>
#include <stdio.h>

#include "codec/json.h"

#define HEADER   "{\"alg\":\"HS256\",\"typ\":\"JWT\"}"
#define ALPHABET "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
#define MAC_LEN  crypto_auth_hmacsha256_BYTES
#define VARIANT  sodium_base64_VARIANT_URLSAFE_NO_PADDING
#define TIME_MAX INT64_C(253402300799) /* the year 9999 */

struct part {
        const char *at;
        size_t len;
};

/* The three parts; false when there are others. */
static bool split_token(const char *token, struct part parts[3])
{
        if (strnlen(token, JWT_MAX + 1) > JWT_MAX)
                return false;
        for (int i = 0; i < 3; i++) {
                parts[i] = (struct part){ token, strspn(token, ALPHABET) };
                token += parts[i].len;
                if (parts[i].len == 0 || *token != (i < 2 ? '.' : '\0'))
                        return false;
                token++;
        }
        return true;
}

bool jwt_is_shaped(const char *token)
{
        struct part parts[3];

        return split_token(token, parts);
}

static void compute_mac(const struct jwt_key *key, const char *data, size_t len,
                        unsigned char ret[MAC_LEN])
{
        crypto_auth_hmacsha256_state state;

        (void)crypto_auth_hmacsha256_init(&state, key->bytes, key->len);
        (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)data, len);
        (void)crypto_auth_hmacsha256_final(&state, ret);
        sodium_memzero(&state, sizeof(state));
}

/* Signing */

static void put_base64(struct buf *out, const void *bytes, size_t len)
{
        size_t size = sodium_base64_encoded_len(len, VARIANT);
        char *at = buf_reserve(out, size);

        if (!at)
                return;
        sodium_bin2base64(at, size, bytes, len, VARIANT);
        buf_grew(out, size - 1); /* without the NUL */
}

static void put_claims(struct buf *out, const struct jwt_claims *c, const struct jwt_key *key)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        struct jw w;

        jw_init(&w, &text);
        jw_object(&w);
        jw_kstring(&w, "sub", c->sub);
        jw_kstring(&w, "company_id", c->company_id);
        jw_kstring(&w, "adapter_type", c->adapter_type);
        jw_kstring(&w, "run_id", c->run_id);
        jw_kint(&w, "iat", c->iat);
        jw_kint(&w, "exp", c->exp);
        jw_kstring(&w, "iss", key->issuer);
        jw_kstring(&w, "aud", key->audience);
        jw_object_end(&w);
        put_base64(out, buf_str(&text), text.len);
}

int jwt_sign(const struct jwt_claims *claims, const struct jwt_key *key, struct buf *ret,
             struct err *err)
{
        CLEAN(buf_wipe) struct buf token = BUF_INIT;
        unsigned char sum[MAC_LEN];

        token.max = JWT_MAX + 1;
        put_base64(&token, HEADER, strlen(HEADER));
        buf_putc(&token, '.');
        put_claims(&token, claims, key);
        compute_mac(key, buf_str(&token), token.len, sum);
        buf_putc(&token, '.');
        put_base64(&token, sum, sizeof(sum));
        if (buf_failed(&token) || token.len > JWT_MAX)
                return err_set(err, ERR_INVALID, "The run token would be too long.");
        buf_append(ret, buf_str(&token), token.len);
        return 0;
}

/* Verifying */

static int refuse_token(struct err *err)
{
        return err_set(err, ERR_UNAUTHORIZED, "Unauthorized");
}

/* Canonical base64url only: sodium refuses bits that are left over. */
static bool decode_part(struct part part, unsigned char *ret, size_t size, size_t *ret_len)
{
        const char *end;

        return sodium_base642bin(ret, size, part.at, part.len, NULL, ret_len, &end, VARIANT) == 0 &&
               end == part.at + part.len;
}

static json_t *decode_object(struct part part)
{
        unsigned char text[JWT_MAX];
        json_t *v = NULL;
        size_t len;

        if (!decode_part(part, text, sizeof(text), &len) ||
            json_parse((const char *)text, len, &v, NULL) < 0)
                return NULL;
        if (json_is_object(v))
                return v;
        json_decref(v);
        return NULL;
}

static bool header_is_ours(struct part part)
{
        json_t *header = decode_object(part);
        const char *alg = json_get_string(header, "alg");
        const json_t *typ = json_object_get(header, "typ");
        bool ok = alg && streq(alg, "HS256") && !json_object_get(header, "crit") &&
                  (!typ || (json_is_string(typ) && streq(json_string_value(typ), "JWT")));

        json_decref(header);
        return ok;
}

static bool signature_fits(const char *token, const struct part parts[3], const struct jwt_key *key)
{
        unsigned char given[MAC_LEN], sum[MAC_LEN];
        size_t len;

        if (!decode_part(parts[2], given, sizeof(given), &len) || len != sizeof(given))
                return false;
        compute_mac(key, token, (size_t)(parts[1].at + parts[1].len - token), sum);
        return sodium_memcmp(given, sum, sizeof(sum)) == 0;
}

static bool take_id(const json_t *claims, const char *name, char ret[UUID_LEN + 1])
{
        const char *text = json_get_string(claims, name);
        struct uuid id;

        if (!text || !uuid_parse(text, &id))
                return false;
        memcpy(ret, id.s, UUID_LEN + 1);
        return true;
}

static bool take_time(const json_t *claims, const char *name, int64_t *ret)
{
        const json_t *v = json_object_get(claims, name);
        double seconds = json_number_value(v);

        if (!json_is_number(v) || !(seconds >= 0 && seconds <= (double)TIME_MAX))
                return false;
        *ret = (int64_t)seconds;
        return true;
}

static bool take_adapter(const json_t *claims, char ret[JWT_ADAPTER_MAX + 1])
{
        const char *text = json_get_string(claims, "adapter_type");

        if (!text || !*text || strlen(text) > JWT_ADAPTER_MAX)
                return false;
        memcpy(ret, text, strlen(text) + 1);
        return true;
}

/* Absent, or just this. */
static bool claim_fits(const json_t *claims, const char *name, const char *wanted)
{
        const json_t *v = json_object_get(claims, name);

        return !v || (json_is_string(v) && streq(json_string_value(v), wanted));
}

int jwt_verify(const char *token, const struct jwt_key *key, int64_t now_s, struct jwt_claims *ret,
               struct err *err)
{
        struct part parts[3];

        if (!split_token(token, parts) || !header_is_ours(parts[0]) ||
            !signature_fits(token, parts, key))
                return refuse_token(err);
        *ret = (struct jwt_claims){ 0 };
        json_t *claims = decode_object(parts[1]);
        bool ok = claims && take_id(claims, "sub", ret->sub) &&
                  take_id(claims, "company_id", ret->company_id) &&
                  take_id(claims, "run_id", ret->run_id) &&
                  take_adapter(claims, ret->adapter_type) && take_time(claims, "iat", &ret->iat) &&
                  take_time(claims, "exp", &ret->exp) && claim_fits(claims, "iss", key->issuer) &&
                  claim_fits(claims, "aud", key->audience);
        json_decref(claims);
        return ok && ret->exp > now_s ? 0 : refuse_token(err);
}
