/* Vaults and their providers, and taking up what a vault holds. */
#include "api/api.h"
#include "api/encode.h"
#include "codec/check.h"
#include "core/secrets/secret_draft.h"
#include "core/secrets/vault.h"

static int show_vault(void *ctx, const struct vault_row *row)
{
        encode_row(ctx, &vault_table, row);
        return 0;
}

static int list_vaults(struct call *c, struct err *err)
{
        return call_list_end(c,
                             vault_list(c->op, c->rt, c->params[0], show_vault, call_list(c), err));
}

/* Newer clients can look for vaults in an account. We only know the ones that were configured. */
static int discover_vaults(struct call *c, struct err *err)
{
        int r = secret_may(c->op, c->rt, c->params[0], false, err);

        return r < 0 ? r
                     : err_set(err, ERR_UNPROCESSABLE,
                               "Berth does not look for vaults. Create a provider vault with the "
                               "region and names that are yours, then preview an import from it.");
}

static int answer_vault(struct call *c, int r, const struct vault_row *row)
{
        if (r >= 0)
                encode_row(call_json(c), &vault_table, row);
        return r;
}

static int decode_vault(struct call *call, struct vault_spec *ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        CLEAN(json_decrefp) json_t *none = json_object();
        CLEAN(json_decrefp) json_t *normal = NULL;
        struct arena *a = call->op->arena;
        const char *problem = NULL;

        check_init(&c, call->body);
        ret->provider = check_enum(&c, "provider", CHECK_REQUIRED, secret_providers);
        ret->display_name = arena_strdup(
                a, check_string(&c, "displayName", CHECK_REQUIRED | CHECK_TRIM, 1, 120));
        ret->status = check_enum(&c, "status", CHECK_OPTIONAL, vault_statuses);
        ret->is_default = check_bool(&c, "isDefault", CHECK_OPTIONAL, false);
        json_t *config = check_record(&c, "config", CHECK_OPTIONAL);
        if (ret->provider) {
                if (!ret->status)
                        ret->status = vault_first_status(ret->provider);
                vault_check_config(&c, "config", ret->provider, config ? config : none, &normal);
                problem = vault_check_status(ret->provider, ret->status, ret->is_default, a);
        }
        if (problem)
                check_custom(&c, streq(ret->status, VAULT_DISABLED) ? "isDefault" : "status",
                             problem);
        if (normal)
                ret->config = json_to_arena(a, normal);
        return check_end(&c, err);
}

static int create_vault(struct call *c, struct err *err)
{
        struct vault_spec spec = { 0 };
        struct vault_row row;
        int r = secret_may(c->op, c->rt, c->params[0], true, err);

        if (r >= 0)
                r = decode_vault(c, &spec, err);
        if (r >= 0)
                r = vault_create(c->op, c->rt, c->params[0], &spec, &row, err);
        return answer_vault(c, r, &row);
}

static int show_one_vault(struct call *c, struct err *err)
{
        struct vault_row row;

        return answer_vault(c, vault_get(c->op, c->rt, c->params[0], &row, err), &row);
}

static int disable_vault(struct call *c, struct err *err)
{
        struct vault_row row;

        return answer_vault(c, vault_disable(c->op, c->rt, c->params[0], &row, err), &row);
}

static int make_vault_default(struct call *c, struct err *err)
{
        struct vault_row row;

        return answer_vault(c, vault_set_default(c->op, c->rt, c->params[0], &row, err), &row);
}

static int update_vault(struct call *c, struct err *err)
{
        CLEAN(check_done) struct check body = { 0 };
        struct vault_change change = { 0 };
        struct vault_row row;
        int r = access_board(c->op->actor, err);

        if (r < 0)
                return r;
        check_init(&body, c->body);
        change.display_name =
                arena_strdup(c->op->arena, check_string(&body, "displayName", CHECK_TRIM, 1, 120));
        change.status = check_enum(&body, "status", CHECK_OPTIONAL, vault_statuses);
        change.has_default = check_has(&body, "isDefault");
        change.is_default = check_bool(&body, "isDefault", CHECK_OPTIONAL, false);
        change.config = check_record(&body, "config", CHECK_OPTIONAL);
        if (change.config)
                vault_check_any_config(&body, "config", change.config);
        r = check_end(&body, err);
        if (r >= 0)
                r = vault_update(c->op, c->rt, c->params[0], &change, &row, err);
        return answer_vault(c, r, &row);
}

/* Providers, and health */

static int list_providers(struct call *c, struct err *err)
{
        struct jw *w = call_json(c);
        int r = secret_may(c->op, c->rt, c->params[0], false, err);

        if (r < 0)
                return r;
        jw_array(w);
        for (size_t i = 0; secret_providers[i]; i++) {
                const struct vault_provider *p;

                if (vault_provider_find(c->rt, secret_providers[i], &p, NULL) < 0)
                        continue;
                jw_object(w);
                jw_kstring(w, "id", p->key);
                jw_kstring(w, "label", p->label);
                jw_kbool(w, "requiresExternalRef", !p->keeps_values && p->keeps_references);
                jw_kbool(w, "supportsManagedValues", p->keeps_values);
                jw_kbool(w, "supportsExternalReferences", p->keeps_references);
                jw_kbool(w, "configured", p->is_configured());
                jw_object_end(w);
        }
        jw_array_end(w);
        return 0;
}

/* The state of each provider without a vault. */
static int show_providers_health(struct call *c, struct err *err)
{
        struct jw *w = call_json(c);
        int r = secret_may(c->op, c->rt, c->params[0], false, err);

        if (r < 0)
                return r;
        jw_object(w);
        jw_key(w, "providers");
        jw_array(w);
        for (size_t i = 0; secret_providers[i]; i++) {
                struct vault_config config = { .provider = secret_providers[i] };
                struct vault_health h = { 0 };
                const struct vault_provider *p;

                if (vault_provider_find(c->rt, secret_providers[i], &p, NULL) < 0)
                        continue;
                r = p->health(c->op, &config, &h, err);
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
        }
        jw_array_end(w);
        jw_object_end(w);
        return 0;
}

static int check_vault_health(struct call *c, struct err *err)
{
        struct jw *w = call_json(c);
        struct vault_checkup found;
        int r = vault_check_health(c->op, c->rt, c->params[0], &found, err);

        if (r < 0)
                return r;
        jw_object(w);
        jw_kstring(w, "configId", c->params[0]);
        jw_kstring(w, "provider", found.provider);
        jw_kstring(w, "status", found.status);
        jw_kstring(w, "message", found.message);
        jw_kraw(w, "details", found.details);
        jw_ktime(w, "checkedAt", found.checked_at);
        jw_object_end(w);
        return 0;
}

/* Importing */

static void write_conflicts(struct jw *w, const struct vault_import *e, struct arena *a)
{
        const struct {
                bool is_there;
                const char *type, *message, *id;
        } conflicts[] = {
                { e->same_reference, "exact_reference",
                  "An existing secret already links this exact provider reference.",
                  e->same_reference },
                { e->same_name, "name", arena_printf(a, "Secret name already exists: %s", e->name),
                  e->same_name },
                { e->same_key, "key",
                  arena_printf(a, "Secret key already exists: %s", e->key ? e->key : ""),
                  e->same_key },
                { e->refusal, "provider_guardrail", e->refusal, NULL },
        };

        jw_key(w, "conflicts");
        jw_array(w);
        for (size_t i = 0; i < ARRAY_LEN(conflicts); i++) {
                if (!conflicts[i].is_there)
                        continue;
                jw_object(w);
                jw_kstring(w, "type", conflicts[i].type);
                jw_kstring(w, "message", conflicts[i].message);
                if (conflicts[i].id)
                        jw_kstring(w, "existingSecretId", conflicts[i].id);
                jw_object_end(w);
        }
        jw_array_end(w);
}

static int preview_import(struct call *c, struct err *err)
{
        CLEAN(check_done) struct check body = { 0 };
        struct arena *a = c->op->arena;
        struct vault_page page = { 0 };
        struct vault_imports found;
        struct jw *w = call_json(c);
        bool has_size;
        int r = vault_may_import(c->op, c->rt, c->params[0], err);

        if (r < 0)
                return r;
        check_init(&body, c->body);
        const char *config_id =
                arena_strdup(a, check_uuid(&body, "providerConfigId", CHECK_REQUIRED));
        page.query = arena_strtrim(a, check_string(&body, "query", CHECK_NULLABLE, 0, 200));
        page.next_token = check_string(&body, "nextToken", CHECK_NULLABLE, 0, 4096);
        page.page_size = check_int(&body, "pageSize", CHECK_OPTIONAL, 1, 100, &has_size);
        if (!has_size)
                page.page_size = 50;
        r = check_end(&body, err);
        if (r >= 0)
                r = vault_import_preview(c->op, c->rt, c->params[0], config_id, &page, &found, err);
        if (r < 0)
                return r;
        jw_object(w);
        jw_kstring(w, "providerConfigId", found.config_id);
        jw_kstring(w, "provider", found.provider);
        jw_kstring(w, "nextToken", found.next_token);
        jw_key(w, "candidates");
        jw_array(w);
        for (const struct vault_import *e = found.list; e < found.list + found.n; e++) {
                jw_object(w);
                jw_kstring(w, "externalRef", e->ref);
                jw_kstring(w, "remoteName", e->remote_name);
                jw_kstring(w, "name", e->name);
                jw_kstring(w, "key", e->key);
                jw_kstring(w, "providerVersionRef", e->version_ref);
                jw_kraw(w, "providerMetadata", e->metadata ? e->metadata : "null");
                jw_kstring(w, "status", e->status);
                jw_kbool(w, "importable", streq(e->status, "ready"));
                write_conflicts(w, e, a);
                jw_object_end(w);
        }
        jw_array_end(w);
        jw_object_end(w);
        return 0;
}

static void decode_import(struct check *body, size_t i, json_t *item, struct arena *a,
                          struct vault_import *ret)
{
        struct check n;

        check_nested_item(&n, body, "secrets", i, item);
        ret->ref = arena_strtrim(a, check_string(&n, "externalRef", CHECK_REQUIRED, 1, 2048));
        const char *name = check_string(&n, "name", CHECK_NULLABLE, 0, 160);
        const char *key = check_string(&n, "key", CHECK_NULLABLE, 0, 120);
        ret->description =
                arena_strtrim(a, check_string(&n, "description", CHECK_NULLABLE, 0, 500));
        ret->version_ref = check_string(&n, "providerVersionRef", CHECK_NULLABLE, 0, 0);
        (void)check_record(&n, "providerMetadata", CHECK_NULLABLE);
        if (!ret->ref) {
                ret->ref = "";
                check_custom(&n, "externalRef", "Required");
        }
        ret->name = arena_strtrim(a, name);
        if (!ret->name)
                ret->name = vault_name_of(ret->ref);
        ret->key = key && *key ? key : NULL;
}

static int commit_import(struct call *c, struct err *err)
{
        CLEAN(check_done) struct check body = { 0 };
        struct vault_imports wanted = { 0 };
        struct arena *a = c->op->arena;
        struct jw *w = call_json(c);
        int64_t imported = 0, skipped = 0, failed = 0;
        json_t *rows, *item;
        size_t i;
        int r = vault_may_import(c->op, c->rt, c->params[0], err);

        if (r < 0)
                return r;
        check_init(&body, c->body);
        wanted.config_id = arena_strdup(a, check_uuid(&body, "providerConfigId", CHECK_REQUIRED));
        rows = check_array(&body, "secrets", CHECK_REQUIRED);
        if (rows)
                check_array_size(&body, "secrets", rows, 1, 100);
        if (!check_failed(&body)) {
                wanted.n = json_array_size(rows);
                wanted.list = arena_alloc(a, wanted.n * sizeof(*wanted.list));
                json_array_foreach(rows, i, item) decode_import(&body, i, item, a, &wanted.list[i]);
        }
        r = check_end(&body, err);
        if (r >= 0)
                r = vault_import_commit(c->op, c->rt, c->params[0], &wanted, err);
        if (r < 0)
                return r;
        jw_object(w);
        jw_kstring(w, "providerConfigId", wanted.config_id);
        jw_kstring(w, "provider", wanted.provider);
        jw_key(w, "results");
        jw_array(w);
        for (const struct vault_import *e = wanted.list; e < wanted.list + wanted.n; e++) {
                imported += streq(e->status, "imported");
                skipped += streq(e->status, "skipped");
                failed += streq(e->status, "error");
                jw_object(w);
                jw_kstring(w, "externalRef", e->ref);
                jw_kstring(w, "name", e->name);
                jw_kstring(w, "key", e->key);
                jw_kstring(w, "status", e->status);
                jw_kstring(w, "reason", e->reason);
                jw_kstring(w, "secretId", e->secret_id);
                write_conflicts(w, e, a);
                jw_object_end(w);
        }
        jw_array_end(w);
        jw_kint(w, "importedCount", imported);
        jw_kint(w, "skippedCount", skipped);
        jw_kint(w, "errorCount", failed);
        jw_object_end(w);
        return 0;
}

const struct route routes_vaults[] = {
        { "GET", "/api/companies/:companyId/secret-providers", .fn = list_providers },
        { "GET", "/api/companies/:companyId/secret-providers/health", .fn = show_providers_health,
          .flags = ROUTE_WAITS },
        { "GET", "/api/companies/:companyId/secret-provider-configs", .fn = list_vaults },
        { "POST", "/api/companies/:companyId/secret-provider-configs", .fn = create_vault,
          .status = 201 },
        { "POST", "/api/companies/:companyId/secret-provider-configs/discovery/preview",
          .fn = discover_vaults, .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "GET", "/api/secret-provider-configs/:id", .fn = show_one_vault },
        { "PATCH", "/api/secret-provider-configs/:id", .fn = update_vault },
        { "DELETE", "/api/secret-provider-configs/:id", .fn = disable_vault },
        { "POST", "/api/secret-provider-configs/:id/default", .fn = make_vault_default,
          .flags = ROUTE_BODY_FREE },
        { "POST", "/api/secret-provider-configs/:id/health", .fn = check_vault_health,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "POST", "/api/companies/:companyId/secrets/remote-import/preview", .fn = preview_import,
          .flags = ROUTE_WAITS },
        { "POST", "/api/companies/:companyId/secrets/remote-import", .fn = commit_import,
          .flags = ROUTE_WAITS },
        { 0 },
};
