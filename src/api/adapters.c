/* The kinds of agents: which there are, trying one, and the models it offers. They are files
 * (docs/adapters.md), so nothing is installed or changed here. */
#include "api/thing.h"
#include "core/adapters/adapter_descriptor.h"
#include "core/adapters/adapter_run.h"
#include "core/runs/adapter_test.h"

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
        struct jw *w = call_list(c);

        for (size_t i = 0; (d = adapter_at(i)); i++)
                write_adapter(w, d);
        return call_list_end(c, access_board(&c->actor, err));
}

static int get_adapter(struct call *c, struct err *err)
{
        const struct adapter_descriptor *d = adapter_find(c->params[0]);
        int r = access_board(&c->actor, err);

        if (r < 0)
                return r;
        if (!d)
                return err_set(err, ERR_NOT_FOUND, "Adapter not found");
        write_adapter(call_json(c), d);
        return 0;
}

static int test_environment(struct call *c, struct err *err)
{
        int r = access_authenticated(&c->actor, err);

        if (r >= 0)
                r = call_check_thing(c, err);
        return r < 0 ? r
                     : adapter_test(c->op, c->rt, c->params[0], c->params[1], c->body, &c->out,
                                    err);
}

static int models(struct call *c, struct err *err)
{
        return adapter_models(c->op, c->rt, c->params[0], c->params[1],
                              call_query(c, "environmentId"), &c->out, err);
}

const struct route routes_adapters[] = {
        { "GET", "/api/adapters", .fn = list_adapters },
        { "GET", "/api/adapters/:type", .fn = get_adapter },
        { "POST", "/api/companies/:companyId/adapters/:type/test-environment",
          .fn = test_environment, .flags = ROUTE_BODY_FREE | ROUTE_WAITS | ROUTE_RIGHTS_FIRST },
        { "GET", "/api/companies/:companyId/adapters/:type/models", .fn = models },
        { 0 },
};
