/* Decides who may create, read and change a company's vaults, and which one is the default. */
#include "core/secrets/vault.h"

#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/secrets/secret_draft.h"

static const char *const statuses[] = { VAULT_READY, VAULT_WARNING, VAULT_SOON, VAULT_DISABLED,
                                        NULL };

static bool is_locked(const char *provider)
{
        return streq(provider, VAULT_GCP) || streq(provider, VAULT_HASHI);
}

static bool may_be_default(const char *status)
{
        return streq(status, VAULT_READY) || streq(status, VAULT_WARNING);
}

static const char *check_status(const char *provider, const char *status, bool is_default,
                                struct arena *arena)
{
        if (is_locked(provider) && !streq(status, VAULT_SOON) && !streq(status, VAULT_DISABLED))
                return arena_printf(arena, "%s provider vaults are locked while coming soon",
                                    provider);
        if (is_default && !may_be_default(status))
                return "Only ready or warning provider vaults can be default";
        return NULL;
}

struct request {
        struct op *op;
        struct runtime *rt;
        const char *id; /* of the vault, or of the company */
        json_t *body;
        struct vault_row row;
        /* requested by an update */
        const char *display_name, *status;
        bool has_default, is_default;
        json_t *config;
};

static int load(struct db *db, const struct request *q, bool write, struct vault_row *ret,
                struct err *err)
{
        int r = access_board(q->op->actor, err);

        if (r >= 0)
                r = vault_configs_get(db, q->id, q->op->arena, ret, err);
        return r < 0 ? r : access_company(db, q->op->actor, ret->company_id, write, err);
}

static int store(struct db *db, struct vault_row *row, struct err *err)
{
        int64_t seen = row->updated_at;
        int r = 0;

        row->updated_at = clock_now_us();
        if (row->is_default)
                r = vault_configs_clear_default(db, row->company_id, row->provider, row->id,
                                                row->updated_at, err);
        if (r >= 0)
                r = vault_configs_update(db, row, seen, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT,
                               "The provider vault was changed in the meantime; read it again.");
        return r;
}

static json_t *describe(const struct vault_row *row)
{
        return json_pack("{s:s, s:s, s:s, s:b}", "provider", row->provider, "displayName",
                         row->display_name, "status", row->status, "isDefault", row->is_default);
}

static int record(struct db *db, const struct request *q, const struct vault_row *row,
                  const char *action, struct err *err)
{
        return audit(db, q->op, row->company_id, action, "secret_provider_config", row->id,
                     describe(row), err);
}

/* Creating */

static int check_create(struct request *q, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct arena *a = q->op->arena;
        const char *provider, *name, *status, *problem;
        json_t *config, *normal = NULL;
        bool is_default;
        int r;

        check_init(&c, q->body);
        provider = check_enum(&c, "provider", CHECK_REQUIRED, secret_providers);
        name = check_string(&c, "displayName", CHECK_REQUIRED | CHECK_TRIM, 1, 120);
        status = check_enum(&c, "status", CHECK_OPTIONAL, statuses);
        is_default = check_bool(&c, "isDefault", CHECK_OPTIONAL, false);
        config = check_record(&c, "config", CHECK_OPTIONAL);
        if (provider && !status)
                status = is_locked(provider) ? VAULT_SOON : VAULT_READY;
        if (provider) {
                json_t *empty = config ? NULL : json_object();

                vault_check_config(&c, "config", provider, config ? config : empty, &normal);
                json_decref(empty);
        }
        problem = provider && status ? check_status(provider, status, is_default, a) : NULL;
        if (problem)
                check_custom(&c, streq(status, VAULT_DISABLED) ? "isDefault" : "status", problem);
        if (!check_failed(&c)) {
                q->row = (struct vault_row){
                        .id = arena_strdup(a, uuid_new().s),
                        .company_id = q->id,
                        .provider = arena_strdup(a, provider),
                        .display_name = arena_strdup(a, name),
                        .status = arena_strdup(a, status),
                        .is_default = is_default,
                        .config = json_to_arena(a, normal),
                };
                secret_name_creator(q->op, &q->row.created_by_agent_id, &q->row.created_by_user_id);
        }
        json_decref(normal);
        r = check_end(&c, err);
        return r;
}

static int guard(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;

        return secret_guard(db, q->op, q->id, true, err);
}

static int insert(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct vault_row *row = &q->row;
        int r = guard(db, q, err);

        row->created_at = row->updated_at = clock_now_us();
        if (streq(row->status, VAULT_DISABLED))
                row->disabled_at = row->created_at;
        if (r >= 0 && row->is_default)
                r = vault_configs_clear_default(db, row->company_id, row->provider, row->id,
                                                row->created_at, err);
        if (r >= 0)
                r = vault_configs_insert(db, row, err);
        return r < 0 ? r : record(db, q, row, "secret_provider_config.created", err);
}

int vault_create(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                 struct vault_row *ret, struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = company_id, .body = body };
        int r = store_read(op, rt->store, guard, &q, err);

        if (r >= 0)
                r = check_create(&q, err);
        if (r < 0)
                return r;
        FAULT("vault.create.before");
        r = store_write(op, rt->store, insert, &q, err);
        FAULT("vault.create.after");
        if (r >= 0)
                *ret = q.row;
        return r;
}

/* Reading */

static int get(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;

        return load(db, q, false, &q->row, err);
}

int vault_get(struct op *op, struct runtime *rt, const char *id, struct vault_row *ret,
              struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = id };
        int r = store_read(op, rt->store, get, &q, err);

        if (r >= 0)
                *ret = q.row;
        return r;
}

struct listing {
        struct op *op;
        const char *company_id;
        vault_row_fn fn;
        void *ctx;
};

static int list(struct db *db, void *arg, struct err *err)
{
        struct listing *q = arg;
        int r = secret_guard(db, q->op, q->company_id, false, err);

        return r < 0 ? r : vault_configs_list(db, q->company_id, q->op->arena, q->fn, q->ctx, err);
}

int vault_list(struct op *op, struct runtime *rt, const char *company_id, vault_row_fn fn,
               void *ctx, struct err *err)
{
        struct listing q = { op, company_id, fn, ctx };

        return store_read(op, rt->store, list, &q, err);
}

/* Changing */

/* Before anything is read: the errors that do not depend on the vault. */
static int check_update(struct request *q, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct arena *a = q->op->arena;

        check_init(&c, q->body);
        q->display_name = arena_strdup(a, check_string(&c, "displayName", CHECK_TRIM, 1, 120));
        q->status = arena_strdup(a, check_enum(&c, "status", CHECK_OPTIONAL, statuses));
        q->has_default = check_has(&c, "isDefault");
        q->is_default = check_bool(&c, "isDefault", CHECK_OPTIONAL, false);
        q->config = check_record(&c, "config", CHECK_OPTIONAL);
        if (q->config)
                vault_check_any_config(&c, "config", q->config);
        return check_end(&c, err);
}

static int apply_config(const struct request *q, struct vault_row *row, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        json_t *normal = NULL;
        int r;

        check_init(&c, q->body);
        vault_check_config(&c, "config", row->provider, q->config, &normal);
        if (!check_failed(&c))
                row->config = json_to_arena(q->op->arena, normal);
        json_decref(normal);
        r = check_end_config(&c, err);
        if (r < 0) {
                char *details = err->details ? xstrdup(err->details) : NULL;

                (void)err_set(err, r, "Invalid provider vault config");
                err_details(err, details);
        }
        return r;
}

static void set_status(struct vault_row *row, const char *status)
{
        if (streq(status, VAULT_DISABLED) && !row->disabled_at)
                row->disabled_at = clock_now_us();
        if (!streq(status, VAULT_DISABLED))
                row->disabled_at = 0;
        if (streq(status, VAULT_DISABLED))
                row->is_default = false;
        row->status = status;
}

static int update(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct vault_row *row = &q->row;
        const char *problem;
        int r = load(db, q, true, row, err);

        if (r >= 0 && q->config)
                r = apply_config(q, row, err);
        if (r < 0)
                return r;
        if (q->display_name)
                row->display_name = q->display_name;
        if (q->status)
                set_status(row, q->status);
        if (q->has_default)
                row->is_default = q->is_default;
        problem = check_status(row->provider, row->status, row->is_default, q->op->arena);
        if (problem)
                return err_set(err, ERR_UNPROCESSABLE, "%s", problem);
        r = store(db, row, err);
        return r < 0 ? r : record(db, q, row, "secret_provider_config.updated", err);
}

static int run(struct request *q, store_fn fn, struct vault_row *ret, struct err *err)
{
        int r;

        FAULT("vault.update.before");
        r = store_write(q->op, q->rt->store, fn, q, err);
        FAULT("vault.update.after");
        if (r >= 0)
                *ret = q->row;
        return r;
}

int vault_update(struct op *op, struct runtime *rt, const char *id, json_t *body,
                 struct vault_row *ret, struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = id, .body = body };
        int r = access_board(op->actor, err);

        if (r >= 0)
                r = check_update(&q, err);
        return r < 0 ? r : run(&q, update, ret, err);
}

static int disable(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = load(db, q, true, &q->row, err);

        if (r < 0)
                return r;
        set_status(&q->row, VAULT_DISABLED);
        r = store(db, &q->row, err);
        return r < 0 ? r : record(db, q, &q->row, "secret_provider_config.disabled", err);
}

int vault_disable(struct op *op, struct runtime *rt, const char *id, struct vault_row *ret,
                  struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = id };

        return run(&q, disable, ret, err);
}

static int set_default(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = load(db, q, true, &q->row, err);

        if (r >= 0 && !may_be_default(q->row.status))
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Only ready or warning provider vaults can be default");
        if (r < 0)
                return r;
        q->row.is_default = true;
        r = store(db, &q->row, err);
        return r < 0 ? r : record(db, q, &q->row, "secret_provider_config.default_set", err);
}

int vault_set_default(struct op *op, struct runtime *rt, const char *id, struct vault_row *ret,
                      struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = id };

        return run(&q, set_default, ret, err);
}
