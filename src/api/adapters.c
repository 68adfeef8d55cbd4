/* The kinds of agents: which there are, trying one, and the models it offers. They are files
 * (docs/adapters.md), so nothing is installed or changed here. */
#include "api/thing.h"
#include "codec/check.h"
#include "core/adapters/adapter_descriptor.h"
#include "core/adapters/adapter_run.h"
#include "core/runs/adapter_test.h"

static void write_adapter(struct jw *w, const struct adapter_descriptor *d)
{
        CLEAN(json_decrefp) json_t *hosts = adapter_all_hosts(d);

        jw_object(w);
        jw_kstring(w, "type", d->type);
        jw_kstring(w, "label", d->label);
        jw_kstring(w, "source", "builtin");
        jw_kbool(w, "loaded", d->runs);
        jw_kbool(w, "disabled", !d->runs);
        jw_kbool(w, "supportsRemoteExecution", d->is_remote);
        jw_kstring(w, "command", json_get_string(d->json, "command"));
        jw_kvalue(w, "hosts", hosts);
        jw_kstring(w, "npmPackage", json_get_string(json_get_object(d->json, "install"), "npm"));
        jw_kbool(w, "hasTranscript", adapter_has_transcript(d->type));
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
        CLEAN(check_done) struct check k = { 0 };
        struct adapter_test_request req = { .company_id = c->params[0], .type = c->params[1] };
        struct adapter_test_result result;
        int r = access_authenticated(&c->actor, err);

        if (r >= 0)
                r = call_check_thing(c, err);
        if (r < 0)
                return r;
        check_init(&k, c->body);
        json_t *config = check_record(&k, "adapterConfig", CHECK_OPTIONAL);
        req.environment_id =
                arena_strdup(c->op->arena, check_uuid(&k, "environmentId", CHECK_NULLABLE));
        r = check_end(&k, err);
        req.config = config ? json_incref(config) : json_object();
        if (r >= 0)
                r = adapter_test(c->op, c->rt, &req, &result, err);
        json_decref(req.config);
        if (r < 0)
                return r;
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "adapterType", result.type);
        jw_kstring(w, "status", result.status);
        jw_key(w, "checks");
        jw_array(w);
        for (const struct adapter_finding *f = result.findings; f < result.findings + result.n;
             f++) {
                jw_object(w);
                jw_kstring(w, "code", f->code);
                jw_kstring(w, "level", f->level);
                jw_kstring(w, "message", f->message);
                if (f->detail)
                        jw_kstring(w, "detail", f->detail);
                jw_object_end(w);
        }
        jw_array_end(w);
        jw_ktime(w, "testedAt", result.tested_at);
        jw_object_end(w);
        return 0;
}

static int list_models(struct call *c, struct err *err)
{
        const json_t *models = NULL;
        int r = adapter_models(c->op, c->rt, c->params[0], c->params[1],
                               call_query(c, "environmentId"), &models, err);

        if (r >= 0 && models)
                json_put(&c->out, models);
        else if (r >= 0)
                buf_puts(&c->out, "[]");
        return r;
}

const struct route routes_adapters[] = {
        { "GET", "/api/adapters", .fn = list_adapters },
        { "GET", "/api/adapters/:type", .fn = get_adapter },
        { "POST", "/api/companies/:companyId/adapters/:type/test-environment",
          .fn = test_environment, .flags = ROUTE_BODY_FREE | ROUTE_WAITS | ROUTE_RIGHTS_FIRST },
        { "GET", "/api/companies/:companyId/adapters/:type/models", .fn = list_models },
        { 0 },
};
