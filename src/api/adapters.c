/* The kinds of agents: trying one, and the models it offers. */
#include "api/api.h"
#include "core/adapter_run.h"

#define MISSING_COMPANY "Company not found"

static int test_environment(struct call *c, struct err *err)
{
        const char *company;
        int r = access_authenticated(&c->actor, err);

        if (r >= 0)
                r = call_uuid(c, 0, MISSING_COMPANY, &company, err);
        return r < 0 ? r : adapter_test(c->op, c->rt, company, c->params[1], c->body, &c->out, err);
}

static int models(struct call *c, struct err *err)
{
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        return r < 0 ? r
                     : adapter_models(c->op, c->rt, company, c->params[1],
                                      call_query(c, "environmentId"), &c->out, err);
}

const struct route routes_adapters[] = {
        { "POST", "/api/companies/:companyId/adapters/:type/test-environment", test_environment,
          ROUTE_BODY_FREE },
        { "GET", "/api/companies/:companyId/adapters/:type/models", models, 0 },
        { NULL, NULL, NULL, 0 },
};
