/* Vaults and their providers, and taking up what a vault holds. */
#include "api/api.h"
#include "api/encode.h"
#include "core/secrets/vault.h"

#define MISSING         "Provider vault not found"
#define MISSING_COMPANY "Company not found"

typedef int (*company_write_fn)(struct op *op, struct runtime *rt, const char *company_id,
                                struct buf *ret_json, struct err *err);
typedef int (*company_body_fn)(struct op *op, struct runtime *rt, const char *company_id,
                               json_t *body, struct buf *ret_json, struct err *err);
typedef int (*vault_act_fn)(struct op *op, struct runtime *rt, const char *id,
                            struct vault_row *ret, struct err *err);

static int write_for_company(struct call *c, company_write_fn fn, struct err *err)
{
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        return r < 0 ? r : fn(c->op, c->rt, company, &c->out, err);
}

static int providers(struct call *c, struct err *err)
{
        return write_for_company(c, vault_write_providers, err);
}

static int provider_health(struct call *c, struct err *err)
{
        return write_for_company(c, vault_write_health, err);
}

static int import_for_company(struct call *c, company_body_fn fn, struct err *err)
{
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        return r < 0 ? r : fn(c->op, c->rt, company, c->body, &c->out, err);
}

static int import_preview(struct call *c, struct err *err)
{
        return import_for_company(c, vault_import_preview, err);
}

static int import_commit(struct call *c, struct err *err)
{
        return import_for_company(c, vault_import_commit, err);
}

static int show(void *ctx, const struct vault_row *row)
{
        encode_vault(ctx, row);
        return 0;
}

static int list(struct call *c, struct err *err)
{
        const char *company;
        struct jw w;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r < 0)
                return r;
        call_list(c, &w);
        return call_list_end(&w, vault_list(c->op, c->rt, company, show, &w, err));
}

static int hide(void *ctx UNUSED, const struct vault_row *row UNUSED)
{
        return 0;
}

/* Newer clients can look for vaults in an account. We only know those that somebody told us of. */
static int discover(struct call *c, struct err *err)
{
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = vault_list(c->op, c->rt, company, hide, NULL, err);
        return r < 0 ? r
                     : err_set(err, ERR_UNPROCESSABLE,
                               "Berth does not look for vaults. Create a provider vault with the "
                               "region and names that are yours, then preview an import from it.");
}

static int encode_one(struct call *c, const struct vault_row *row)
{
        struct jw w;

        jw_init(&w, &c->out);
        encode_vault(&w, row);
        return 0;
}

static int create(struct call *c, struct err *err)
{
        struct vault_row row;
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = vault_create(c->op, c->rt, company, c->body, &row, err);
        c->status = 201;
        return r < 0 ? r : encode_one(c, &row);
}

static int act(struct call *c, vault_act_fn fn, struct err *err)
{
        struct vault_row row;
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = fn(c->op, c->rt, id, &row, err);
        return r < 0 ? r : encode_one(c, &row);
}

static int get(struct call *c, struct err *err)
{
        return act(c, vault_get, err);
}

static int disable(struct call *c, struct err *err)
{
        return act(c, vault_disable, err);
}

static int set_default(struct call *c, struct err *err)
{
        return act(c, vault_set_default, err);
}

static int update(struct call *c, struct err *err)
{
        struct vault_row row;
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = vault_update(c->op, c->rt, id, c->body, &row, err);
        return r < 0 ? r : encode_one(c, &row);
}

static int health(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        return r < 0 ? r : vault_check_health(c->op, c->rt, id, &c->out, err);
}

const struct route routes_vaults[] = {
        { "GET", "/api/companies/:companyId/secret-providers", providers, 0 },
        { "GET", "/api/companies/:companyId/secret-providers/health", provider_health,
          ROUTE_OF_COMPANY },
        { "GET", "/api/companies/:companyId/secret-provider-configs", list, 0 },
        { "POST", "/api/companies/:companyId/secret-provider-configs", create, 0 },
        { "POST", "/api/companies/:companyId/secret-provider-configs/discovery/preview", discover,
          ROUTE_BODY_FREE | ROUTE_OF_COMPANY },
        { "GET", "/api/secret-provider-configs/:id", get, 0 },
        { "PATCH", "/api/secret-provider-configs/:id", update, 0 },
        { "DELETE", "/api/secret-provider-configs/:id", disable, 0 },
        { "POST", "/api/secret-provider-configs/:id/default", set_default, ROUTE_BODY_FREE },
        { "POST", "/api/secret-provider-configs/:id/health", health,
          ROUTE_BODY_FREE | ROUTE_OF_VAULT },
        { "POST", "/api/companies/:companyId/secrets/remote-import/preview", import_preview,
          ROUTE_OF_COMPANY },
        { "POST", "/api/companies/:companyId/secrets/remote-import", import_commit,
          ROUTE_OF_COMPANY },
        { NULL, NULL, NULL, 0 },
};
