/* Finds the provider of a vault, and classifies the failures of providers. */
#include "secret/vault.h"

#include <sodium.h>

static const struct vault_provider *const providers[] = { &vault_local, &vault_aws, &vault_gcp,
                                                          &vault_hashi };

static const struct {
        const char *word;
        int code;
} failures[] = {
        [VAULT_CONFLICT] = { "conflict", ERR_CONFLICT },
        [VAULT_NOT_FOUND] = { "not_found", ERR_NOT_FOUND },
        [VAULT_ACCESS_DENIED] = { "access_denied", ERR_FORBIDDEN },
        [VAULT_THROTTLED] = { "throttled", ERR_THROTTLED },
        [VAULT_INVALID_REQUEST] = { "invalid_request", ERR_UNPROCESSABLE },
        [VAULT_UNAVAILABLE] = { "provider_unavailable", ERR_BUSY },
        [VAULT_ERROR] = { "provider_error", ERR_PROVIDER },
};

const struct vault_provider *vault_lookup(const char *key)
{
        for (size_t i = 0; i < ARRAY_LEN(providers); i++)
                if (streq(providers[i]->key, key))
                        return vault_stand_in(providers[i]);
        return NULL;
}

int vault_fail(struct err *err, enum vault_failure kind, const char *text)
{
        int r = err_set(err, failures[kind].code, "%s", text);

        err_details(err, xasprintf("{\"code\":\"%s\"}", failures[kind].word));
        return r;
}

int vault_failure_of(const struct err *err)
{
        json_t *details = NULL;
        int kind = -1;

        if (!err->details || json_parse(err->details, strlen(err->details), &details, NULL) < 0)
                return -1;
        const char *word = json_get_string(details, "code");
        for (size_t i = 0; word && i < ARRAY_LEN(failures); i++)
                if (streq(failures[i].word, word) && failures[i].code == err->code)
                        kind = (int)i;
        json_decref(details);
        return kind;
}

const char *vault_hash(struct arena *arena, const void *data, size_t len)
{
        unsigned char hash[crypto_hash_sha256_BYTES];
        char *hex = arena_alloc(arena, 2 * sizeof(hash) + 1);

        (void)crypto_hash_sha256(hash, data, len);
        return sodium_bin2hex(hex, 2 * sizeof(hash) + 1, hash, sizeof(hash));
}
