/* Checks the health of providers and vaults. */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/secrets/secret_draft.h"
#include "core/secrets/vault.h"

struct checkup {
        struct op *op;
        struct runtime *rt;
        const char *id;
        struct vault_row row;
        const char *status, *message, *code;
        json_t *guidance; /* owned; NULL: none */
        int64_t checked_at;
};

static int load(struct db *db, void *arg, struct err *err)
{
        struct checkup *q = arg;
        int r = access_board(q->op->actor, err);

        if (r >= 0)
                r = vault_configs_get(db, q->id, q->op->arena, &q->row, err);
        return r < 0 ? r : access_company(db, q->op->actor, q->row.company_id, true, err);
}

static int ask_provider(struct checkup *q, struct err *err)
{
        const struct vault_provider *p;
        struct vault_health h = { 0 };
        struct vault_config config = { q->row.id, q->row.provider, q->row.status, NULL };
        json_t *doc = NULL;
        bool ok;
        int r = vault_provider_find(q->rt, q->row.provider, &p, err);

        if (r < 0)
                return r;
        (void)json_parse(q->row.config, strlen(q->row.config), &doc, NULL);
        config.config = doc;
        r = p->health(q->op, &config, &h, err);
        json_decref(doc);
        if (r < 0)
                return r;
        ok = streq(h.status, "ok");
        q->status = streq(h.status, "error")                     ? "error"
                    : ok && !streq(q->row.status, VAULT_WARNING) ? VAULT_READY
                                                                 : VAULT_WARNING;
        q->message = arena_strdup(q->op->arena, h.message);
        q->code = ok ? "provider_ready" : "provider_needs_attention";
        q->guidance = json_array();
        json_array_extend(q->guidance, h.warnings);
        json_array_extend(q->guidance, h.guidance);
        return 0;
}

static int examine(struct checkup *q, struct err *err)
{
        if (streq(q->row.status, VAULT_DISABLED)) {
                q->status = VAULT_DISABLED;
                q->message = "Provider vault is disabled.";
                q->code = "disabled";
        } else if (streq(q->row.status, VAULT_SOON)) {
                q->status = VAULT_SOON;
                q->message = "Provider vault runtime is locked while coming soon.";
                q->code = "runtime_locked";
        } else {
                return ask_provider(q, err);
        }
        return 0;
}

static json_t *details_of(const struct checkup *q)
{
        json_t *details = json_pack("{s:s, s:s}", "code", q->code, "message", q->message);

        if (q->guidance && json_array_size(q->guidance) > 0)
                json_object_set(details, "guidance", q->guidance);
        return details;
}

static int keep(struct db *db, void *arg, struct err *err)
{
        struct checkup *q = arg;
        json_t *details = details_of(q);
        struct vault_row row;
        int64_t seen;
        int r = vault_configs_get(db, q->id, q->op->arena, &row, err);

        seen = r < 0 ? 0 : row.updated_at;
        row.health_status = q->status;
        row.health_message = q->message;
        row.health_details = json_to_arena(q->op->arena, details);
        row.health_checked_at = q->checked_at;
        json_decref(details);
        if (r >= 0)
                r = vault_configs_update(db, &row, seen, err);
        return r < 0 ? r
                     : audit(db, q->op, q->row.company_id, "secret_provider_config.health_checked",
                             "secret_provider_config", q->id,
                             json_pack("{s:s, s:s, s:s}", "provider", q->row.provider, "status",
                                       q->status, "code", q->code),
                             err);
}

int vault_check_health(struct op *op, struct runtime *rt, const char *id, struct buf *ret_json,
                       struct err *err)
{
        struct checkup q = { .op = op, .rt = rt, .id = id };
        json_t *details;
        struct jw w;
        int r = store_read(op, rt->store, load, &q, err);

        if (r >= 0)
                r = examine(&q, err);
        if (r >= 0) {
                q.checked_at = clock_now_us();
                FAULT("vault.health.before");
                r = store_write(op, rt->store, keep, &q, err);
                FAULT("vault.health.after");
        }
        if (r >= 0) {
                details = details_of(&q);
                jw_init(&w, ret_json);
                jw_object(&w);
                jw_kstring(&w, "configId", id);
                jw_kstring(&w, "provider", q.row.provider);
                jw_kstring(&w, "status", q.status);
                jw_kstring(&w, "message", q.message);
                jw_kvalue(&w, "details", details);
                jw_ktime(&w, "checkedAt", q.checked_at);
                jw_object_end(&w);
                json_decref(details);
        }
        json_decref(q.guidance);
        return r;
}

/* Providers */

struct asking {
        struct op *op;
        const char *id;
};

static int guard(struct db *db, void *arg, struct err *err)
{
        struct asking *q = arg;

        return secret_guard(db, q->op, q->id, false, err);
}

int vault_write_providers(struct op *op, struct runtime *rt, const char *company_id,
                          struct buf *ret_json, struct err *err)
{
        struct asking q = { op, company_id };
        struct jw w;
        int r = store_read(op, rt->store, guard, &q, err);

        if (r < 0)
                return r;
        jw_init(&w, ret_json);
        jw_array(&w);
        for (size_t i = 0; secret_providers[i]; i++) {
                const struct vault_provider *p;

                if (vault_provider_find(rt, secret_providers[i], &p, NULL) < 0)
                        continue;
                jw_object(&w);
                jw_kstring(&w, "id", p->key);
                jw_kstring(&w, "label", p->label);
                jw_kbool(&w, "requiresExternalRef", !p->keeps_values && p->keeps_references);
                jw_kbool(&w, "supportsManagedValues", p->keeps_values);
                jw_kbool(&w, "supportsExternalReferences", p->keeps_references);
                jw_kbool(&w, "configured", p->is_configured());
                jw_object_end(&w);
        }
        jw_array_end(&w);
        return 0;
}

static int write_one(struct op *op, const struct vault_provider *p, struct jw *w, struct err *err)
{
        struct vault_config config = { .provider = p->key };
        struct vault_health h = { 0 };
        int r = p->health(op, &config, &h, err);

        if (r < 0)
                return r;
        jw_object(w);
        jw_kstring(w, "provider", p->key);
        jw_kstring(w, "status", h.status);
        jw_kstring(w, "message", h.message);
        if (h.warnings)
                jw_kvalue(w, "warnings", h.warnings);
        if (h.guidance)
                jw_kvalue(w, "backupGuidance", h.guidance);
        if (h.details)
                jw_kvalue(w, "details", h.details);
        jw_object_end(w);
        return 0;
}

int vault_write_health(struct op *op, struct runtime *rt, const char *company_id,
                       struct buf *ret_json, struct err *err)
{
        struct asking q = { op, company_id };
        struct jw w;
        int r = store_read(op, rt->store, guard, &q, err);

        if (r < 0)
                return r;
        jw_init(&w, ret_json);
        jw_object(&w);
        jw_key(&w, "providers");
        jw_array(&w);
        for (size_t i = 0; r >= 0 && secret_providers[i]; i++) {
                const struct vault_provider *p;

                if (vault_provider_find(rt, secret_providers[i], &p, NULL) >= 0)
                        r = write_one(op, p, &w, err);
        }
        jw_array_end(&w);
        jw_object_end(&w);
        return r;
}
