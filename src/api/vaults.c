/* Vaults and their providers, and taking up what a vault holds. */
#include "api/api.h"
#include "api/encode.h"
#include "core/secrets/vault.h"

static int show(void *ctx, const struct vault_row *row)
{
        encode_vault(ctx, row);
        return 0;
}

static int list(struct call *c, struct err *err)
{
        return call_list_end(c, vault_list(c->op, c->rt, c->params[0], show, call_list(c), err));
}

static int hide(void *ctx UNUSED, const struct vault_row *row UNUSED)
{
        return 0;
}

/* Newer clients can look for vaults in an account. We only know the ones that were configured. */
static int discover(struct call *c, struct err *err)
{
        int r = vault_list(c->op, c->rt, c->params[0], hide, NULL, err);

        return r < 0 ? r
                     : err_set(err, ERR_UNPROCESSABLE,
                               "Berth does not look for vaults. Create a provider vault with the "
                               "region and names that are yours, then preview an import from it.");
}

static int answer_vault(struct call *c, int r, const struct vault_row *row)
{
        if (r >= 0)
                encode_vault(call_json(c), row);
        return r;
}

static int create(struct call *c, struct err *err)
{
        struct vault_row row;

        return answer_vault(c, vault_create(c->op, c->rt, c->params[0], c->body, &row, err), &row);
}

static int get(struct call *c, struct err *err)
{
        struct vault_row row;

        return answer_vault(c, vault_get(c->op, c->rt, c->params[0], &row, err), &row);
}

static int disable(struct call *c, struct err *err)
{
        struct vault_row row;

        return answer_vault(c, vault_disable(c->op, c->rt, c->params[0], &row, err), &row);
}

static int set_default(struct call *c, struct err *err)
{
        struct vault_row row;

        return answer_vault(c, vault_set_default(c->op, c->rt, c->params[0], &row, err), &row);
}

static int update(struct call *c, struct err *err)
{
        struct vault_row row;

        return answer_vault(c, vault_update(c->op, c->rt, c->params[0], c->body, &row, err), &row);
}

const struct route routes_vaults[] = {
        { "GET", "/api/companies/:companyId/secret-providers", .write_of = vault_write_providers },
        { "GET", "/api/companies/:companyId/secret-providers/health",
          .write_of = vault_write_health, .flags = ROUTE_WAITS },
        { "GET", "/api/companies/:companyId/secret-provider-configs", .fn = list },
        { "POST", "/api/companies/:companyId/secret-provider-configs", .fn = create,
          .status = 201 },
        { "POST", "/api/companies/:companyId/secret-provider-configs/discovery/preview",
          .fn = discover, .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "GET", "/api/secret-provider-configs/:id", .fn = get },
        { "PATCH", "/api/secret-provider-configs/:id", .fn = update },
        { "DELETE", "/api/secret-provider-configs/:id", .fn = disable },
        { "POST", "/api/secret-provider-configs/:id/default", .fn = set_default,
          .flags = ROUTE_BODY_FREE },
        { "POST", "/api/secret-provider-configs/:id/health", .write_of = vault_check_health,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "POST", "/api/companies/:companyId/secrets/remote-import/preview",
          .take_of = vault_import_preview, .flags = ROUTE_WAITS },
        { "POST", "/api/companies/:companyId/secrets/remote-import", .take_of = vault_import_commit,
          .flags = ROUTE_WAITS },
        { 0 },
};
