/* Makes a secret for a caller: who may, from a value or from what Paperclip sealed. */
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/secrets/secret_draft.h"
#include "secret/seal.h"

struct creation {
        struct op *op;
        const char *company_id;
        struct secret_draft draft;
};

static int activate_secret(struct db *db, void *arg, struct err *err)
{
        struct creation *q = arg;
        const struct secret *s = &q->draft.secret;
        int r = secret_guard(db, q->op, q->company_id, true, err);

        if (r >= 0)
                r = secret_draft_commit(db, q->op, &q->draft, err);
        return r < 0 ? r
                     : audit(db, q->op, q->company_id, "secret.created", "secret", s->id,
                             json_pack("{s:s, s:s, s:s}", "name", s->name, "provider", s->provider,
                                       "managedMode", s->managed_mode),
                             err);
}

int secret_create(struct op *op, struct runtime *rt, const char *company_id,
                  const struct secret_spec *spec, const struct secret_value *value,
                  struct secret *ret, struct err *err)
{
        struct creation q = { .op = op, .company_id = company_id };
        int r = secret_may(op, rt, company_id, true, err);

        if (r >= 0 && streq(spec->managed_mode, SECRET_EXTERNAL))
                r = secret_may_link(rt, op, err);
        if (r >= 0)
                r = secret_draft_make(op, rt, company_id, spec, value, &q.draft, err);
        if (r < 0)
                return r;
        FAULT("secret.create.before");
        r = store_write(op, rt->store, activate_secret, &q, err);
        FAULT("secret.create.after");
        if (r < 0)
                secret_draft_abandon(op, &q.draft);
        else
                *ret = q.draft.secret;
        return r;
}

int secret_import_sealed(struct op *op, struct runtime *rt, const char *company_id,
                         const struct secret_spec *spec, const char *material, struct secret *ret,
                         struct err *err)
{
        CLEAN(secret_value_done) struct secret_value value = { 0 };
        static const struct seal_place nowhere = { "", "", 0 };
        int r = seal_open(&nowhere, material, &value, err);

        return r < 0 ? r : secret_create(op, rt, company_id, spec, &value, ret, err);
}
