/* Secrets of a company. No answer holds a value. */
#include "api/api.h"
#include "api/encode.h"
#include "core/secrets/secret.h"

static int show(void *ctx, const struct secret *secret)
{
        encode_secret(ctx, secret);
        return 0;
}

static int list_secrets(struct call *c, struct err *err)
{
        return call_list_end(c, secret_list(c->op, c->rt, c->params[0], show, call_list(c), err));
}

static int answer_secret(struct call *c, int r, const struct secret *secret)
{
        if (r >= 0)
                encode_secret(call_json(c), secret);
        return r;
}

static int create(struct call *c, struct err *err)
{
        struct secret secret;
        int r = secret_create(c->op, c->rt, c->params[0], c->body, &secret, err);

        return answer_secret(c, r, &secret);
}

static int get(struct call *c, struct err *err)
{
        struct secret secret;

        return answer_secret(c, secret_get(c->op, c->rt, c->params[0], &secret, err), &secret);
}

static int rotate(struct call *c, struct err *err)
{
        struct secret secret;
        int r = secret_rotate(c->op, c->rt, c->params[0], c->body, &secret, err);

        return answer_secret(c, r, &secret);
}

static int update(struct call *c, struct err *err)
{
        struct secret secret;
        int r = secret_update(c->op, c->rt, c->params[0], c->body, call_query_flag(c, "force"),
                              &secret, err);

        return answer_secret(c, r, &secret);
}

static int remove_secret(struct call *c, struct err *err)
{
        int r = secret_remove(c->op, c->rt, c->params[0], call_query_flag(c, "force"), err);

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
        struct jw *w = call_json(c);
        int r;

        jw_object(w);
        jw_kstring(w, "secretId", c->params[0]);
        jw_key(w, "bindings");
        jw_array(w);
        r = secret_list_usage(c->op, c->rt, c->params[0], show_usage, w, err);
        jw_array_end(w);
        jw_object_end(w);
        return r;
}

static int show_version(void *ctx, const struct secret_version *version)
{
        encode_secret_version(ctx, version);
        return 0;
}

static int versions(struct call *c, struct err *err)
{
        return call_list_end(c, secret_list_versions(c->op, c->rt, c->params[0], show_version,
                                                     call_list(c), err));
}

static int show_event(void *ctx, const struct secret_event *event)
{
        encode_secret_event(ctx, event);
        return 0;
}

static int events(struct call *c, struct err *err)
{
        return call_list_end(
                c, secret_list_events(c->op, c->rt, c->params[0], show_event, call_list(c), err));
}

static int rekey(struct call *c, struct err *err)
{
        int64_t count;
        struct jw *w = call_json(c);
        int r = secret_rekey(c->op, c->rt, &count, err);

        if (r < 0)
                return r;
        jw_object(w);
        jw_kbool(w, "ok", true);
        jw_kint(w, "resealedCount", count);
        jw_object_end(w);
        return 0;
}

const struct route routes_secrets[] = {
        { "GET", "/api/companies/:companyId/secrets", .fn = list_secrets },
        { "POST", "/api/companies/:companyId/secrets", .fn = create, .status = 201,
          .flags = ROUTE_WAITS },
        { "POST", "/api/companies/:companyId/secrets/import-sealed",
          .take_of = secret_import_sealed, .flags = ROUTE_WAITS },
        { "GET", "/api/secrets/:id", .fn = get },
        { "PATCH", "/api/secrets/:id", .fn = update, .flags = ROUTE_WAITS },
        { "DELETE", "/api/secrets/:id", .fn = remove_secret, .flags = ROUTE_WAITS },
        { "POST", "/api/secrets/:id/rotate", .fn = rotate, .flags = ROUTE_WAITS },
        { "GET", "/api/secrets/:id/usage", .fn = usage },
        { "GET", "/api/secrets/:id/versions", .fn = versions },
        { "GET", "/api/secrets/:id/access-events", .fn = events },
        { "POST", "/api/instance/secrets/rekey", .fn = rekey, .flags = ROUTE_BODY_FREE },
        { 0 },
};
