/* One try to get at a value, and writing tries down: shared by the files that use secrets. */
#ifndef BERTH_CORE_SECRET_RESOLVE_H
#define BERTH_CORE_SECRET_RESOLVE_H

#include "core/secrets/secret_draft.h"

struct secret_attempt {
        const char *company_id, *secret_id;
        int64_t asked; /* version; 0: what the binding says */
        const struct secret_use *use;

        /* found */
        struct secret secret;
        struct secret_version version;
        struct vault_choice vault;
        bool is_known;    /* the secret is there and the company's: worth an event */
        bool is_optional; /* its binding says so */
        int result;
        const char *error_code;
};

/* `err` must not be NULL. Nothing is written down. */
int secret_attempt(struct op *op, struct runtime *rt, struct secret_attempt *t,
                   struct secret_value *ret, struct err *err);
/* One transaction for all of them; those without a use or without a secret leave no trace. */
void secret_record(struct op *op, struct runtime *rt, const struct secret_attempt *list, size_t n);

#endif
