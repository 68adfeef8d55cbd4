/* Makes and verifies run tokens, and derives the keys for them. */
#include "core/access/run_token.h"

#include <sodium.h>

#include "base/clock.h"
#include "base/log.h"
#include "secret/master_key.h"
#include "secret/value.h"

#define KEY_LEN crypto_auth_hmacsha256_BYTES

struct run_keys {
        struct secret_value jwt;     /* the operator's words, or KEY_LEN bytes */
        struct secret_value channel; /* KEY_LEN bytes */
};

static void derive_key(const void *key, size_t key_len, const char *label, const char *name,
                       unsigned char ret[KEY_LEN])
{
        crypto_auth_hmacsha256_state state;

        (void)crypto_auth_hmacsha256_init(&state, key, key_len);
        (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)label, strlen(label));
        (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)name, strlen(name));
        (void)crypto_auth_hmacsha256_final(&state, ret);
        sodium_memzero(&state, sizeof(state));
}

/* The key of this instance, from which the others are derived. */
static void instance_key(const struct node *node, unsigned char ret[KEY_LEN])
{
        CLEAN(err_done) struct err why = { 0 };
        struct master_key master;

        if (master_key_current(&master, &why) < 0) {
                log_warn("tokens of runs will not outlive this daemon, which has no master key",
                         LOG_S("error", why.msg));
                random_bytes(ret, KEY_LEN);
                return;
        }
        derive_key(master.bytes, MASTER_KEY_BYTES, "berth runs:", node->id.s, ret);
        master_key_done(&master);
}

static int set_derived(struct secret_value *value, const unsigned char instance[KEY_LEN],
                       const char *label, struct err *err)
{
        unsigned char key[KEY_LEN];

        derive_key(instance, KEY_LEN, label, "", key);
        int r = secret_value_set(value, (const char *)key, sizeof(key), err);
        sodium_memzero(key, sizeof(key));
        return r;
}

int run_keys_new(const struct node *node, const char *secret, struct run_keys **ret,
                 struct err *err)
{
        struct run_keys *keys = xcalloc(1, sizeof(*keys));
        unsigned char instance[KEY_LEN];
        int r;

        instance_key(node, instance);
        if (secret && *secret)
                r = secret_value_set(&keys->jwt, secret, strlen(secret), err);
        else
                r = set_derived(&keys->jwt, instance, "jwt", err);
        if (r >= 0)
                r = set_derived(&keys->channel, instance, "callback", err);
        sodium_memzero(instance, sizeof(instance));
        if (r < 0)
                run_keys_free(keys);
        else
                *ret = keys;
        return r;
}

void run_keys_free(struct run_keys *keys)
{
        if (!keys)
                return;
        secret_value_done(&keys->jwt);
        secret_value_done(&keys->channel);
        free(keys);
}

static struct jwt_key key_of(const struct runtime *rt)
{
        return (struct jwt_key){ .bytes = rt->run_keys->jwt.data,
                                 .len = rt->run_keys->jwt.len,
                                 .issuer = rt->settings.run_token_issuer,
                                 .audience = rt->settings.run_token_audience };
}

int run_token_mint(const struct runtime *rt, const struct run *run, const char *adapter_type,
                   struct buf *ret, struct err *err)
{
        const struct jwt_key key = key_of(rt);
        int64_t now = clock_wall_us() / US_PER_S;
        struct jwt_claims claims = { .iat = now, .exp = now + rt->settings.run_token_ttl_s };
        struct {
                char *at;
                const char *text;
                size_t max;
        } const texts[] = {
                { claims.sub, run->agent_id, UUID_LEN },
                { claims.company_id, run->company_id, UUID_LEN },
                { claims.run_id, run->id, UUID_LEN },
                { claims.adapter_type, adapter_type, JWT_ADAPTER_MAX },
        };

        for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
                size_t len = strlen(texts[i].text);

                if (len > texts[i].max)
                        return err_set(err, ERR_INVALID, "A name is too long for a run token.");
                memcpy(texts[i].at, texts[i].text, len + 1);
        }
        return jwt_sign(&claims, &key, ret, err);
}

int run_token_verify(const struct runtime *rt, const char *token, struct jwt_claims *ret,
                     struct err *err)
{
        const struct jwt_key key = key_of(rt);

        return jwt_verify(token, &key, clock_wall_us() / US_PER_S, ret, err);
}

void run_channel_token(const struct runtime *rt, const char *run_id,
                       char ret[CHANNEL_TOKEN_LEN + 1])
{
        const struct secret_value *key = &rt->run_keys->channel;
        unsigned char sum[KEY_LEN];

        derive_key(key->data, key->len, "callback:", run_id, sum);
        sodium_bin2base64(ret, CHANNEL_TOKEN_LEN + 1, sum, CHANNEL_TOKEN_BYTES,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING);
        sodium_memzero(sum, sizeof(sum));
}
