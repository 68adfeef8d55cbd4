#include "secret/vault.h"

static const struct {
        const char *word;
        int code;
} kinds[] = {
        [VAULT_CONFLICT] = { "conflict", ERR_CONFLICT },
        [VAULT_NOT_FOUND] = { "not_found", ERR_NOT_FOUND },
        [VAULT_ACCESS_DENIED] = { "access_denied", ERR_FORBIDDEN },
        [VAULT_THROTTLED] = { "throttled", ERR_BUSY },
        [VAULT_INVALID_REQUEST] = { "invalid_request", ERR_UNPROCESSABLE },
        [VAULT_UNAVAILABLE] = { "provider_unavailable", ERR_BUSY },
        [VAULT_ERROR] = { "provider_error", ERR_PROVIDER },
};

int vault_fail(struct err *err, enum vault_failure kind, const char *text)
{
        int r = err_set(err, kinds[kind].code, "%s", text);

        if (err)
                err_details(err, xasprintf("{\"code\":\"%s\"}", kinds[kind].word));
        return r;
}

int vault_failure_of(const struct err *err)
{
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
                CLEAN(cleanup_free) char *details = xasprintf("{\"code\":\"%s\"}", kinds[i].word);

                if (err->details && streq(err->details, details))
                        return (int)i;
        }
        return -1;
}
