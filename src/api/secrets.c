/* Secrets of a company. No answer holds a value. */
#include "api/api.h"
#include "api/encode.h"
#include "core/secrets/secret.h"

#define MISSING         "Secret not found"
#define MISSING_COMPANY "Company not found"

static int show(void *ctx, const struct secret *secret)
{
        encode_secret(ctx, secret);
        return 0;
}

static int list_secrets(struct call *c, struct err *err)
{
        const char *company;
        struct jw w;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r < 0)
                return r;
        call_list(c, &w);
        return call_list_end(&w, secret_list(c->op, c->rt, company, show, &w, err));
}

static int encode_one(struct call *c, const struct secret *secret)
{
        struct jw w;

        jw_init(&w, &c->out);
        encode_secret(&w, secret);
        return 0;
}

static int create(struct call *c, struct err *err)
{
        struct secret secret;
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = secret_create(c->op, c->rt, company, c->body, &secret, err);
        c->status = 201;
        return r < 0 ? r : encode_one(c, &secret);
}

static int get(struct call *c, struct err *err)
{
        struct secret secret;
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = secret_get(c->op, c->rt, id, &secret, err);
        return r < 0 ? r : encode_one(c, &secret);
}

static int rotate(struct call *c, struct err *err)
{
        struct secret secret;
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = secret_rotate(c->op, c->rt, id, c->body, &secret, err);
        return r < 0 ? r : encode_one(c, &secret);
}

static int update(struct call *c, struct err *err)
{
        struct secret secret;
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = secret_update(c->op, c->rt, id, c->body, call_query_flag(c, "force"), &secret,
                                  err);
        return r < 0 ? r : encode_one(c, &secret);
}

static int remove_secret(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = secret_remove(c->op, c->rt, id, call_query_flag(c, "force"), err);
        if (r >= 0)
                buf_puts(&c->out, "{\"ok\":true}");
        return r;
}

static int show_usage(void *ctx, const struct secret_usage *usage)
{
        encode_secret_usage(ctx, usage);
        return 0;
}

static int usage(struct call *c, struct err *err)
{
        const char *id;
        struct jw w;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r < 0)
                return r;
        jw_init(&w, &c->out);
        jw_object(&w);
        jw_kstring(&w, "secretId", id);
        jw_key(&w, "bindings");
        jw_array(&w);
        r = secret_list_usage(c->op, c->rt, id, show_usage, &w, err);
        jw_array_end(&w);
        jw_object_end(&w);
        return r;
}

static int show_version(void *ctx, const struct secret_version *version)
{
        encode_secret_version(ctx, version);
        return 0;
}

static int versions(struct call *c, struct err *err)
{
        const char *id;
        struct jw w;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r < 0)
                return r;
        call_list(c, &w);
        return call_list_end(&w, secret_list_versions(c->op, c->rt, id, show_version, &w, err));
}

static int show_event(void *ctx, const struct secret_event *event)
{
        encode_secret_event(ctx, event);
        return 0;
}

static int events(struct call *c, struct err *err)
{
        const char *id;
        struct jw w;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r < 0)
                return r;
        call_list(c, &w);
        return call_list_end(&w, secret_list_events(c->op, c->rt, id, show_event, &w, err));
}

static int import_sealed(struct call *c, struct err *err)
{
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        return r < 0 ? r : secret_import_sealed(c->op, c->rt, company, c->body, &c->out, err);
}

static int rekey(struct call *c, struct err *err)
{
        int64_t count;
        struct jw w;
        int r = secret_rekey(c->op, c->rt, &count, err);

        if (r < 0)
                return r;
        jw_init(&w, &c->out);
        jw_object(&w);
        jw_kbool(&w, "ok", true);
        jw_kint(&w, "resealedCount", count);
        jw_object_end(&w);
        return 0;
}

const struct route routes_secrets[] = {
        { "GET", "/api/companies/:companyId/secrets", list_secrets, 0 },
        { "POST", "/api/companies/:companyId/secrets", create, ROUTE_OF_COMPANY },
        { "POST", "/api/companies/:companyId/secrets/import-sealed", import_sealed,
          ROUTE_OF_COMPANY },
        { "GET", "/api/secrets/:id", get, 0 },
        { "PATCH", "/api/secrets/:id", update, ROUTE_OF_SECRET },
        { "DELETE", "/api/secrets/:id", remove_secret, ROUTE_OF_SECRET },
        { "POST", "/api/secrets/:id/rotate", rotate, ROUTE_OF_SECRET },
        { "GET", "/api/secrets/:id/usage", usage, 0 },
        { "GET", "/api/secrets/:id/versions", versions, 0 },
        { "GET", "/api/secrets/:id/access-events", events, 0 },
        { "POST", "/api/instance/secrets/rekey", rekey, ROUTE_BODY_FREE },
        { NULL, NULL, NULL, 0 },
};
