/* The kinds of agents: which there are, trying one, and the models it offers. They are files
 * (docs/adapters.md), so nothing is installed or changed here. */
#include "api/api.h"
#include "core/adapters/adapter_descriptor.h"
#include "core/adapters/adapter_run.h"
#include "core/runs/adapter_test.h"

#define MISSING_COMPANY "Company not found"

static void write_adapter(struct jw *w, const struct adapter_descriptor *d)
{
        jw_object(w);
        jw_kstring(w, "type", d->type);
        jw_kstring(w, "label", d->label);
        jw_kstring(w, "source", "builtin");
        jw_kbool(w, "loaded", d->runs);
        jw_kbool(w, "disabled", !d->runs);
        jw_kbool(w, "supportsRemoteExecution", d->is_remote);
        jw_object_end(w);
}

static int list_adapters(struct call *c, struct err *err)
{
        const struct adapter_descriptor *d;
        struct jw w;
        int r = access_board(&c->actor, err);

        if (r < 0)
                return r;
        call_list(c, &w);
        for (size_t i = 0; (d = adapter_at(i)); i++)
                write_adapter(&w, d);
        return call_list_end(&w, 0);
}

static int get_adapter(struct call *c, struct err *err)
{
        const struct adapter_descriptor *d = adapter_find(c->params[0]);
        struct jw w;
        int r = access_board(&c->actor, err);

        if (r < 0)
                return r;
        if (!d)
                return err_set(err, ERR_NOT_FOUND, "Adapter not found");
        jw_init(&w, &c->out);
        write_adapter(&w, d);
        return 0;
}

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
        { "GET", "/api/adapters", list_adapters, 0 },
        { "GET", "/api/adapters/:type", get_adapter, 0 },
        { "POST", "/api/companies/:companyId/adapters/:type/test-environment", test_environment,
          ROUTE_BODY_FREE | ROUTE_OF_COMPANY },
        { "GET", "/api/companies/:companyId/adapters/:type/models", models, 0 },
        { NULL, NULL, NULL, 0 },
};
