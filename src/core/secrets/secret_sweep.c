/* Cleans up what crashes and failing vaults left half done: reservations, versions, removals, keys
 * of environments that are not used any more, and a change of the master key. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/secrets/secret_draft.h"

/* A vault that just refused is left alone for a while. */
#define PAUSE_MS 60000

struct findings {
        struct op *op;
        struct runtime *rt;
        struct secret *secrets;
        size_t n_secrets;
        struct secret_version *versions;
        size_t n_versions;
        bool take_abandoned;
};

static bool is_due(const struct findings *f, const char *reserved_by)
{
        return f->take_abandoned || !streq(reserved_by, SECRET_ABANDONED);
}

static int add_secret(void *ctx, const struct secret *row)
{
        struct findings *f = ctx;

        if (!is_due(f, row->reserved_by))
                return 0;
        f->secrets = xrealloc(f->secrets, (f->n_secrets + 1) * sizeof(*f->secrets));
        f->secrets[f->n_secrets++] = *row;
        return 0;
}

static int add_version(void *ctx, const struct secret_version *row)
{
        struct findings *f = ctx;

        if (!is_due(f, row->reserved_by))
                return 0;
        f->versions = xrealloc(f->versions, (f->n_versions + 1) * sizeof(*f->versions));
        f->versions[f->n_versions++] = *row;
        return 0;
}

/* Versions */

struct version_heal {
        struct secret_version *version;
        bool is_gone;
};

static int settle_version(struct db *db, void *arg, struct err *err)
{
        struct version_heal *h = arg;

        if (h->is_gone)
                return secret_versions_delete(db, h->version->id, err);
        h->version->status = VERSION_FAILED;
        h->version->reserved_by = NULL;
        return secret_versions_update(db, h->version, err);
}

/* Take the version back at its vault. Where the vault cannot be asked the number stays taken: the
 * version may exist there. */
static int heal_version(struct findings *f, struct secret_version *version, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct version_heal h = { .version = version };
        struct vault_material material = { 0 };
        struct vault_subject subject;
        struct vault_choice vault;
        struct secret secret;
        int r = store_read_begin(f->op, f->rt->store, &db, err);

        if (r >= 0)
                r = secrets_get(db, version->secret_id, f->op->arena, &secret, err);
        if (r >= 0)
                r = vault_choose(db, f->rt, f->op->arena, secret.company_id, secret.provider,
                                 secret.provider_config_id, &vault, err);
        store_read_end(&db);
        if (r >= 0) {
                subject = secret_subject(&secret, version->version);
                if (!streq(version->material, "{}"))
                        material = secret_material(&secret, version);
                r = vault.provider->remove(f->op, &vault.config, &subject, &material, VAULT_ARCHIVE,
                                           err);
                if (r < 0 && vault_failure_of(err) != VAULT_NOT_FOUND)
                        return r;
                h.is_gone = true;
        } else if (r != ERR_UNPROCESSABLE && r != ERR_NOT_FOUND) {
                return r;
        }
        FAULT("secret.sweep_version.before");
        r = store_write(f->op, f->rt->store, settle_version, &h, err);
        FAULT("secret.sweep_version.after");
        return r;
}

int secret_sweep(struct op *op, struct runtime *rt, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        static _Atomic int64_t next_try;
        struct findings f = { .op = op, .rt = rt };
        int64_t now = clock_mono_ms();

        f.take_abandoned = now >= next_try;
        if (f.take_abandoned)
                next_try = now + PAUSE_MS;
        int r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = secrets_abandoned(db, rt->node.instance.s, op->arena, add_secret, &f, err);
        if (r >= 0)
                r = secret_versions_abandoned(db, rt->node.instance.s, op->arena, add_version, &f,
                                              err);
        store_read_end(&db);
        for (size_t i = 0; r >= 0 && i < f.n_versions; i++) {
                CLEAN(err_done) struct err why = { 0 };

                if (heal_version(&f, &f.versions[i], &why) < 0)
                        log_warn("a left-over version could not be removed from its vault",
                                 LOG_S("secret", f.versions[i].secret_id), LOG_S("error", why.msg));
                r = op_check(op, err);
        }
        for (size_t i = 0; r >= 0 && i < f.n_secrets; i++) {
                CLEAN(err_done) struct err why = { 0 };

                if (secret_removal_finish(op, rt, &f.secrets[i], &why) < 0)
                        log_warn("a left-over secret could not be removed from its vault",
                                 LOG_S("secret", f.secrets[i].id), LOG_S("error", why.msg));
                r = op_check(op, err);
        }
        free(f.secrets);
        free(f.versions);
        if (r >= 0 && f.take_abandoned) {
                CLEAN(err_done) struct err why = { 0 };

                /* A secret that cannot be opened keeps the old key from being dropped, and prevents
                 * nothing else. */
                if (secret_rekey_finish(op, rt, &why) < 0)
                        log_error("the change of the master key cannot be finished",
                                  LOG_S("error", why.msg));
        }
        return r;
}
