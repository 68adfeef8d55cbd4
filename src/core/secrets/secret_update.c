/* Decides which members of a secret may change, and removes secrets. */
#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/secrets/secret_draft.h"

static const char *const statuses[] = { SECRET_ACTIVE, SECRET_DISABLED, SECRET_ARCHIVED,
                                        SECRET_DELETED, NULL };

struct update {
        struct op *op;
        struct runtime *rt;
        const char *id;
        json_t *body;
        bool force;
        struct secret *result;
        /* requested by the body; has_* for members that may be null */
        const char *name, *key, *status, *config_id, *description, *external_ref, *metadata;
        bool has_config, has_description, has_ref, has_metadata;
};

static int check_body(struct update *u, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct arena *a = u->op->arena;
        json_t *metadata;

        check_init(&c, u->body);
        u->name = arena_strdup(a, check_string(&c, "name", CHECK_OPTIONAL, 1, 0));
        u->key = arena_strdup(a, check_string(&c, "key", CHECK_OPTIONAL, 1, 0));
        u->status = arena_strdup(a, check_enum(&c, "status", CHECK_OPTIONAL, statuses));
        u->has_config = check_has(&c, "providerConfigId");
        u->config_id = arena_strdup(a, check_uuid(&c, "providerConfigId", CHECK_NULLABLE));
        u->has_description = check_has(&c, "description");
        u->description = arena_strdup(a, check_string(&c, "description", CHECK_NULLABLE, 0, 0));
        u->has_ref = check_has(&c, "externalRef");
        u->external_ref = arena_strdup(a, check_string(&c, "externalRef", CHECK_NULLABLE, 0, 0));
        u->has_metadata = check_has(&c, "providerMetadata");
        metadata = check_record(&c, "providerMetadata", CHECK_NULLABLE);
        if (metadata && !check_failed(&c))
                u->metadata = json_to_arena(a, metadata);
        return check_end(&c, err);
}

static bool differs(const char *a, const char *b)
{
        return (a == NULL) != (b == NULL) || (a && !streq(a, b));
}

/* Refuse members that cannot be changed this way, and say how they can. */
static int check_allowed(const struct update *u, const struct secret *s, struct err *err)
{
        bool external = streq(s->managed_mode, SECRET_EXTERNAL);

        if (u->status && streq(u->status, SECRET_DELETED) && !external)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Managed secrets must be deleted through DELETE /secrets/:id");
        if (u->has_ref && differs(u->external_ref, s->external_ref))
                return err_set(err, ERR_UNPROCESSABLE, "%s",
                               external ? "External reference secrets cannot be retargeted through "
                                          "generic update"
                                        : "Managed secrets cannot override externalRef");
        if (u->has_config && differs(u->config_id, s->provider_config_id))
                return err_set(err, ERR_UNPROCESSABLE, "%s",
                               external ? "External reference secrets cannot change provider vault "
                                          "through generic update"
                                        : "Managed secrets cannot change provider vault through "
                                          "PATCH; use rotate() to migrate to a new vault");
        return 0;
}

static int check_unused(const struct secret *s, bool force, struct err *err)
{
        int r;

        if (force || s->reference_count == 0)
                return 0;
        r = err_set(
                err, ERR_CONFLICT,
                "Secret is in use: %s has %lld binding%s (GET /api/secrets/%s/usage, berth secret "
                "usage). Remove them first, or delete with force=true (--force).",
                s->name, (long long)s->reference_count, s->reference_count == 1 ? "" : "s", s->id);
        err_details(err, xasprintf("{\"code\":\"secret_in_use\",\"referenceCount\":%lld}",
                                   (long long)s->reference_count));
        return r;
}

/* Frees the name and key for another secret; the vault knows this one by the original ones. */
static void rename_deleted(struct arena *a, struct secret *s)
{
        if (!s->original_key)
                s->original_key = s->key;
        s->original_name = s->name;
        s->key = arena_printf(a, "%s__deleted__%s", s->key, s->id);
        s->name = arena_printf(a, "%s__deleted__%s", s->name, s->id);
        s->status = SECRET_DELETED;
        s->deleted_at = clock_now_us();
}

static int rename_secret(struct db *db, const struct update *u, struct secret *s, struct err *err)
{
        struct arena *a = u->op->arena;
        struct secret other;
        const char *key;
        int r = 0;

        if (u->name && !streq(u->name, s->name)) {
                r = secrets_find_name(db, s->company_id, u->name, a, &other, err);
                if (r > 0)
                        return err_set(err, ERR_CONFLICT, "Secret already exists: %s", u->name);
                s->name = u->name;
        }
        if (r >= 0 && u->key) {
                key = secret_normalize_key(a, u->key);
                if (!key)
                        return err_set(err, ERR_UNPROCESSABLE, "Secret key is required");
                /* The vault keeps the key that the secret was made with. */
                if (!streq(key, s->key) && !s->original_key)
                        s->original_key = s->key;
                r = streq(key, s->key) ? 0
                                       : secrets_find_key(db, s->company_id, key, a, &other, err);
                if (r > 0)
                        return err_set(err, ERR_CONFLICT, "Secret key already exists: %s", key);
                s->key = key;
        }
        return r;
}

static int apply(struct db *db, const struct update *u, struct secret *s, struct err *err)
{
        int r = rename_secret(db, u, s, err);

        if (r < 0)
                return r;
        if (u->has_description)
                s->description = u->description;
        if (u->has_metadata)
                s->provider_metadata = u->metadata;
        if (u->status && streq(u->status, SECRET_DELETED)) {
                r = check_unused(s, u->force, err);
                rename_deleted(u->op->arena, s);
        } else if (u->status) {
                s->status = u->status;
        }
        return r;
}

static int update(struct db *db, void *arg, struct err *err)
{
        struct update *u = arg;
        struct secret s;
        int r = secret_load(db, u->op, u->id, true, false, &s, err);

        if (r >= 0)
                r = check_body(u, err);
        if (r >= 0)
                r = check_allowed(u, &s, err);
        if (r >= 0)
                r = apply(db, u, &s, err);
        if (r >= 0)
                r = secret_store(db, &s, err);
        if (r >= 0)
                r = audit(db, u->op, s.company_id, "secret.updated", "secret", s.id,
                          json_pack("{s:s, s:s}", "name", s.deleted_at ? s.original_name : s.name,
                                    "status", s.status),
                          err);
        *u->result = s;
        return r;
}

int secret_update(struct op *op, struct runtime *rt, const char *id, json_t *body, bool force,
                  struct secret *ret, struct err *err)
{
        struct update u = {
                .op = op, .rt = rt, .id = id, .body = body, .force = force, .result = ret
        };
        int r;

        FAULT("secret.update.before");
        r = store_write(op, rt->store, update, &u, err);
        FAULT("secret.update.after");
        return r;
}

/* Removing */

static int delete_row(struct db *db, const struct op *op, const struct secret *s, struct err *err)
{
        int r = secrets_delete(db, s->id, err);

        if (r <= 0)
                return r; /* another caller was first, and has recorded it */
        if (s->reserved_by && streq(s->status, SECRET_ARCHIVED))
                return 0; /* it never became a secret */
        return audit(db, op, s->company_id, "secret.deleted", "secret", s->id,
                     json_pack("{s:s}", "name", s->original_name ? s->original_name : s->name),
                     err);
}

int secret_removal_mark(struct db *db, const struct op *op, const struct runtime *rt,
                        const struct secret *secret, struct secret_removal *ret, struct err *err)
{
        const struct vault_provider *p;
        int r = vault_provider_find(rt, secret->provider, &p, NULL);

        ret->secret = *secret;
        ret->is_done = r >= 0 && p->is_inside;
        if (ret->is_done)
                return delete_row(db, op, secret, err);
        if (!streq(secret->status, SECRET_DELETED))
                rename_deleted(op->arena, &ret->secret);
        ret->secret.reserved_by = rt->node.instance.s;
        return secret_store(db, &ret->secret, err);
}

struct removal {
        struct op *op;
        struct runtime *rt;
        const char *id;
        bool force;
        struct secret_removal marked;
        struct secret_version version;
        struct vault_choice vault;
        bool has_vault, has_version;
};

/* A vault that is switched off or gone is not asked: it could not answer. */
static int look_for_vault(struct db *db, void *arg, struct err *err)
{
        struct removal *q = arg;
        const struct secret *s = &q->marked.secret;
        int64_t max;
        int r = vault_choose(db, q->rt, q->op->arena, s->company_id, s->provider,
                             s->provider_config_id, &q->vault, err);

        q->has_vault = r >= 0;
        r = secret_versions_max(db, s->id, &max, err);
        if (r < 0)
                return r;
        r = secret_versions_get(db, s->id, s->latest_version ? s->latest_version : max,
                                q->op->arena, &q->version, err);
        q->has_version = r >= 0;
        q->version.version = MAX(max, INT64_C(1));
        err_clear(err);
        return r == ERR_NOT_FOUND ? 0 : r;
}

static int ask_vault(struct removal *q, struct err *err)
{
        const struct secret *s = &q->marked.secret;
        struct vault_subject subject = secret_subject(s, q->version.version);
        struct vault_material material = { 0 };
        int r;

        if (!q->has_vault)
                return 0;
        if (q->has_version)
                material = secret_material(s, &q->version);
        r = q->vault.provider->remove(q->op, &q->vault.config, &subject, &material, VAULT_DELETE,
                                      err);
        if (r < 0 && vault_failure_of(err) == VAULT_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        return r;
}

static int drop_row(struct db *db, void *arg, struct err *err)
{
        struct removal *q = arg;

        return delete_row(db, q->op, &q->marked.secret, err);
}

static int leave_for_later(struct db *db, void *arg, struct err *err)
{
        struct removal *q = arg;
        struct secret s;
        int r = secrets_get(db, q->marked.secret.id, q->op->arena, &s, err);

        if (r < 0)
                return r;
        s.reserved_by = SECRET_ABANDONED;
        return secret_store(db, &s, err);
}

int secret_removal_finish(struct op *op, struct runtime *rt, const struct secret *secret,
                          struct err *err)
{
        struct removal q = { .op = op, .rt = rt, .marked = { .secret = *secret } };
        int r = store_read(op, rt->store, look_for_vault, &q, err);

        if (r >= 0)
                r = ask_vault(&q, err);
        if (r >= 0) {
                FAULT("secret.drop.before");
                r = store_write(op, rt->store, drop_row, &q, err);
                FAULT("secret.drop.after");
        }
        if (r < 0) {
                struct op shielded = op_shield(op, 10000);

                q.op = &shielded;
                FAULT("secret.later.before");
                (void)store_write(&shielded, rt->store, leave_for_later, &q, NULL);
                FAULT("secret.later.after");
        }
        return r;
}

static int mark(struct db *db, void *arg, struct err *err)
{
        struct removal *q = arg;
        struct secret s;
        int r = secret_load(db, q->op, q->id, true, true, &s, err);

        if (r >= 0 && !streq(s.status, SECRET_DELETED))
                r = check_unused(&s, q->force, err);
        return r < 0 ? r : secret_removal_mark(db, q->op, q->rt, &s, &q->marked, err);
}

int secret_remove(struct op *op, struct runtime *rt, const char *id, bool force, struct err *err)
{
        struct removal q = { .op = op, .rt = rt, .id = id, .force = force };
        int r;

        FAULT("secret.remove.before");
        r = store_write(op, rt->store, mark, &q, err);
        FAULT("secret.remove.after");
        if (r < 0 || q.marked.is_done)
                return r < 0 ? r : 0;
        return secret_removal_finish(op, rt, &q.marked.secret, err);
}
