/* One attempt to read a value, and recording attempts: shared by the files that use secrets. */
#pragma once

#include "core/secrets/secret_draft.h"

struct secret_attempt {
        const char *company_id, *secret_id;
        int64_t asked; /* version; 0: the binding's */
        const struct secret_use *use;

        /* found */
        struct secret secret;
        struct secret_version version;
        struct vault_choice vault;
        bool is_known;    /* the secret exists and is the company's: an event is written */
        bool is_optional; /* its binding says so */
        int result;
        const char *error_code;
};

/* `err` must not be NULL. Nothing is recorded. */
int secret_attempt(struct op *op, struct runtime *rt, struct secret_attempt *t,
                   struct secret_value *ret, struct err *err);
/* One transaction for all of them; attempts without a use or without a secret are not recorded. */
void secret_record(struct op *op, struct runtime *rt, const struct secret_attempt *list, size_t n);
