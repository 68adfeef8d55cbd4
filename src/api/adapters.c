/* The kinds of agents: which there are, trying one, and the models it offers. They are files
 * (docs/adapters.md), so nothing is installed or changed here. */
#include <ctype.h>

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

/* The descriptor of the second parameter, for a reader of the company that the first one names. */
static int find_adapter(struct call *c, const struct adapter_descriptor **ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(c->op, c->rt->store, &db, err);

        if (r >= 0)
                r = access_company(db, &c->actor, c->params[0], false, err);
        *ret = adapter_find(c->params[1]);
        return r < 0 || *ret
                       ? r
                       : err_set(err, ERR_UNPROCESSABLE, "Unknown adapter type: %s", c->params[1]);
}

/* Descriptors have none: a model is chosen by its name. */
static int list_model_profiles(struct call *c, struct err *err)
{
        const struct adapter_descriptor *d;
        int r = find_adapter(c, &d, err);

        if (r >= 0)
                buf_puts(&c->out, "[]");
        return r;
}

/* The model of an agent that names none, where the descriptor says so; null: the program decides.
 */
static int detect_model(struct call *c, struct err *err)
{
        const struct adapter_descriptor *d;
        const json_t *providers;
        const char *model;
        int r = find_adapter(c, &d, err);

        if (r < 0)
                return r;
        model = json_get_string(d->json, "defaultModel");
        providers = json_object_get(d->json, "provider");
        if (!model) {
                buf_puts(&c->out, "null");
                return 0;
        }
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "model", model);
        jw_kstring(w, "provider", json_get_string(json_array_get(providers, 0), "is"));
        jw_kstring(w, "source", "adapter_default");
        jw_object_end(w);
        return 0;
}

/* -- What an agent's configuration may have --------------------------------------------------- */

#define CONFIG_PATH "config."

/* The names after `config.` in every text of a descriptor: its conditions, paths and templates. */
static void collect_fields(const json_t *value, json_t *fields)
{
        const char *at = json_string_value(value), *key;
        json_t *one;
        size_t i;

        while (at && (at = strstr(at, CONFIG_PATH))) {
                size_t n;

                at += strlen(CONFIG_PATH);
                for (n = 0; isalnum((unsigned char)at[n]); n++)
                        ;
                if (n > 0)
                        json_object_setn_new(fields, at, n, json_true());
        }
        json_array_foreach((json_t *)value, i, one) collect_fields(one, fields);
        json_object_foreach((json_t *)value, key, one) collect_fields(one, fields);
}

static void write_models(struct jw *w, const struct adapter_descriptor *d)
{
        json_t *one;
        size_t i;

        jw_key(w, "options");
        jw_array(w);
        json_array_foreach(json_object_get(d->json, "models"), i, one)
        {
                jw_object(w);
                jw_kstring(w, "value", json_get_string(one, "id"));
                jw_kstring(w, "label", json_get_string(one, "label"));
                jw_object_end(w);
        }
        jw_array_end(w);
}

static void write_field(struct jw *w, const struct adapter_descriptor *d, const char *name)
{
        size_t n = strlen(name);
        bool is_model = streq(name, "model");
        bool is_time = n > 3 && streq(name + n - 3, "Sec");

        jw_object(w);
        jw_kstring(w, "key", name);
        jw_kstring(w, "label", name);
        jw_kstring(w, "type", is_model ? "combobox" : is_time ? "number" : "text");
        if (is_model)
                write_models(w, d);
        jw_object_end(w);
}

static int get_config_schema(struct call *c, struct err *err)
{
        /* Berth reads these itself, whatever the descriptor says. */
        static const char *const always[] = { "model",      "command",  "cwd",
                                              "timeoutSec", "graceSec", "instructionsFilePath" };
        CLEAN(json_decrefp) json_t *fields = json_object();
        const struct adapter_descriptor *d = adapter_find(c->params[0]);
        const char *name;
        json_t *one;
        int r = access_board(&c->actor, err);

        if (r < 0)
                return r;
        if (!d)
                return err_set(err, ERR_NOT_FOUND, "Adapter not found");
        for (size_t i = 0; i < ARRAY_LEN(always); i++)
                json_object_set_new(fields, always[i], json_true());
        collect_fields(d->json, fields);
        struct jw *w = call_json(c);
        jw_object(w);
        jw_key(w, "fields");
        jw_array(w);
        json_object_foreach(fields, name, one) write_field(w, d, name);
        jw_array_end(w);
        jw_object_end(w);
        return 0;
}

const struct route routes_adapters[] = {
        { "GET", "/api/adapters", .fn = list_adapters },
        { "GET", "/api/adapters/:type", .fn = get_adapter },
        { "POST", "/api/companies/:companyId/adapters/:type/test-environment",
          .fn = test_environment, .flags = ROUTE_BODY_FREE | ROUTE_WAITS | ROUTE_RIGHTS_FIRST },
        { "GET", "/api/adapters/:type/config-schema", .fn = get_config_schema },
        { "GET", "/api/companies/:companyId/adapters/:type/models", .fn = list_models },
        { "GET", "/api/companies/:companyId/adapters/:type/model-profiles",
          .fn = list_model_profiles },
        { "GET", "/api/companies/:companyId/adapters/:type/detect-model", .fn = detect_model },
        { 0 },
};
