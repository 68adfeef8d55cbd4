/* Decides who may create, read and change a company's vaults, and which one is the default. */
#include "core/secrets/vault.h"

#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/secrets/secret_draft.h"

const char *const vault_statuses[] = { VAULT_READY, VAULT_WARNING, VAULT_SOON, VAULT_DISABLED,
                                       NULL };

static bool is_locked(const char *provider)
{
        return streq(provider, VAULT_GCP) || streq(provider, VAULT_HASHI);
}

static bool may_be_default(const char *status)
{
        return streq(status, VAULT_READY) || streq(status, VAULT_WARNING);
}

const char *vault_first_status(const char *provider)
{
        return is_locked(provider) ? VAULT_SOON : VAULT_READY;
}

const char *vault_check_status(const char *provider, const char *status, bool is_default,
                               struct arena *arena)
{
        if (is_locked(provider) && !streq(status, VAULT_SOON) && !streq(status, VAULT_DISABLED))
                return arena_printf(arena, "%s provider vaults are locked while coming soon",
                                    provider);
        if (is_default && !may_be_default(status))
                return "Only ready or warning provider vaults can be default";
        return NULL;
}

struct vault_request {
        struct op *op;
        const char *id; /* of the vault, or of the company */
        const struct vault_change *change;
        struct vault_row row;
};

int vault_load(struct db *db, const struct op *op, const char *id, bool write,
               struct vault_row *ret, struct err *err)
{
        int r = access_board(op->actor, err);

        if (r >= 0)
                r = vault_configs_get(db, id, op->arena, ret, err);
        return r < 0 ? r : access_company(db, op->actor, ret->company_id, write, err);
}

static int vault_audit(struct db *db, const struct op *op, const struct vault_row *row,
                       const char *action, struct err *err)
{
        return audit(db, op, row->company_id, action, "secret_provider_config", row->id,
                     json_pack("{s:s, s:s, s:s, s:b}", "provider", row->provider, "displayName",
                               row->display_name, "status", row->status, "isDefault",
                               row->is_default),
                     err);
}

static int vault_store(struct db *db, const struct op *op, struct vault_row *row,
                       const char *action, struct err *err)
{
        int64_t seen = row->updated_at;
        int r = 1;

        row->updated_at = clock_now_us();
        if (row->is_default)
                r = vault_configs_clear_default(db, row->company_id, row->provider, row->id,
                                                row->updated_at, err);
        if (r >= 0)
                r = vault_configs_update(db, row, seen, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT,
                               "The provider vault was changed in the meantime; read it again.");
        return r < 0 ? r : vault_audit(db, op, row, action, err);
}

/* Creating */

static int vault_insert(struct db *db, void *arg, struct err *err)
{
        struct vault_request *q = arg;
        struct vault_row *row = &q->row;
        int r = secret_guard(db, q->op, q->id, true, err);

        row->created_at = row->updated_at = clock_now_us();
        if (streq(row->status, VAULT_DISABLED))
                row->disabled_at = row->created_at;
        if (r >= 0 && row->is_default)
                r = vault_configs_clear_default(db, row->company_id, row->provider, row->id,
                                                row->created_at, err);
        if (r >= 0)
                r = vault_configs_insert(db, row, err);
        return r < 0 ? r : vault_audit(db, q->op, row, "secret_provider_config.created", err);
}

int vault_create(struct op *op, struct runtime *rt, const char *company_id,
                 const struct vault_spec *spec, struct vault_row *ret, struct err *err)
{
        struct vault_request q = { .op = op,
                                   .id = company_id,
                                   .row = { .id = arena_strdup(op->arena, uuid_new().s),
                                            .company_id = company_id,
                                            .provider = spec->provider,
                                            .display_name = spec->display_name,
                                            .status = spec->status,
                                            .is_default = spec->is_default,
                                            .config = spec->config } };

        secret_name_creator(op, &q.row.created_by_agent_id, &q.row.created_by_user_id);
        FAULT("vault.create.before");
        int r = store_write(op, rt->store, vault_insert, &q, err);
        FAULT("vault.create.after");
        if (r >= 0)
                *ret = q.row;
        return r;
}

/* Reading */

int vault_get(struct op *op, struct runtime *rt, const char *id, struct vault_row *ret,
              struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : vault_load(db, op, id, false, ret, err);
}

int vault_list(struct op *op, struct runtime *rt, const char *company_id, vault_row_fn fn,
               void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = secret_guard(db, op, company_id, false, err);
        return r < 0 ? r : vault_configs_list(db, company_id, op->arena, fn, ctx, err);
}

/* Changing */

static int vault_apply_config(const struct op *op, json_t *config, struct vault_row *row,
                              struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        json_t *normal = NULL;

        check_init(&c, config);
        vault_check_config(&c, "config", row->provider, config, &normal);
        if (!check_failed(&c))
                row->config = json_to_arena(op->arena, normal);
        json_decref(normal);
        int r = check_end_config(&c, err);
        if (r < 0) {
                char *details = err->details ? xstrdup(err->details) : NULL;

                (void)err_set(err, r, "Invalid provider vault config");
                err_details(err, details);
        }
        return r;
}

static void vault_set_status(struct vault_row *row, const char *status)
{
        if (streq(status, VAULT_DISABLED) && !row->disabled_at)
                row->disabled_at = clock_now_us();
        if (!streq(status, VAULT_DISABLED))
                row->disabled_at = 0;
        if (streq(status, VAULT_DISABLED))
                row->is_default = false;
        row->status = status;
}

static int vault_apply_change(struct db *db, void *arg, struct err *err)
{
        struct vault_request *q = arg;
        const struct vault_change *change = q->change;
        struct vault_row *row = &q->row;
        int r = vault_load(db, q->op, q->id, true, row, err);

        if (r >= 0 && change->config)
                r = vault_apply_config(q->op, change->config, row, err);
        if (r < 0)
                return r;
        if (change->display_name)
                row->display_name = change->display_name;
        if (change->status)
                vault_set_status(row, change->status);
        if (change->has_default)
                row->is_default = change->is_default;
        const char *problem =
                vault_check_status(row->provider, row->status, row->is_default, q->op->arena);
        if (problem)
                return err_set(err, ERR_UNPROCESSABLE, "%s", problem);
        return vault_store(db, q->op, row, "secret_provider_config.updated", err);
}

static int vault_apply_disable(struct db *db, void *arg, struct err *err)
{
        struct vault_request *q = arg;
        int r = vault_load(db, q->op, q->id, true, &q->row, err);

        if (r < 0)
                return r;
        vault_set_status(&q->row, VAULT_DISABLED);
        return vault_store(db, q->op, &q->row, "secret_provider_config.disabled", err);
}

static int vault_apply_default(struct db *db, void *arg, struct err *err)
{
        struct vault_request *q = arg;
        int r = vault_load(db, q->op, q->id, true, &q->row, err);

        if (r >= 0 && !may_be_default(q->row.status))
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Only ready or warning provider vaults can be default");
        if (r < 0)
                return r;
        q->row.is_default = true;
        return vault_store(db, q->op, &q->row, "secret_provider_config.default_set", err);
}

static int vault_write(struct op *op, struct runtime *rt, const char *id, store_fn fn,
                       const struct vault_change *change, struct vault_row *ret, struct err *err)
{
        struct vault_request q = { .op = op, .id = id, .change = change };

        FAULT("vault.update.before");
        int r = store_write(op, rt->store, fn, &q, err);
        FAULT("vault.update.after");
        if (r >= 0)
                *ret = q.row;
        return r;
}

int vault_update(struct op *op, struct runtime *rt, const char *id,
                 const struct vault_change *change, struct vault_row *ret, struct err *err)
{
        return vault_write(op, rt, id, vault_apply_change, change, ret, err);
}

int vault_disable(struct op *op, struct runtime *rt, const char *id, struct vault_row *ret,
                  struct err *err)
{
        return vault_write(op, rt, id, vault_apply_disable, NULL, ret, err);
}

int vault_set_default(struct op *op, struct runtime *rt, const char *id, struct vault_row *ret,
                      struct err *err)
{
        return vault_write(op, rt, id, vault_apply_default, NULL, ret, err);
}
