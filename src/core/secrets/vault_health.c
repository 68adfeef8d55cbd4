/* Decides whether a vault works, and keeps the answer in its row. */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/secrets/secret_draft.h"
#include "core/secrets/vault.h"

struct checkup {
        struct op *op;
        const char *id;
        struct vault_row row;
        struct vault_checkup *ret;
};

static int vault_ask_health(struct op *op, struct runtime *rt, const struct vault_row *row,
                            struct vault_checkup *ret, json_t *guidance, struct err *err)
{
        CLEAN(json_decrefp) json_t *doc = NULL;
        const struct vault_provider *p;
        struct vault_health h = { 0 };
        struct vault_config config = { row->id, row->provider, row->status, NULL };
        int r = vault_provider_find(rt, row->provider, &p, err);

        if (r < 0)
                return r;
        (void)json_parse(row->config, strlen(row->config), &doc, NULL);
        config.config = doc;
        r = p->health(op, &config, &h, err);
        if (r < 0)
                return r;
        bool ok = streq(h.status, "ok");
        ret->status = streq(h.status, "error")                   ? "error"
                      : ok && !streq(row->status, VAULT_WARNING) ? VAULT_READY
                                                                 : VAULT_WARNING;
        ret->message = arena_strdup(op->arena, h.message);
        ret->code = ok ? "provider_ready" : "provider_needs_attention";
        json_array_extend(guidance, h.warnings);
        json_array_extend(guidance, h.guidance);
        return 0;
}

static int vault_keep_health(struct db *db, void *arg, struct err *err)
{
        struct checkup *q = arg;
        struct vault_row row;
        int r = vault_configs_get(db, q->id, q->op->arena, &row, err);

        if (r < 0)
                return r;
        row.health_status = q->ret->status;
        row.health_message = q->ret->message;
        row.health_details = q->ret->details;
        row.health_checked_at = q->ret->checked_at;
        r = vault_configs_update(db, &row, row.updated_at, err);
        return r < 0 ? r
                     : audit(db, q->op, q->row.company_id, "secret_provider_config.health_checked",
                             "secret_provider_config", q->id,
                             json_pack("{s:s, s:s, s:s}", "provider", q->row.provider, "status",
                                       q->ret->status, "code", q->ret->code),
                             err);
}

int vault_check_health(struct op *op, struct runtime *rt, const char *id, struct vault_checkup *ret,
                       struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        CLEAN(json_decrefp) json_t *guidance = json_array();
        CLEAN(json_decrefp) json_t *details = NULL;
        struct checkup q = { .op = op, .id = id, .ret = ret };
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = vault_load(db, op, id, true, &q.row, err);
        store_read_end(&db);
        if (r < 0)
                return r;
        if (streq(q.row.status, VAULT_DISABLED))
                *ret = (struct vault_checkup){ .status = VAULT_DISABLED,
                                               .message = "Provider vault is disabled.",
                                               .code = "disabled" };
        else if (streq(q.row.status, VAULT_SOON))
                *ret = (struct vault_checkup){
                        .status = VAULT_SOON,
                        .message = "Provider vault runtime is locked while coming soon.",
                        .code = "runtime_locked"
                };
        else
                r = vault_ask_health(op, rt, &q.row, ret, guidance, err);
        if (r < 0)
                return r;
        details = json_pack("{s:s, s:s}", "code", ret->code, "message", ret->message);
        if (json_array_size(guidance) > 0)
                json_object_set(details, "guidance", guidance);
        ret->details = json_to_arena(op->arena, details);
        ret->provider = q.row.provider;
        ret->checked_at = clock_now_us();
        FAULT("vault.health.before");
        r = store_write(op, rt->store, vault_keep_health, &q, err);
        FAULT("vault.health.after");
        return r;
}
