/* Making a secret from a request, and importing secrets that Paperclip sealed. */
#include <ctype.h>

#include "base/fault.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/secrets/secret_draft.h"
#include "secret/seal.h"

static const char *const modes[] = { SECRET_MANAGED, SECRET_EXTERNAL, NULL };

static bool is_key(const char *s)
{
        for (; *s; s++)
                if (!isalnum((unsigned char)*s) && *s != '_' && *s != '.' && *s != '-')
                        return false;
        return true;
}

static bool is_blank(const char *s)
{
        return !s || s[strspn(s, " \t\r\n\v\f")] == '\0';
}

static void check_mode(struct check *c, const struct secret_spec *spec, const char *value)
{
        if (streq(spec->managed_mode, SECRET_EXTERNAL)) {
                if (is_blank(spec->external_ref))
                        check_custom(c, "externalRef",
                                     "External reference secrets require externalRef");
                return;
        }
        if (spec->external_ref)
                check_custom(c, "externalRef", "Managed secrets cannot set externalRef");
        if (is_blank(value))
                check_custom(c, "value", "Managed secrets require value");
}

/* Strings of *ret are borrowed from the body and from `arena`; the value is copied to its own
 * pages. */
static int check_body(json_t *body, struct arena *arena, struct secret_spec *ret,
                      struct secret_value *ret_value, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *value;
        json_t *metadata;
        int r;

        check_init(&c, body);
        *ret = (struct secret_spec){ 0 };
        ret->name = check_string(&c, "name", CHECK_REQUIRED, 1, 0);
        ret->key = check_string(&c, "key", CHECK_OPTIONAL, 1, 0);
        if (ret->key && !is_key(ret->key))
                check_invalid_string(&c, "key", "regex", "Invalid");
        ret->provider = check_enum(&c, "provider", CHECK_OPTIONAL, secret_providers);
        ret->config_id = arena_strdup(arena, check_uuid(&c, "providerConfigId", CHECK_NULLABLE));
        ret->managed_mode = check_enum(&c, "managedMode", CHECK_OPTIONAL, modes);
        value = check_string(&c, "value", CHECK_NULLABLE, 1, 0);
        ret->description = check_string(&c, "description", CHECK_NULLABLE, 0, 0);
        ret->external_ref = check_string(&c, "externalRef", CHECK_NULLABLE, 0, 0);
        ret->version_ref = check_string(&c, "providerVersionRef", CHECK_NULLABLE, 0, 0);
        metadata = check_record(&c, "providerMetadata", CHECK_NULLABLE);
        if (!ret->managed_mode)
                ret->managed_mode = SECRET_MANAGED;
        if (!check_failed(&c))
                check_mode(&c, ret, value);
        if (metadata && !check_failed(&c))
                ret->provider_metadata = json_to_arena(arena, metadata);
        if (!check_failed(&c) && streq(ret->managed_mode, SECRET_MANAGED)) {
                r = secret_value_set(ret_value, value, strlen(value), err);
                if (r < 0)
                        return r;
        }
        ret->external_ref = arena_strtrim(arena, ret->external_ref);
        return check_end(&c, err);
}

struct request {
        struct op *op;
        const char *company_id;
        struct secret_draft *draft;
};

static int guard(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;

        return secret_guard(db, q->op, q->company_id, true, err);
}

static int activate(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        const struct secret *s = &q->draft->secret;
        int r = secret_guard(db, q->op, q->company_id, true, err);

        if (r >= 0)
                r = secret_draft_commit(db, q->op, q->draft, err);
        if (r >= 0)
                r = audit(db, q->op, q->company_id, "secret.created", "secret", s->id,
                          json_pack("{s:s, s:s, s:s}", "name", s->name, "provider", s->provider,
                                    "managedMode", s->managed_mode),
                          err);
        return r;
}

static int make(struct request *q, struct runtime *rt, const struct secret_spec *spec,
                const struct secret_value *value, struct secret *ret, struct err *err)
{
        struct secret_draft draft;
        int r = secret_draft_make(q->op, rt, q->company_id, spec, value, &draft, err);

        if (r < 0)
                return r;
        q->draft = &draft;
        FAULT("secret.create.before");
        r = store_write(q->op, rt->store, activate, q, err);
        FAULT("secret.create.after");
        q->draft = NULL;
        if (r < 0)
                secret_draft_abandon(q->op, &draft);
        else
                *ret = draft.secret;
        return r;
}

int secret_create(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                  struct secret *ret, struct err *err)
{
        CLEAN(secret_value_done) struct secret_value value = { 0 };
        struct request q = { .op = op, .company_id = company_id };
        struct secret_spec spec;
        int r = store_read(op, rt->store, guard, &q, err);

        if (r >= 0)
                r = check_body(body, op->arena, &spec, &value, err);
        if (r >= 0 && streq(spec.managed_mode, SECRET_EXTERNAL))
                r = secret_may_link(rt, op, err);
        if (r < 0)
                return r;
        return make(&q, rt, &spec, value.data ? &value : NULL, ret, err);
}

/* Importing */

struct import {
        struct request q;
        struct runtime *rt;
        struct jw w;
        int64_t imported, failed;
};

static int import_one(struct import *m, json_t *item, const char **ret_id, struct err *err)
{
        CLEAN(secret_value_done) struct secret_value value = { 0 };
        static const struct seal_place nowhere = { "", "", 0 };
        struct arena *a = m->q.op->arena;
        struct secret_spec spec = {
                .name = json_get_string(item, "name"),
                .key = json_get_string(item, "key"),
                .description = json_get_string(item, "description"),
                .provider = VAULT_LOCAL,
                .managed_mode = SECRET_MANAGED,
        };
        struct secret made = { 0 };
        int r;

        if (is_blank(spec.name) || !json_get_object(item, "material"))
                return err_set(err, ERR_INVALID, "needs a name and the material");
        r = seal_open(&nowhere, json_to_arena(a, json_object_get(item, "material")), &value, err);
        if (r >= 0)
                r = make(&m->q, m->rt, &spec, &value, &made, err);
        if (r >= 0)
                *ret_id = made.id;
        return r;
}

static void import_and_tell(struct import *m, json_t *item)
{
        CLEAN(err_done) struct err err = { 0 };
        const char *id = NULL;
        int r = import_one(m, item, &id, &err);

        m->imported += r >= 0;
        m->failed += r < 0;
        jw_object(&m->w);
        jw_kstring(&m->w, "name", json_get_string(item, "name"));
        jw_kstring(&m->w, "status", r < 0 ? "error" : "imported");
        jw_kstring(&m->w, "reason", r < 0 ? err.msg : NULL);
        jw_kstring(&m->w, "secretId", id);
        jw_object_end(&m->w);
}

int secret_import_sealed(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                         struct buf *ret_json, struct err *err)
{
        struct import m = { .q = { .op = op, .company_id = company_id }, .rt = rt };
        CLEAN(check_done) struct check c = { 0 };
        json_t *secrets, *item;
        size_t i;
        int r = store_read(op, rt->store, guard, &m.q, err);

        check_init(&c, body);
        secrets = check_array(&c, "secrets", CHECK_REQUIRED);
        if (secrets)
                check_array_size(&c, "secrets", secrets, 1, 1000);
        if (r >= 0)
                r = check_end(&c, err);
        if (r < 0)
                return r;
        jw_init(&m.w, ret_json);
        jw_object(&m.w);
        jw_key(&m.w, "results");
        jw_array(&m.w);
        json_array_foreach(secrets, i, item) import_and_tell(&m, item);
        jw_array_end(&m.w);
        jw_kint(&m.w, "importedCount", m.imported);
        jw_kint(&m.w, "errorCount", m.failed);
        jw_object_end(&m.w);
        return 0;
}
