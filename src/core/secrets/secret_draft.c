/* Makes a secret: chooses the vault, reserves, asks it, and commits or undoes. */
#include "core/secrets/secret_draft.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"

#define CLEANUP_MS 10000

/* Vaults */

int vault_provider_find(const struct runtime *rt, const char *key,
                        const struct vault_provider **ret, struct err *err)
{
        for (size_t i = 0; rt->vaults && rt->vaults[i]; i++)
                if (streq(rt->vaults[i]->key, key)) {
                        *ret = rt->vaults[i];
                        return 0;
                }
        *ret = vault_lookup(key);
        if (*ret)
                return 0;
        return err_set(err, ERR_UNPROCESSABLE, "%s provider is not configured in this deployment",
                       key);
}

int vault_choose(struct db *db, const struct runtime *rt, struct arena *arena,
                 const char *company_id, const char *provider, const char *config_id,
                 struct vault_choice *ret, struct err *err)
{
        struct vault_row row;
        json_t *config = NULL;
        int r = vault_provider_find(rt, provider, &ret->provider, err);

        if (r < 0)
                return r;
        ret->config = (struct vault_config){ .provider = ret->provider->key };
        if (!config_id)
                return 0;
        r = vault_configs_get(db, config_id, arena, &row, err);
        if (r < 0)
                return r;
        if (!streq(row.company_id, company_id))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Provider vault must belong to same company");
        if (!streq(row.provider, provider))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Provider vault must match the secret provider");
        if (streq(row.status, VAULT_SOON))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Provider vault is locked while coming soon");
        if (streq(row.status, VAULT_DISABLED))
                return err_set(err, ERR_UNPROCESSABLE, "Provider vault is disabled");
        if (json_parse(row.config, strlen(row.config), &config, NULL) < 0)
                config = json_object();
        ret->config =
                (struct vault_config){ row.id, row.provider, row.status, json_keep(arena, config) };
        return 0;
}

/* Making */

static int draft_check_rules(const struct secret_spec *spec, const struct secret_value *value,
                             struct err *err)
{
        bool external = streq(spec->managed_mode, SECRET_EXTERNAL);

        if (external && !spec->external_ref)
                return err_set(err, ERR_UNPROCESSABLE,
                               "External reference secrets require externalRef");
        if (!external && spec->external_ref)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Managed secrets cannot override externalRef");
        if (!external && !value)
                return err_set(err, ERR_UNPROCESSABLE, "Managed secrets require value");
        return 0;
}

static int check_free(struct db *db, const struct secret *s, struct arena *arena, struct err *err)
{
        struct secret other;
        int r = secrets_find_name(db, s->company_id, s->name, arena, &other, err);

        if (r > 0)
                return err_set(err, ERR_CONFLICT, "Secret already exists: %s", s->name);
        if (r >= 0)
                r = secrets_find_key(db, s->company_id, s->key, arena, &other, err);
        if (r > 0)
                return err_set(err, ERR_CONFLICT, "Secret key already exists: %s", s->key);
        return r;
}

struct preparation {
        struct op *op;
        struct secret_draft *draft;
        const struct secret_spec *spec;
};

static int draft_reserve(struct db *db, void *arg, struct err *err)
{
        struct preparation *p = arg;
        int r = check_free(db, &p->draft->secret, p->op->arena, err);

        return r < 0 ? r : secrets_insert(db, &p->draft->secret, err);
}

/* Record the vault's answer, before anything depends on it. */
static int draft_record_answer(struct db *db, void *arg, struct err *err)
{
        struct preparation *p = arg;
        struct secret_draft *d = p->draft;

        db_keep(db, &d->secret, sizeof(d->secret));
        int r = secret_versions_insert(db, &d->version, err);

        d->secret.latest_version = 1;
        return r < 0 ? r : secret_store(db, &d->secret, err);
}

static void draft_take_material(struct secret_draft *d)
{
        d->secret.external_ref = d->material.external_ref;
        d->version.material = d->material.material;
        d->version.value_mark = d->material.value_mark;
        d->version.fingerprint = d->material.fingerprint;
        d->version.version_ref = d->material.version_ref;
}

static int draft_ask_vault(struct op *op, const struct secret_spec *spec, struct secret_draft *d,
                           struct err *err)
{
        const struct vault_provider *p = d->vault.provider;

        if (streq(spec->managed_mode, SECRET_EXTERNAL))
                return p->link(op, &d->vault.config, &d->subject, spec->external_ref,
                               spec->version_ref, &d->material, err);
        return p->create(op, &d->vault.config, &d->subject, d->value, &d->material, err);
}

/* Reserve, ask, record: for a value that lives outside. */
static int draft_make_outside(struct op *op, struct preparation *p, struct err *err)
{
        struct secret_draft *d = p->draft;

        FAULT("secret.reserve.before");
        int r = store_write(op, d->rt->store, draft_reserve, p, err);
        FAULT("secret.reserve.after");
        if (r < 0)
                return r;
        d->is_reserved = true;
        r = draft_ask_vault(op, p->spec, d, err);
        if (r >= 0) {
                draft_take_material(d);
                FAULT("secret.record.before");
                r = store_write(op, d->rt->store, draft_record_answer, p, err);
                FAULT("secret.record.after");
        }
        if (r < 0) {
                /* After a refusal nothing exists in the vault; after any other error the secret may
                 * exist after all. */
                enum vault_failure kind = (enum vault_failure)vault_failure_of(err);

                d->secret.latest_version = 0;
                if (!d->material.material &&
                    (kind == VAULT_CONFLICT || kind == VAULT_ACCESS_DENIED ||
                     kind == VAULT_INVALID_REQUEST || err->code == ERR_UNPROCESSABLE))
                        d->vault.provider = NULL;
                secret_draft_abandon(op, d);
        }
        return r;
}

int secret_draft_make(struct op *op, struct runtime *rt, const char *company_id,
                      const struct secret_spec *spec, const struct secret_value *value,
                      struct secret_draft *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const char *key = secret_normalize_key(op->arena, spec->key ? spec->key : spec->name);
        const char *provider = spec->provider                  ? spec->provider
                               : rt->settings.secrets_provider ? rt->settings.secrets_provider
                                                               : VAULT_LOCAL;
        struct preparation p = { op, ret, spec };
        struct secret *s = &ret->secret;
        int64_t now = clock_now_us();
        int r = draft_check_rules(spec, value, err);

        *ret = (struct secret_draft){ .rt = rt, .value = value };
        if (r >= 0 && !key)
                r = err_set(err, ERR_UNPROCESSABLE, "Secret key is required");
        if (r < 0)
                return r;
        *s = (struct secret){
                .id = arena_strdup(op->arena, uuid_new().s),
                .company_id = arena_strdup(op->arena, company_id),
                .key = key,
                .name = arena_strdup(op->arena, spec->name),
                .provider = arena_strdup(op->arena, provider),
                .status = SECRET_ARCHIVED,
                .managed_mode = arena_strdup(op->arena, spec->managed_mode),
                .provider_config_id = arena_strdup(op->arena, spec->config_id),
                .provider_metadata = arena_strdup(op->arena, spec->provider_metadata),
                .description = arena_strdup(op->arena, spec->description),
                .owner_environment_id = arena_strdup(op->arena, spec->owner_environment_id),
                .reserved_by = rt->node.instance.s,
                .created_at = now,
                .updated_at = now,
        };
        secret_name_creator(op, &s->created_by_agent_id, &s->created_by_user_id);
        ret->version = (struct secret_version){
                .id = arena_strdup(op->arena, uuid_new().s),
                .secret_id = s->id,
                .version = 1,
                .status = VERSION_DISABLED,
                .created_by_agent_id = s->created_by_agent_id,
                .created_by_user_id = s->created_by_user_id,
                .created_at = now,
        };
        ret->subject = secret_subject(s, 1);
        r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = check_free(db, s, op->arena, err);
        if (r >= 0)
                r = vault_choose(db, rt, op->arena, s->company_id, s->provider, spec->config_id,
                                 &ret->vault, err);
        store_read_end(&db);
        if (r < 0)
                return r;
        if (!ret->vault.provider->is_inside && streq(spec->managed_mode, SECRET_MANAGED))
                return draft_make_outside(op, &p, err);
        r = draft_ask_vault(op, spec, ret, err);
        if (r >= 0)
                draft_take_material(ret);
        return r;
}

int secret_draft_commit(struct db *db, const struct op *op, struct secret_draft *d, struct err *err)
{
        const struct vault_provider *p = d->vault.provider;
        int r;

        db_keep(db, &d->secret, sizeof(d->secret));
        if (p->may_store && !p->may_store(&d->material)) {
                /* The master key has changed since the value was sealed. */
                struct op copy = *op;

                r = p->create(&copy, &d->vault.config, &d->subject, d->value, &d->material, err);
                if (r < 0)
                        return r;
                draft_take_material(d);
        }
        d->version.status = VERSION_CURRENT;
        d->secret.status = SECRET_ACTIVE;
        d->secret.latest_version = 1;
        d->secret.reserved_by = NULL;
        d->secret.last_rotated_at = clock_now_us();
        if (d->is_reserved) {
                r = secret_store(db, &d->secret, err);
                return r < 0 ? r : secret_versions_update(db, &d->version, err);
        }
        r = check_free(db, &d->secret, op->arena, err);
        if (r >= 0)
                r = secrets_insert(db, &d->secret, err);
        return r < 0 ? r : secret_versions_insert(db, &d->version, err);
}

/* Undoing */

struct draft_undo {
        const struct op *op;
        const char *id;
        bool is_gone;
};

static int draft_undo_rows(struct db *db, void *arg, struct err *err)
{
        struct draft_undo *u = arg;
        struct secret row;

        if (u->is_gone)
                return secrets_delete(db, u->id, err);
        int r = secrets_get(db, u->id, u->op->arena, &row, err);
        if (r < 0)
                return r;
        row.reserved_by = SECRET_ABANDONED;
        return secret_store(db, &row, err);
}

void secret_draft_abandon(struct op *op, struct secret_draft *d)
{
        CLEAN(err_done) struct err err = { 0 };
        struct op shielded = op_shield(op, CLEANUP_MS);
        struct draft_undo u = { &shielded, d->secret.id, true };
        int r = 0;

        if (!d->is_reserved)
                return;
        if (d->vault.provider)
                r = d->vault.provider->remove(&shielded, &d->vault.config, &d->subject,
                                              &d->material, VAULT_DELETE, &err);
        if (r < 0 && vault_failure_of(&err) != VAULT_NOT_FOUND) {
                u.is_gone = false;
                log_warn("a secret that was not made could not be removed from its vault; it will "
                         "be tried again",
                         LOG_S("secret", d->secret.id), LOG_S("error", err.msg));
        }
        FAULT("secret.undo.before");
        (void)store_write(&shielded, d->rt->store, draft_undo_rows, &u, NULL);
        FAULT("secret.undo.after");
}
