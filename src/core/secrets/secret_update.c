/* Decides which members of a secret may change, and removes secrets. */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/secrets/secret_draft.h"

struct update {
        struct op *op;
        const char *id;
        const struct secret_change *change;
        struct secret *result;
};

static bool differs(const char *a, const char *b)
{
        return (a == NULL) != (b == NULL) || (a && !streq(a, b));
}

/* Refuse members that cannot be changed this way, and say how they can. */
static int check_allowed(const struct secret_change *u, const struct secret *s, struct err *err)
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
        if (force || s->reference_count == 0)
                return 0;
        int r = err_set(
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

static int rename_secret(struct db *db, const struct secret_change *u, struct secret *s,
                         struct arena *a, struct err *err)
{
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

static int update_secret(struct db *db, void *arg, struct err *err)
{
        const struct update *q = arg;
        const struct secret_change *u = q->change;
        struct secret s;
        int r = secret_load(db, q->op, q->id, true, false, &s, err);

        if (r >= 0)
                r = check_allowed(u, &s, err);
        if (r >= 0)
                r = rename_secret(db, u, &s, q->op->arena, err);
        if (r < 0)
                return r;
        if (u->has_description)
                s.description = u->description;
        if (u->has_metadata)
                s.provider_metadata = u->metadata;
        if (u->status && streq(u->status, SECRET_DELETED)) {
                r = check_unused(&s, u->force, err);
                rename_deleted(q->op->arena, &s);
        } else if (u->status) {
                s.status = u->status;
        }
        if (r >= 0)
                r = secret_store(db, &s, err);
        if (r >= 0)
                r = audit(db, q->op, s.company_id, "secret.updated", "secret", s.id,
                          json_pack("{s:s, s:s}", "name", s.deleted_at ? s.original_name : s.name,
                                    "status", s.status),
                          err);
        *q->result = s;
        return r;
}

int secret_update(struct op *op, struct runtime *rt, const char *id,
                  const struct secret_change *change, struct secret *ret, struct err *err)
{
        struct update q = { op, id, change, ret };

        FAULT("secret.update.before");
        int r = store_write(op, rt->store, update_secret, &q, err);
        FAULT("secret.update.after");
        return r;
}

/* Removing */

static int delete_secret_row(struct db *db, const struct op *op, const struct secret *s,
                             struct err *err)
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
                return delete_secret_row(db, op, secret, err);
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
};

/* A vault that is switched off or gone is not asked: it could not answer. */
static int remove_from_vault(struct op *op, struct runtime *rt, const struct secret *s,
                             struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct secret_version version = { 0 };
        struct vault_material material = { 0 };
        struct vault_choice vault;
        int64_t max = 0;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r < 0)
                return r;
        bool has_vault = vault_choose(db, rt, op->arena, s->company_id, s->provider,
                                      s->provider_config_id, &vault, err) >= 0;
        r = secret_versions_max(db, s->id, &max, err);
        if (r >= 0) {
                r = secret_versions_get(db, s->id, s->latest_version ? s->latest_version : max,
                                        op->arena, &version, err);
                if (r >= 0)
                        material = secret_material(s, &version);
        }
        store_read_end(&db);
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        if (!has_vault)
                return 0;
        struct vault_subject subject = secret_subject(s, MAX(max, INT64_C(1)));
        r = vault.provider->remove(op, &vault.config, &subject, &material, VAULT_DELETE, err);
        if (r < 0 && vault_failure_of(err) == VAULT_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        return r;
}

static int removal_drop_row(struct db *db, void *arg, struct err *err)
{
        struct removal *q = arg;

        return delete_secret_row(db, q->op, &q->marked.secret, err);
}

static int removal_leave_for_later(struct db *db, void *arg, struct err *err)
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
        int r = remove_from_vault(op, rt, secret, err);

        if (r >= 0) {
                FAULT("secret.drop.before");
                r = store_write(op, rt->store, removal_drop_row, &q, err);
                FAULT("secret.drop.after");
        }
        if (r < 0) {
                struct op shielded = op_shield(op, 10000);

                q.op = &shielded;
                FAULT("secret.later.before");
                (void)store_write(&shielded, rt->store, removal_leave_for_later, &q, NULL);
                FAULT("secret.later.after");
        }
        return r;
}

static int removal_mark(struct db *db, void *arg, struct err *err)
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

        FAULT("secret.remove.before");
        int r = store_write(op, rt->store, removal_mark, &q, err);
        FAULT("secret.remove.after");
        if (r < 0 || q.marked.is_done)
                return r < 0 ? r : 0;
        return secret_removal_finish(op, rt, &q.marked.secret, err);
}
