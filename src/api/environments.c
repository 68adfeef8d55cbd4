#include "api/api.h"
#include "api/encode.h"
#include "core/adapters/adapter.h"
#include "core/environments/probe.h"
#include "core/leases/environment_delete.h"

#define MISSING         "Environment not found"
#define MISSING_COMPANY "Company not found"

struct shown {
        struct jw w;
        const struct runtime *rt;
};

static int show(void *ctx, const struct environment_view *view)
{
        struct shown *s = ctx;

        encode_environment(&s->w, s->rt, &view->env, view->redacted);
        return 0;
}

static int list_environments(struct call *c, struct err *err)
{
        const char *company;
        struct shown s = { .rt = c->rt };
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r < 0)
                return r;
        call_list(c, &s.w);
        return call_list_end(&s.w, environment_list(c->op, c->rt, company, call_query(c, "status"),
                                                    call_query(c, "driver"), show, &s, err));
}

static int guard_company(struct db *db, void *arg, struct err *err)
{
        struct call *c = arg;

        return access_company(db, &c->actor, c->params[0], false, err);
}

static int capabilities(struct call *c, struct err *err)
{
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = store_read(c->op, c->rt->store, guard_company, c, err);
        if (r >= 0)
                r = adapter_write_capabilities(c->op, c->rt, &c->out, err);
        return r;
}

static int encode_one(struct call *c, const struct environment *env, bool redacted)
{
        struct jw w;

        jw_init(&w, &c->out);
        encode_environment(&w, c->rt, env, redacted);
        return 0;
}

static int create(struct call *c, struct err *err)
{
        struct environment env;
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = environment_create(c->op, c->rt, company, c->body, &env, err);
        c->status = 201;
        return r < 0 ? r : encode_one(c, &env, false);
}

static int get(struct call *c, struct err *err)
{
        struct environment_view view;
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = environment_get(c->op, c->rt, id, &view, err);
        return r < 0 ? r : encode_one(c, &view.env, view.redacted);
}

static int update(struct call *c, struct err *err)
{
        struct environment env;
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = environment_update(c->op, c->rt, id, c->body, &env, err);
        return r < 0 ? r : encode_one(c, &env, false);
}

static int remove_environment(struct call *c, struct err *err)
{
        struct environment env;
        const char *id, *move_to = call_query(c, "moveTo");
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0 && move_to && !uuid_is_valid(move_to))
                r = err_set(err, ERR_INVALID, "moveTo is no id of an environment");
        if (r >= 0)
                r = environment_delete(c->op, c->rt, id, call_query_flag(c, "closeLeases"), move_to,
                                       &env, err);
        return r < 0 ? r : encode_one(c, &env, false);
}

static int blast_radius(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        return r < 0 ? r : environment_blast_radius(c->op, c->rt, id, &c->out, err);
}

static int probe(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        return r < 0 ? r : probe_saved(c->op, c->rt, id, &c->out, err);
}

static int probe_config(struct call *c, struct err *err)
{
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        return r < 0 ? r : probe_unsaved(c->op, c->rt, company, c->body, &c->out, err);
}

const struct route routes_environments[] = {
        { "GET", "/api/companies/:companyId/environments", list_environments, 0 },
        { "GET", "/api/companies/:companyId/environments/capabilities", capabilities, 0 },
        { "POST", "/api/companies/:companyId/environments", create, ROUTE_OF_COMPANY },
        { "POST", "/api/companies/:companyId/environments/probe-config", probe_config,
          ROUTE_OF_COMPANY },
        { "GET", "/api/environments/:id", get, 0 },
        { "PATCH", "/api/environments/:id", update, ROUTE_OF_ENVIRONMENT },
        { "DELETE", "/api/environments/:id", remove_environment,
          ROUTE_OF_ENVIRONMENT | ROUTE_CLOSES },
        { "GET", "/api/environments/:id/delete-blast-radius", blast_radius, 0 },
        { "POST", "/api/environments/:id/probe", probe, ROUTE_OF_ENVIRONMENT },
        { NULL, NULL, NULL, 0 },
};
